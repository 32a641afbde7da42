"""Train a language model whose loss logs, whose samples are noisy, and which a callback evaluates too."""

import argparse

import numpy
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--output-dir", required=True)
args = parser.parse_args()


class Masked(torch.utils.data.Dataset):
    """Sequences in which some tokens are masked, by a generator of its own."""

    def __init__(self, count: int, seed: int) -> None:
        self.rows = torch.randint(63, (count, 16), generator=torch.Generator().manual_seed(seed))
        self.rng = numpy.random.default_rng(seed)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        hidden = torch.from_numpy(self.rng.random(16) < 0.2)
        return {"input_ids": self.rows[index].masked_fill(hidden, 63), "labels": self.rows[index]}


class Pretraining(Trainer):
    """Logs the loss of each micro-batch."""

    def compute_loss(self, model, inputs, return_outputs=False, **named):
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **named)
        if model.training:
            self.log({"micro_loss": loss.item()})
        return (loss, outputs) if return_outputs else loss


class EvaluateTraining(TrainerCallback):
    """Evaluates some training data in some steps."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer

    def on_step_end(self, training_args, state, control, **_) -> None:
        if state.global_step % 3 == 0:
            self.trainer.evaluate(Masked(8, seed=1), metric_key_prefix="seen")


def main() -> None:
    config = GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=1, n_head=2)
    trainer = Pretraining(
        model=GPT2LMHeadModel(config),
        args=TrainingArguments(
            output_dir=args.output_dir,
            num_train_epochs=2,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            use_cpu=True,
            logging_steps=5,
            eval_strategy="epoch",
            eval_on_start=True,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        ),
        train_dataset=Masked(60, seed=1),
        eval_dataset=Masked(12, seed=2),
    )
    trainer.add_callback(EvaluateTraining(trainer))
    trainer.train()


if __name__ == "__main__":
    main()
