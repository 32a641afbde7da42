"""Train a tiny classifier with more of Trainer: its best weights, early stopping, a scheduler that follows
evaluations, workers, a collator that draws random numbers, and an evaluation before and after it."""

import argparse

import torch
import transformers
from transformers import BertConfig, BertForSequenceClassification

parser = argparse.ArgumentParser()
parser.add_argument("--output-dir", required=True)
args = parser.parse_args()


class Sentences(torch.utils.data.Dataset):
    def __init__(self, count: int, seed: int) -> None:
        self.rows = torch.randint(2, 32, (count, 12), generator=torch.Generator().manual_seed(seed))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        row = self.rows[index]
        return {"input_ids": row.roll(int(torch.randint(3, ()))), "labels": (row.sum() % 2)}


def masked(samples: list) -> dict[str, torch.Tensor]:
    ids = torch.stack([sample["input_ids"] for sample in samples])
    ids[torch.rand(ids.shape) < 0.1] = 1
    return {"input_ids": ids, "labels": torch.stack([sample["labels"] for sample in samples])}


def main() -> None:
    transformers.set_seed(3)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    training_args = transformers.TrainingArguments(
        output_dir=args.output_dir,
        num_train_epochs=3,
        per_device_train_batch_size=4,
        bf16=True,
        use_cpu=True,
        learning_rate=5e-3,
        lr_scheduler_type="reduce_lr_on_plateau",
        lr_scheduler_kwargs={"patience": 0},
        logging_strategy="epoch",
        eval_strategy="steps",
        eval_steps=3,
        save_steps=3,
        eval_on_start=True,
        load_best_model_at_end=True,
        save_total_limit=2,
        metric_for_best_model="eval_loss",
        dataloader_num_workers=1,
        report_to="none",
        disable_tqdm=True,
    )
    trainer = transformers.Trainer(
        model=BertForSequenceClassification(BertConfig(vocab_size=32, max_position_embeddings=16, **sizes)),
        args=training_args,
        train_dataset=Sentences(44, seed=1),
        eval_dataset=Sentences(12, seed=2),
        data_collator=masked,
        callbacks=[transformers.EarlyStoppingCallback(early_stopping_patience=3)],
    )
    trainer.train()
    print("evaluated after the training:", trainer.evaluate()["eval_loss"].hex())
    trainer.save_model()


if __name__ == "__main__":
    main()
