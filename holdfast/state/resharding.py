"""A checkpoint of another layout: every rank reads what it holds from the storage by itself.

The names are those of snapshot headers, so the optimizers' state must be there before it can be read into."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import torch

from holdfast.errors import RestoreError
from holdfast.reentry import transfer
from holdfast.state import tracked as state

if TYPE_CHECKING:
    from holdfast.reentry.formation import Resume
    from holdfast.state.tracked import Tracked


def load(tracked: Tracked, resume: Resume) -> None:
    """Fill what is tracked with this rank's part of the checkpoint. Raises RestoreError."""
    for optimizer in tracked.optimizers:
        materialise(optimizer)
    mine = tracked.flatten()
    tensors = dict(zip(mine.names, mine.given, strict=True))
    # It needs fsspec, which a rank that does not reshard never loads.
    dcp = importlib.import_module("holdfast.dcp")
    try:
        header: bytes = dcp.load_into(tensors, resume.storage, resume.job, resume.checkpoint, resume.digest)
    except (OSError, LookupError, ValueError, RuntimeError) as error:
        raise RestoreError(f"checkpoint {resume.checkpoint} of {resume.job}: {error}") from error
    entries, plain = transfer.read(header, f"checkpoint {resume.checkpoint}")
    tracked.adopt_plain([entry.name for entry in entries], plain, tensors)


def materialise(optimizer: torch.optim.Optimizer) -> None:
    """Have the optimizer make its state, by a step that changes nothing: no gradients but zeros, no rate.

    Its hooks are not called, and a gradient that is there stays."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if optimizer.state:
        return
    gradients = [parameter.grad for parameter in parameters]
    rates = [group.get("lr") for group in optimizer.param_groups]
    values = [state.live(parameter).clone() for parameter in parameters]
    try:
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            if rate is not None:
                group["lr"] = torch.zeros_like(rate) if isinstance(rate, torch.Tensor) else 0.0
        _unhooked_step(optimizer)
    finally:
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            if rate is not None:
                group["lr"] = rate
        with torch.no_grad():
            for parameter, gradient, value in zip(parameters, gradients, values, strict=True):
                parameter.grad = gradient
                state.live(parameter).copy_(value)


def _unhooked_step(optimizer: torch.optim.Optimizer) -> None:
    """One step without the hooks of others: they count steps, and may change state of their own."""
    before, after = optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks
    kept = dict(before), dict(after)
    before.clear()
    after.clear()
    try:
        optimizer.step()
    finally:
        before.update(kept[0])
        after.update(kept[1])
