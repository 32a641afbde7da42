"""Wrap a module in DistributedDataParallel whose order of summation is fixed from the first step on.

Plain DDP rebuilds its buckets after its first backward pass. So a module that is wrapped again in the middle
of a run sums in another order than the undisturbed run and, from three ranks on, differs from it in the last
bits. Here the buckets are rebuilt once, at construction, from the order of the parameters alone: the same at
every wrapping."""

from __future__ import annotations

import functools
import logging
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from holdfast.errors import SessionError

log = logging.getLogger("holdfast.sdk")
Around = Callable[[], AbstractContextManager[None]]
_OF_ANOTHER = (
    "ddp: this wrapper of a model is of an earlier generation, whose process group is gone. Wrap the model "
    "in the elastic function each time that it is called, and keep the wrapper only there: not in a variable "
    "outside, nor in an object that outlives the function (a module for the loss)"
)


def _sync_buffers(around: Around, wrapper: weakref.ref[Any], _buffers: Any) -> None:
    with around():
        wrapper()._default_broadcast_coalesced()  # type: ignore[union-attr]


class FixedOrderDataParallel(DistributedDataParallel):
    """DDP whose buckets depend on the model alone, and whose buffers are equal on all ranks at a step's end.

    Equal buffers (batch norm) let any rank give its state to another: rank 0's buffers are broadcast after
    the forward pass instead of before the next one. Nothing is synchronised at construction: the session has
    done that. `around`: the wait for rank 0's buffers is entered in it. Other arguments are DDP's."""

    def __init__(self, module: torch.nn.Module, around: Around = nullcontext, **options: Any) -> None:
        options.setdefault("init_sync", False)
        super().__init__(module, **options)
        if not self.find_unused_parameters or self.static_graph:
            self.reducer._push_all_rebuilt_params()
            self.reducer._rebuild_buckets()
        self._register_buffer_comm_hook(weakref.ref(self), functools.partial(_sync_buffers, around))
        self._generation = dist.group.WORLD  # each generation has another one
        ignored = self.parameters_to_ignore
        self._frozen = [
            (name, each)
            for name, each in module.named_parameters()
            if not each.requires_grad and name not in ignored
        ]

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """DDP's. Raises SessionError if this wrapper is of an earlier generation, or if a parameter needs
        gradients now that did not when it was wrapped."""
        if torch.is_grad_enabled() and dist.is_initialized() and dist.group.WORLD is not self._generation:
            raise SessionError(_OF_ANOTHER)
        for name, each in self._frozen if torch.is_grad_enabled() else ():
            if each.requires_grad:
                raise SessionError(
                    f"ddp: {name} needs gradients now, and did not when the model was wrapped: "
                    "DistributedDataParallel does not average them, and ranks would train apart. Unfreeze it "
                    "before, or wrap the model anew when it is unfrozen"
                )
        return super().forward(*inputs, **options)  # type: ignore[no-untyped-call]

    def register_comm_hook(self, state: object, hook: Callable[..., Any]) -> None:
        """DDP's. What a hook keeps (the error feedback of PowerSGD) belongs to this wrapper: that is told."""
        if state is not None and not isinstance(state, dist.ProcessGroup) and dist.get_rank() == 0:
            log.warning(
                "the communication hook %s keeps a %s, which is not tracked. If that changes with the steps "
                "(PowerSGD's error feedback), the training comes out differently when a rank dies: a model "
                "that is wrapped anew has a new one. A hook without a state (fp16_compress_hook, "
                "bf16_compress_hook) keeps nothing",
                getattr(hook, "__name__", type(hook).__name__),
                type(state).__name__,
            )
        super().register_comm_hook(state, hook)

    def _check_sync_bufs_post_fwd(self) -> bool:
        """Whether this forward pass ends with rank 0's buffers: each one does whose gradients are reduced.

        DDP answers for the pass before, which is another kind of pass where gradients are accumulated."""
        if torch.is_grad_enabled():
            self.require_forward_param_sync = self.require_backward_grad_sync
        return bool(super()._check_sync_bufs_post_fwd())  # type: ignore[no-untyped-call]

    def _build_params_for_reducer(self) -> tuple[list[torch.nn.Parameter], list[bool]]:
        """List the parameters last layer first: about the order in which their gradients get ready and fill
        buckets."""
        parameters, sparse = super()._build_params_for_reducer()  # type: ignore[no-untyped-call]
        return parameters[::-1], sparse[::-1]


def wrap(
    module: torch.nn.Module, device: torch.device, options: dict[str, Any], around: Around = nullcontext
) -> torch.nn.Module:
    """The module wrapped for this rank's group; the module itself if none of its parameters needs
    gradients."""
    if not any(parameter.requires_grad for parameter in module.parameters()):
        return module
    if device.type == "cuda" and "device_ids" not in options:
        options = {**options, "device_ids": [device.index]}
    return FixedOrderDataParallel(module, around, **options)
