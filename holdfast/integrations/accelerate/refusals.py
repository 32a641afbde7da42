"""Refuse by name what cannot be kept exactly in a loop with accelerate."""

from __future__ import annotations

import os
from typing import Any, NoReturn

from accelerate.data_loader import SeedableRandomSampler
from accelerate.utils import DDPCommunicationHookType
from torch.utils.data import IterableDataset, SequentialSampler

from holdfast.errors import SessionError
from holdfast.integrations.compiled import REGIONAL
from holdfast.integrations.placed import order_of

_ARGUMENTS = {
    "deepspeed_plugin": "DeepSpeed owns the state and its process groups",
    "deepspeed_plugins": "DeepSpeed owns the state and its process groups",
    "fsdp_plugin": "the state is sharded and tied to its groups; fully_shard in a loop with Session is kept",
    "torch_tp_plugin": "only data parallelism is kept",
    "megatron_lm_plugin": "Megatron owns the state and its process groups",
    "parallelism_config": "only data parallelism is kept",
}
_VARIABLES = {
    "ACCELERATE_USE_DEEPSPEED": "deepspeed_plugin",
    "ACCELERATE_USE_FSDP": "fsdp_plugin",
    "ACCELERATE_USE_MEGATRON_LM": "megatron_lm_plugin",
    "ACCELERATE_USE_PARALLELISM_CONFIG": "parallelism_config",
}


def check_arguments(named: dict[str, Any]) -> None:
    """Raise SessionError for plugins, given to Accelerator or by `accelerate config`'s variables.

    Call it first: accelerate asks for the plugin's own package, and tells of that instead."""
    for name, why in _ARGUMENTS.items():
        if named.get(name) is not None:
            refuse(name, why)
    for variable, name in _VARIABLES.items():
        if os.environ.get(variable, "false").lower() == "true":
            refuse(f"{variable}=true", _ARGUMENTS[name])


def check_accelerator(accelerator: Any, on_cpu: bool) -> None:
    """Raise SessionError for settings of an Accelerator that cannot be kept."""
    if accelerator.state.mixed_precision == "fp8":
        refuse("mixed_precision='fp8'", "its scales belong to no tracked state")
    if accelerator.state.dynamo_plugin.use_regional_compilation:
        refuse("use_regional_compilation", REGIONAL)
    if accelerator.project_configuration.automatic_checkpoint_naming:
        refuse("automatic_checkpoint_naming", "a step that runs again would save under another name")
    if accelerator.dispatch_batches:
        refuse("dispatch_batches", "rank 0 alone would know where the data is")
    if accelerator.use_stateful_dataloader:
        refuse("use_stateful_dataloader", "Holdfast finds the position in the data itself")
    hook = getattr(accelerator.ddp_handler, "comm_hook", DDPCommunicationHookType.NO)
    if hook != DDPCommunicationHookType.NO:
        refuse("DistributedDataParallelKwargs(comm_hook=...)", "it belongs to a wrapper of one generation")
    if on_cpu and accelerator.device.type != "cpu":
        raise SessionError("Accelerator(cpu=True) under Holdfast: write @elastic(cpu=True)")


def check_synchronised(models: list[Any]) -> None:
    """Raise SessionError for an optimizer's step whose gradients no rank has averaged."""
    if any(getattr(each, "require_backward_grad_sync", True) is False for each in models):
        refuse(
            "an optimizer's step within no_sync (LocalSGD)",
            "ranks have different weights then, and nobody else has those of a dead rank. A loop of your own "
            "with Session keeps them: track(model=model, per_rank=True)",
        )


def check_prepared(loader: Any) -> None:
    """Raise SessionError for an iterable data set: accelerate gives its loader another class."""
    if isinstance(getattr(loader, "dataset", None), IterableDataset):
        refuse("an iterable data set for training", "give a map data set (with __getitem__ and __len__)")


def check_training(loader: Any) -> None:
    """Raise SessionError for a training's loader whose batches have no positions."""
    if isinstance(loader.dataset, IterableDataset) or not hasattr(loader.dataset, "__len__"):
        refuse("a training loader without positions", "give a map data set (with __getitem__ and __len__)")
    sampler = order_of(loader)
    if not isinstance(sampler, SeedableRandomSampler | SequentialSampler):
        refuse(
            f"a training loader with a {type(sampler).__name__}",
            "its order must follow from seed and epoch: give shuffle=True or False",
        )
    shard = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
    if not getattr(shard, "even_batches", True):
        refuse("even_batches=False", "ranks would train in different numbers of steps")


def refuse(name: str, why: str) -> NoReturn:
    """Raise SessionError."""
    raise SessionError(f"Accelerator under Holdfast: {name} is not supported: {why}")
