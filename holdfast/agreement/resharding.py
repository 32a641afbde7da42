"""Read this rank's state from a checkpoint: its own shard where it is there, else its part of another layout.
Of another layout only DTensors, and what is the same on all ranks, can be resharded.

The names are those of snapshot headers, so the optimizers' state must be there before it can be read into."""

from __future__ import annotations

import importlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from holdfast.checkpoint.format import typed
from holdfast.errors import RestoreError, SessionError
from holdfast.groups import transfer
from holdfast.state import modes, shard_ids, shards
from holdfast.state import tracked as state
from holdfast.state.optimizers import parameters_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from holdfast.ipc.formation import Resume
    from holdfast.state.tracked import Tracked


def load(tracked: Tracked, resume: Resume) -> str:
    """Fill what is tracked with this rank's part of the checkpoint. Returns what of it is another rank's, ""
    when nothing is. Raises RestoreError; SessionError when the checkpoint cannot be resharded to this layout
    at all."""
    with _reading(resume):
        saved = _saved(resume)
        shard = _own_shard(tracked, saved.states)
        if shard:
            header, values = saved.read(shard)
    if shard:
        entries, plain = transfer.read(header, f"checkpoint {resume.checkpoint}")
        tracked.adopt(entries, plain, values)
        return ""
    held = _prepare(tracked, next(iter(saved.states.values()), None))
    _load_cut(tracked, resume, held)
    return "buffers" if any(_says(found, "scattered") for found in saved.states.values()) else ""


def functions(resume: Resume) -> str:
    """Which elastic functions were over when the checkpoint was made. Raises RestoreError."""
    with _reading(resume):
        return max((str(_says(each, "functions") or "") for each in _saved(resume).states.values()), key=len)


def _saved(resume: Resume) -> Any:
    # It needs fsspec, which a rank that does not reshard never loads.
    own = importlib.import_module("holdfast.dcp.own")
    return own.saved(resume.storage, resume.job, resume.checkpoint, resume.digest)


@contextmanager
def _reading(resume: Resume) -> Iterator[None]:
    """What a storage or a checkpoint may raise, as RestoreError."""
    try:
        yield
    except (OSError, LookupError, ValueError, RuntimeError) as error:
        if isinstance(error, SessionError):
            raise
        raise RestoreError(f"checkpoint {resume.checkpoint} of {resume.job}: {error}") from error


def _own_shard(tracked: Tracked, saved: dict[str, Any]) -> str:
    """The id of the saved shard that is this rank's as it is; "": its part is to be cut from all shards.
    Raises SessionError when that is impossible."""
    shard, plain_parts = shard_ids.of(tracked), shard_ids.claimed(tracked) or shard_ids.staged(tracked.at)
    tracked.scattered = True
    apart = shard_ids.of(tracked)
    tracked.scattered = shard not in saved and apart in saved
    if tracked.scattered:
        return apart
    if shard in saved:
        return shard if plain_parts else ""
    older = shard_ids.older(tracked)
    named = [name for found in saved.values() for name in _says(found, "own") or ()]
    if named := shard_ids.claimed(tracked) or named:
        raise SessionError(
            f"{', '.join(dict.fromkeys(named))}: state that is not the same on all ranks (per_rank=True or "
            "shard=...) was saved by ranks of another layout, and the checkpoint has no part for rank "
            f"{tracked.at.rank} of {tracked.at.world_size}. Only DTensors can be cut anew: run it with the "
            "number of ranks, and the names, that it was saved with"
        )
    if older not in saved and (found := _plain_parameters(tracked)) and shard_ids.staged(tracked.at):
        raise SessionError(
            f"{found[0]} is a plain tensor of one pipeline stage or tensor-parallel part, and the checkpoint "
            "was saved by other ones. Only DTensors can be cut anew: run it with the sizes it was saved with"
        )
    return ""


def _says(state_: Any, key: str) -> Any:
    """What a shard's plain data records of itself."""
    return state_.get(key) if isinstance(state_, dict) else None


def _plain_parameters(tracked: Tracked) -> list[str]:
    return [
        f"{name}.{path}"
        for name, thing in tracked.objects.items()
        if isinstance(thing, torch.nn.Module)
        for path, parameter in thing.named_parameters()
        if not shards.is_dtensor(parameter)
    ]


def _prepare(tracked: Tracked, saved: Any) -> dict[str, set[int]]:
    """Give the objects the modes and the groups of the state that they are to be filled with; by optimizer,
    of which of its parameters that has state. Raises RestoreError."""
    held: dict[str, set[int]] = {}
    try:
        trees = typed.decode(saved["objects"], lambda _: None) if _says(saved, "objects") else {}
        own = modes.names(tracked.objects)
        for name, thing in tracked.objects.items():
            tree = trees.get(name, {})
            if isinstance(thing, torch.nn.Module) and "modes" in tree:
                modes.apply(thing, tree["modes"], name)
            elif isinstance(thing, torch.optim.Optimizer):
                modes.regroup(thing, tree.get("parameters"), own, name)
                if isinstance(state_ := tree.get("state", {}).get("state"), dict):
                    held[name] = set(state_)
    except (typed.TypedDataError, LookupError, TypeError, AttributeError) as error:
        raise RestoreError(f"the checkpoint's plain data cannot be read: {error!r}") from error
    return held


def _load_cut(tracked: Tracked, resume: Resume, held: dict[str, set[int]]) -> None:
    for name, thing in tracked.objects.items():
        if isinstance(thing, torch.optim.Optimizer):
            materialise(thing, held.get(name))
    mine = tracked.flatten()
    tensors = dict(zip(mine.names, mine.given, strict=True))
    dcp = importlib.import_module("holdfast.dcp")
    with _reading(resume):
        header: bytes = dcp.load_into(tensors, resume.storage, resume.job, resume.checkpoint, resume.digest)
    entries, plain = transfer.read(header, f"checkpoint {resume.checkpoint}")
    names = [entry.name for entry in entries]
    _check_taken(tracked, names, tensors.keys())
    tracked.adopt_plain(names, plain, tensors)


def _check_taken(tracked: Tracked, names: list[str], mine: Collection[str]) -> None:
    """Raise RestoreError when the state has tensors of a module that this script's has not."""
    for name, thing in tracked.objects.items():
        if isinstance(thing, torch.nn.Module) and modes.is_live(thing, thing.state_dict()):
            more = [path for path in names if path.startswith(f"{name}.") and path not in mine]
            if more:
                raise RestoreError(f"the state has {more[0]}, which this {name} has not: another model?")


def materialise(optimizer: torch.optim.Optimizer, held: set[int] | None = None) -> None:
    """Have the optimizer make its state, by a step that changes nothing: no gradients but zeros, no rate; of
    these of its parameters, by default of all that want gradients.

    Its hooks are not called, and a gradient that is there stays."""
    parameters = list(parameters_of(optimizer))
    if optimizer.state:
        return
    gradients = [parameter.grad for parameter in parameters]
    rates = [group.get("lr") for group in optimizer.param_groups]
    values = [state.live(parameter).clone() for parameter in parameters]
    try:
        for index, parameter in enumerate(parameters):
            wanted = parameter.requires_grad if held is None else index in held
            parameter.grad = torch.zeros_like(parameter) if wanted else None
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
