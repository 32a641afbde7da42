"""Run transformers' Trainer through failures.

    from holdfast.integrations.hf import Trainer, TrainingArguments

Theory of operation. Survivors keep their process, model, optimizer and data sets; Trainer's loop is entered
again in every generation, under `session.elastic`. A step is what ends with the optimizer: its *body* is
everything up to the new `global_step`; its *tail* is `on_step_end`, logs, evaluation and checkpoints. The
state that is kept and given to others is always that between the two (`progress.py`). So a generation begins
with the tail of its newest complete step, on all ranks, because evaluation has collectives. Callbacks that a
rank has called already in that tail are not called again: what they did to the control flags and to
themselves is written down and applied instead (`events.py`)."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.integrations.hf.arguments import TrainingArguments, prepare
    from holdfast.integrations.hf.seq2seq import Seq2SeqTrainer, Seq2SeqTrainingArguments
    from holdfast.integrations.hf.trainer import Trainer

__all__ = ["Seq2SeqTrainer", "Seq2SeqTrainingArguments", "Trainer", "TrainingArguments", "prepare"]

_HOMES = {
    **{"Trainer": "trainer", "TrainingArguments": "arguments", "prepare": "arguments"},
    **dict.fromkeys(("Seq2SeqTrainer", "Seq2SeqTrainingArguments"), "seq2seq"),
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
