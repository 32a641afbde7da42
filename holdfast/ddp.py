"""Wrap a module in DistributedDataParallel whose order of summation is fixed from the first step on.

Plain DDP rebuilds its buckets after its first backward, so a model wrapped anew in the middle of a run sums
in another order than the undisturbed run and drifts from it in the last bits, from three ranks on. Here the
rebuild happens once, at construction, from the order of the parameters alone: the same at every wrapping."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from torch.nn.parallel import DistributedDataParallel

from holdfast.groups import waiting

if TYPE_CHECKING:
    import torch


def _sync_buffers(wrapper: weakref.ref[Any], _buffers: Any) -> None:
    wrapper()._default_broadcast_coalesced()  # type: ignore[union-attr]


class FixedOrderDataParallel(DistributedDataParallel):
    """DDP with buckets that depend on the model alone, and buffers (batch norm's) that are the same on all
    ranks at the end of a step, so that any rank can give them: rank 0's are sent after the forward pass
    rather than before the next one. State is not synchronised at construction: the session has done that.
    Arguments are DDP's."""

    def __init__(self, module: torch.nn.Module, **options: Any) -> None:
        options.setdefault("init_sync", False)
        super().__init__(module, **options)
        if not self.find_unused_parameters and not self.static_graph:
            self.reducer._push_all_rebuilt_params()
            self.reducer._rebuild_buckets()
        self._register_buffer_comm_hook(weakref.ref(self), _sync_buffers)

    def _build_params_for_reducer(self) -> tuple[list[torch.nn.Parameter], list[bool]]:
        """Last layer first, which is about the order gradients get ready in: buckets fill in it."""
        parameters, sparse = super()._build_params_for_reducer()  # type: ignore[no-untyped-call]
        return parameters[::-1], sparse[::-1]


def wrap(module: torch.nn.Module, device: torch.device, options: dict[str, Any]) -> torch.nn.Module:
    """The module as a rank of its group trains it."""
    if not any(parameter.requires_grad for parameter in module.parameters()):
        return module
    if device.type == "cuda" and "device_ids" not in options:
        options = {**options, "device_ids": [device.index]}
    if "device_mesh" not in options:
        options = {**options, "process_group": waiting.guard(options.get("process_group"))}
    return FixedOrderDataParallel(module, **options)
