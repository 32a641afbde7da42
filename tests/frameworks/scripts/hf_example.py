"""Train, evaluate and predict as the examples of transformers do, with waits and gathers between."""

import argparse
import json
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

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
    training_args = TrainingArguments(
        output_dir=args.output_dir,
        num_train_epochs=1,
        per_device_train_batch_size=4,
        learning_rate=1e-2,
        logging_steps=2,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    with training_args.main_process_first(desc="data sets"):
        train_dataset = Sequences(64, seed=1)
    config = GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=1, n_head=2)
    trainer = Trainer(
        model=GPT2LMHeadModel(config),
        args=training_args,
        train_dataset=train_dataset,
        eval_dataset=Sequences(20, seed=2),
    )
    trainer.accelerator.wait_for_everyone()
    ended = trainer.train()
    trainer.save_model()
    if trainer.is_world_process_zero():
        trainer.model.save_pretrained(f"{args.output_dir}/own")
    trainer.log_metrics("train", ended.metrics)
    trainer.save_metrics("train", ended.metrics)
    trainer.save_state()
    trainer.accelerator.wait_for_everyone()
    own = torch.tensor([trainer.args.process_index, trainer.state.global_step])
    places = trainer.accelerator.gather(own)
    measured = trainer.evaluate()
    trainer.log_metrics("eval", measured)
    trainer.save_metrics("eval", measured)
    with training_args.main_process_first(desc="reading what was saved"):
        train_loss = json.loads((Path(args.output_dir) / "train_results.json").read_text())["train_loss"]
    guesses = trainer.predict(Sequences(8, seed=3))
    with trainer.accelerator.main_process_first():
        if trainer.is_world_process_zero():
            (Path(args.output_dir) / "guesses.txt").write_text(str(guesses.predictions.argmax(-1)))
    told = (Path(args.output_dir) / "guesses.txt").read_text()
    kept = {
        "places": places,
        "metrics": [lasting(measured), lasting(guesses.metrics), train_loss],
        "guesses": torch.from_numpy(guesses.predictions),
        "told": told,
        "first": [trainer.is_world_process_zero(), trainer.args.process_index],
    }
    trainer.accelerator.wait_for_everyone()
    torch.save(kept, f"{args.output_dir}/average-{trainer.args.process_index}.pt")


if __name__ == "__main__":
    main()
