"""Train a tiny language model with a loss that calls the model itself, as those of sentence-transformers do:
it keeps the wrapped model that the Trainer calls it with first."""

import argparse

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--output-dir", required=True)
args = parser.parse_args()


class Sequences(torch.utils.data.Dataset):
    def __init__(self) -> None:
        self.rows = torch.randint(64, (90, 16), generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


class Measure(torch.nn.Module):
    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, rows: dict[str, torch.Tensor]) -> torch.Tensor:
        return self.model(**rows).loss


class Measured(Trainer):
    def __init__(self, *given, loss: torch.nn.Module, **named) -> None:
        super().__init__(*given, **named)
        self.losses = {"language": loss}

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        loss = self.losses["language"]
        if model is not self.model and isinstance(loss.model, GPT2LMHeadModel):
            loss.model = model
        return loss(inputs)


def main() -> None:
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2))
    trainer = Measured(
        model=model,
        args=TrainingArguments(
            output_dir=args.output_dir,
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
        loss=Measure(model),
    )
    trainer.train()


if __name__ == "__main__":
    main()
