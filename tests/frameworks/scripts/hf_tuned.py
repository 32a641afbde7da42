"""Tune a tiny language model with more of Trainer: noise on embeddings, smoothed labels, counted tokens,
recomputed activations, Adafactor, the best weights and early stopping."""

import argparse

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
from transformers.trainer_callback import EarlyStoppingCallback

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
            max_steps=18,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            use_cpu=True,
            optim="adafactor",
            learning_rate=1e-3,
            lr_scheduler_type="cosine_with_restarts",
            warmup_steps=3,
            neftune_noise_alpha=5.0,
            label_smoothing_factor=0.1,
            gradient_checkpointing=True,
            include_num_input_tokens_seen="all",
            ignore_data_skip=True,
            accelerator_config={"split_batches": True},
            logging_steps=2,
            eval_strategy="steps",
            eval_steps=3,
            save_steps=3,
            save_total_limit=1,
            load_best_model_at_end=True,
            metric_for_best_model="loss",
            report_to="none",
            disable_tqdm=True,
        ),
        train_dataset=Sequences(150, seed=1),
        eval_dataset=Sequences(20, seed=2),
        callbacks=[EarlyStoppingCallback(3)],
    )
    trainer.train()


if __name__ == "__main__":
    main()
