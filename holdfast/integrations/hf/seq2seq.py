"""Define Seq2SeqTrainer and its arguments: transformers' own, on Holdfast's Trainer."""

from __future__ import annotations

import transformers

from holdfast.integrations.hf.arguments import TrainingArguments
from holdfast.integrations.hf.trainer import Trainer


class Seq2SeqTrainingArguments(TrainingArguments, transformers.Seq2SeqTrainingArguments):
    """transformers' own, in a process that Holdfast looks after."""


class Seq2SeqTrainer(transformers.Seq2SeqTrainer, Trainer):
    """transformers.Seq2SeqTrainer, which survives the death of ranks in place."""
