"""Refuse by name what cannot be kept exactly under transformers' Trainer."""

from __future__ import annotations

import os
from typing import Any

from torch.utils.data import DistributedSampler, SequentialSampler

from holdfast.errors import SessionError
from holdfast.integrations.compiled import REGIONAL
from holdfast.integrations.hf.data import has_positions
from holdfast.integrations.placed import order_of, refuse_late

_DEEPSPEED = "DeepSpeed owns the state and its process groups"
_FSDP = "the state is sharded and tied to its groups"


def check_arguments(args: Any) -> None:
    """Raise SessionError for arguments, and variables of `accelerate config`, that let another own the state.

    Call it before transformers reads them: it asks for the owner's package first, and then forms groups."""
    if args.deepspeed or os.environ.get("ACCELERATE_USE_DEEPSPEED", "false").lower() == "true":
        refuse("deepspeed", _DEEPSPEED)
    if args.fsdp or os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true":
        refuse("fsdp", _FSDP)


def check(trainer: Any) -> None:
    """Raise SessionError for settings of a Trainer that cannot be kept."""
    args = trainer.args
    config = args.accelerator_config
    reasons = {
        "deepspeed": (trainer.is_deepspeed_enabled, _DEEPSPEED),
        "fsdp": (bool(args.fsdp) or trainer.is_fsdp_enabled, _FSDP),
        "parallelism_config": (args.parallelism_config is not None, "only data parallelism is kept"),
        "a model sharded at load time": (
            trainer.is_distributed_loading_by_transformers or trainer.is_model_parallel,
            "only data parallelism is kept",
        ),
        "use_regional_compilation": (
            trainer.accelerator.state.dynamo_plugin.use_regional_compilation,
            REGIONAL,
        ),
        "auto_find_batch_size": (
            args.auto_find_batch_size,
            "ranks that find different sizes train on different samples",
        ),
        f"train_sampling_strategy={args.train_sampling_strategy!r}": (
            str(getattr(args.train_sampling_strategy, "value", args.train_sampling_strategy))
            not in ("random", "sequential"),
            "its order cannot be drawn again from an epoch's number",
        ),
        "a train_dataset without positions": (
            not has_positions(trainer.train_dataset),
            "give a map data set (with __getitem__ and __len__)",
        ),
        "use_seedable_sampler=False": (
            not config.use_seedable_sampler,
            "the order of samples must follow from seed and epoch",
        ),
        "dispatch_batches": (bool(config.dispatch_batches), "rank 0 alone would know where the data is"),
        "batch_eval_metrics": (
            args.batch_eval_metrics and trainer.compute_metrics is not None,
            "what compute_metrics has added up when a rank dies would be counted again",
        ),
    }
    for name, (given, why) in reasons.items():
        if given:
            refuse(name, why)


def check_loader(loader: Any) -> None:
    """Raise SessionError for a loader of the training, made by a method of the script's own, whose order of
    samples does not follow from the seed and the epoch."""
    from accelerate.data_loader import SeedableRandomSampler

    refuse_late(loader.collate_fn)
    sampler = order_of(loader)
    if not isinstance(sampler, SeedableRandomSampler | SequentialSampler | DistributedSampler):
        refuse(
            f"a training loader with a {type(sampler).__name__}",
            "its order must follow from seed and epoch: leave out _get_train_sampler and "
            "get_train_dataloader, or give shuffle=True and the loader to self.accelerator.prepare",
        )


def refuse(name: str, why: str) -> None:
    """Raise SessionError."""
    raise SessionError(f"Trainer under Holdfast: {name} is not supported: {why}")


def check_world(trained: int, now: int) -> None:
    """Raise SessionError if another number of ranks trained the state: the batches would differ."""
    if trained != now:
        raise SessionError(
            f"Trainer under Holdfast: {trained} ranks trained the state, and there are {now}: the global "
            "batch would change. Start the job with as many ranks as before, and with spares"
        )
