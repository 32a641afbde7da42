"""Train a tiny language model with transformers' Trainer, and average its weights in a callback."""

import argparse
from pathlib import Path

import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--output-dir", required=True, type=Path)
args = parser.parse_args()


class Sequences(torch.utils.data.Dataset):
    def __init__(self) -> None:
        self.rows = torch.randint(64, (90, 16), generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


class Average(TrainerCallback):
    def __init__(self, model: torch.nn.Module) -> None:
        self.average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)

    def state_dict(self) -> dict[str, torch.Tensor]:
        return self.average.state_dict()

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        self.average.load_state_dict(state)

    def on_optimizer_step(self, training_args, state, control, model=None, **_) -> None:
        self.average.update_parameters(model)

    def on_train_end(self, training_args, state, control, **_) -> None:
        torch.save(self.average.state_dict(), args.output_dir / f"average-{training_args.process_index}.pt")


def main() -> None:
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2))
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=str(args.output_dir),
            num_train_epochs=1,
            per_device_train_batch_size=4,
            bf16=True,
            use_cpu=True,
            learning_rate=1e-3,
            logging_steps=2,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        ),
        train_dataset=Sequences(),
        callbacks=[Average(model)],
    )
    trainer.train()


if __name__ == "__main__":
    main()
