"""Train a tiny translator, measured by what it generates; then evaluate it and predict."""

import argparse
from typing import Any

import numpy
import torch
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments
from transformers.models.t5 import T5Config, T5ForConditionalGeneration

parser = argparse.ArgumentParser()
parser.add_argument("--output-dir", required=True)
args = parser.parse_args()
TIMES = ("_runtime", "_per_second", "_time")


class Reversed(torch.utils.data.Dataset):
    def __init__(self, count: int, seed: int) -> None:
        self.rows = torch.randint(2, 32, (count, 6), generator=torch.Generator().manual_seed(seed))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        row = self.rows[index]
        return {"input_ids": row, "labels": row.flip(0)}


def accuracy(found: Any) -> dict[str, float]:
    guesses = numpy.resize(found.predictions[:, 1:], found.label_ids.shape)
    return {"right": float((guesses == found.label_ids).mean()), "tokens": float(guesses.sum())}


def lasting(metrics: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if not name.endswith(TIMES)}


def main() -> None:
    config = T5Config(
        vocab_size=32, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, decoder_start_token_id=0
    )
    trainer = Seq2SeqTrainer(
        model=T5ForConditionalGeneration(config),
        args=Seq2SeqTrainingArguments(
            output_dir=args.output_dir,
            num_train_epochs=1,
            per_device_train_batch_size=4,
            learning_rate=1e-2,
            logging_steps=2,
            eval_strategy="steps",
            eval_steps=4,
            save_steps=4,
            load_best_model_at_end=True,
            metric_for_best_model="right",
            predict_with_generate=True,
            generation_max_length=7,
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
        ),
        train_dataset=Reversed(64, seed=1),
        eval_dataset=Reversed(20, seed=2),
        compute_metrics=accuracy,
    )
    trainer.train()
    trainer.save_model()
    measured = trainer.evaluate(max_length=6, num_beams=2)
    guesses = trainer.predict(Reversed(10, seed=3), max_length=5, do_sample=True)
    kept = {
        "metrics": [lasting(measured), lasting(guesses.metrics)],
        "guesses": torch.from_numpy(guesses.predictions),
    }
    torch.save(kept, f"{args.output_dir}/average-{trainer.args.process_index}.pt")


if __name__ == "__main__":
    main()
