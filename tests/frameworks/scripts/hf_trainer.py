"""Train a tiny language model with transformers' Trainer, as anybody would."""

import argparse

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--output-dir", required=True)
args = parser.parse_args()


class Sequences(torch.utils.data.Dataset):
    def __init__(self, count: int, seed: int) -> None:
        self.rows = torch.randint(64, (count, 16), generator=torch.Generator().manual_seed(seed))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


def main() -> None:
    config = GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2)
    trainer = Trainer(
        model=GPT2LMHeadModel(config),
        args=TrainingArguments(
            output_dir=args.output_dir,
            num_train_epochs=2,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            bf16=True,
            use_cpu=True,
            learning_rate=1e-3,
            logging_steps=2,
            eval_strategy="steps",
            eval_steps=6,
            save_steps=6,
            report_to="none",
            disable_tqdm=True,
        ),
        train_dataset=Sequences(150, seed=1),
        eval_dataset=Sequences(20, seed=2),
    )
    trainer.train()


if __name__ == "__main__":
    main()
