"""Train a tiny language model, evaluate it, predict, train it again, and tune it with a second Trainer."""

import argparse

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
from transformers.trainer_callback import EarlyStoppingCallback

parser = argparse.ArgumentParser()
parser.add_argument("--output-dir", required=True)
args = parser.parse_args()
TIMES = ("_runtime", "_per_second", "_time")


class Sequences(torch.utils.data.Dataset):
    def __init__(self, count: int, seed: int) -> None:
        self.rows = torch.randint(64, (count, 16), generator=torch.Generator().manual_seed(seed))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


def lasting(metrics: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if not name.endswith(TIMES)}


def main() -> None:
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=1, n_head=2))
    stopping = EarlyStoppingCallback(3)
    common = {"per_device_train_batch_size": 4, "use_cpu": True, "learning_rate": 1e-2, "logging_steps": 2}
    common |= {"save_steps": 4, "report_to": "none", "disable_tqdm": True}
    first = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=f"{args.output_dir}/first",
            num_train_epochs=1,
            eval_strategy="steps",
            eval_steps=4,
            load_best_model_at_end=True,
            metric_for_best_model="eval_loss",
            lr_scheduler_type="cosine_with_min_lr",
            lr_scheduler_kwargs={"min_lr": 1e-4},
            **common,
        ),
        train_dataset=Sequences(64, seed=1),
        eval_dataset=Sequences(20, seed=2),
        callbacks=[stopping],
    )
    ends = [first.train()]
    first.save_model()
    first.save_state()
    found = first.evaluate()
    guesses = first.predict(Sequences(8, seed=3))
    waited = stopping.early_stopping_patience_counter
    ends.append(first.train())
    second = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=args.output_dir, num_train_epochs=1, optim="rmsprop", max_grad_norm=0, **common
        ),
        train_dataset=Sequences(64, seed=4),
    )
    ends.append(second.train())
    kept = {
        "ends": [[each.global_step, each.training_loss] for each in ends],
        "metrics": [lasting(found), lasting(guesses.metrics)],
        "guesses": torch.from_numpy(guesses.predictions),
        "history": [lasting(each) for each in first.state.log_history],
        "waited": waited,
    }
    torch.save(kept, f"{args.output_dir}/average-{second.args.process_index}.pt")


if __name__ == "__main__":
    main()
