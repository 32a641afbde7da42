"""Train a tiny language model with the Trainer and its loggers: logged_hf.py FOLDER LOGGER,LOGGER."""

import os
import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel, TrainerCallback

from holdfast.integrations.hf import Trainer, TrainingArguments
from tests.frameworks.pacing import pace

os.chdir(sys.argv[1])


class Sequences(torch.utils.data.Dataset):
    def __init__(self, count: int) -> None:
        self.rows = torch.randint(64, (count, 16), generator=torch.Generator().manual_seed(count))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


class Pace(TrainerCallback):
    def on_step_begin(self, args, state, control, **_) -> None:
        pace("begin", state.global_step)

    def on_log(self, args, state, control, **_) -> None:
        pace("logged", state.global_step)


def main() -> None:
    torch.manual_seed(7)
    config = GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=1, n_head=2)
    trainer = Trainer(
        model=GPT2LMHeadModel(config),
        args=TrainingArguments(
            output_dir="out",
            num_train_epochs=2,
            per_device_train_batch_size=4,
            use_cpu=True,
            learning_rate=1e-3,
            logging_steps=1,
            eval_strategy="steps",
            eval_steps=7,
            save_strategy="no",
            report_to=sys.argv[2].split(","),
            disable_tqdm=True,
        ),
        train_dataset=Sequences(96),
        eval_dataset=Sequences(16),
        callbacks=[Pace()],
    )
    trainer.train()
    trainer.evaluate()


if __name__ == "__main__":
    main()
