"""Read and put back what metrics have added up: values of `self.log`, and torchmetrics of the module.

Neither is in any state_dict of Lightning: a checkpoint in the middle of an epoch loses them."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

import torch
from lightning.pytorch.trainer.connectors.logger_connector.result import (
    _Metadata,
    _ResultMetric,
    _Sync,
)
from torchmetrics import Metric

from holdfast.errors import SessionError
from holdfast.integrations.plain import copied

if TYPE_CHECKING:
    from collections.abc import Iterator

_META = (
    "fx",
    "name",
    "prog_bar",
    "logger",
    "on_step",
    "on_epoch",
    "enable_graph",
    "add_dataloader_idx",
    "dataloader_idx",
    "metric_attribute",
)
_VALUES = ("_forward_cache", "_computed", "has_reset", "_update_count")
_BUILTIN = (sum, max, min)
_ADDED_UP = ("value", "cumulated_batch_size")


def capture(results: Any) -> dict[str, Any]:
    """The values that were logged, by key. Raises SessionError for one that is reduced over a group."""
    return {key: _captured(key, metric) for key, metric in results.items()}


def apply(results: Any, kept: dict[str, Any], trainer: Any) -> None:
    """Put logged values back, in the place of those that are there."""
    results.clear()
    results.batch = results.batch_size = results.dataloader_idx = None
    for key, values in kept.items():
        results[key] = _rebuilt(values, trainer)


def metrics_of(module: torch.nn.Module) -> Iterator[tuple[str, Metric]]:
    """The torchmetrics of a module, by name."""
    for name, each in module.named_modules():
        if isinstance(each, Metric):
            yield name, each


def capture_metrics(module: torch.nn.Module) -> dict[str, Any]:
    """What the module's torchmetrics have added up."""
    return {
        name: {
            "state": {key: copied(getattr(metric, key)) for key in metric._defaults},
            "updates": metric._update_count,
            "step": copied(metric._forward_cache),
        }
        for name, metric in metrics_of(module)
    }


def apply_metrics(module: torch.nn.Module, kept: dict[str, Any]) -> None:
    """Put back what the module's torchmetrics have added up."""
    for name, metric in metrics_of(module):
        values = kept[name]
        for key, value in values["state"].items():
            setattr(metric, key, copied(value))
        metric._update_count, metric._forward_cache = values["updates"], copied(values["step"])
        metric._computed, metric._cache, metric._is_synced = None, None, False


def _captured(key: str, metric: Any) -> dict[str, Any]:
    meta = metric.meta
    if meta.sync.group is not None:
        raise SessionError(
            f"Lightning: self.log({meta.name!r}, sync_dist_group=...): a group belongs to one generation; "
            "leave it out"
        )
    values = {name: copied(getattr(metric, name)) for name in _VALUES}
    if metric.is_tensor:
        values |= {name: copied(getattr(metric, name)) for name in _ADDED_UP if hasattr(metric, name)}
    elif meta.metric_attribute is None:
        raise SessionError(f"Lightning: self.log({meta.name!r}): make its metric an attribute of the module")
    return {
        "meta": {name: getattr(meta, name) for name in _META},
        "reduce": [meta.reduce_fx.__name__, meta.reduce_fx in _BUILTIN],
        "sync": [meta.sync.should, meta.sync.rank_zero_only, meta.sync.op],
        "tensor": metric.is_tensor,
        "values": values,
    }


def _rebuilt(kept: dict[str, Any], trainer: Any) -> Any:
    name, builtin = kept["reduce"]
    meta = _Metadata(**kept["meta"], reduce_fx=getattr(builtins if builtin else torch, name))
    should, rank_zero_only, op = kept["sync"]
    meta.sync = _Sync(
        _should=should, fn=trainer.strategy.reduce, rank_zero_only=rank_zero_only, _op=op, _group=None
    )
    metric = _ResultMetric(meta, kept["tensor"])
    for name, value in kept["values"].items():
        setattr(metric, name, copied(value))
    if not kept["tensor"]:
        metric.value = trainer.lightning_module.get_submodule(meta.metric_attribute)
    return metric
