"""Read this rank's state from a checkpoint: its own shard if it is there, else its part of another layout.

From another layout only DTensors can be cut again, and what is equal on all ranks can be read. Names are
those of snapshot headers. An optimizer's state must exist before it can be filled, so `materialise` makes
it."""

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
    from holdfast.state.tracked import TrackedState


def load(tracked: TrackedState, resume: Resume) -> str:
    """Fill the tracked objects with this rank's part of the checkpoint.

    Returns what is taken from another rank instead ("buffers"); "" if nothing is. Raises RestoreError;
    SessionError if the checkpoint cannot be resharded to this layout at all."""
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
    return "buffers" if any(_field(found, "scattered") for found in saved.states.values()) else ""


def functions(resume: Resume) -> str:
    """The finished elastic functions that the checkpoint records, as in a header. Raises RestoreError."""
    with _reading(resume):
        return max((str(_field(each, "functions") or "") for each in _saved(resume).states.values()), key=len)


def _saved(resume: Resume) -> Any:
    # Loaded here, because it needs fsspec: a rank that does not reshard never loads that.
    own = importlib.import_module("holdfast.dcp.own")
    return own.saved(resume.storage, resume.job, resume.checkpoint, resume.digest)


@contextmanager
def _reading(resume: Resume) -> Iterator[None]:
    """Turn what a storage or a checkpoint may raise into RestoreError."""
    try:
        yield
    except (OSError, LookupError, ValueError, RuntimeError) as error:
        if isinstance(error, SessionError):
            raise
        raise RestoreError(f"checkpoint {resume.checkpoint} of {resume.job}: {error}") from error


def _own_shard(tracked: TrackedState, saved: dict[str, Any]) -> str:
    """The id of the saved shard that is exactly this rank's; "" if its part must be cut from all shards.

    Raises SessionError if that is impossible."""
    shard, plain_parts = shard_ids.of(tracked), shard_ids.claimed(tracked) or shard_ids.staged(tracked.at)
    tracked.scattered = True
    apart = shard_ids.of(tracked)
    tracked.scattered = shard not in saved and apart in saved
    if tracked.scattered:
        return apart
    if shard in saved:
        return shard if plain_parts else ""
    older = shard_ids.older(tracked)
    named = [name for found in saved.values() for name in _field(found, "own") or ()]
    if named := shard_ids.claimed(tracked) or named:
        raise SessionError(
            f"{', '.join(dict.fromkeys(named))}: state that is not the same on all ranks (per_rank=True or "
            "shard=...) was saved by ranks of another layout, and the checkpoint has no part for rank "
            f"{tracked.at.rank} of {tracked.at.world_size}. Only DTensors can be resharded: use the "
            "number of ranks and the shard names that it was saved with"
        )
    if older not in saved and (found := _plain_parameters(tracked)) and shard_ids.staged(tracked.at):
        raise SessionError(
            f"{found[0]} is a plain tensor of one pipeline stage or tensor-parallel part, and the checkpoint "
            "was saved with other sizes. Only DTensors can be resharded: use the sizes it was saved with"
        )
    return ""


def _field(state_: Any, key: str) -> Any:
    """A value in a shard's plain data, None if absent."""
    return state_.get(key) if isinstance(state_, dict) else None


def _plain_parameters(tracked: TrackedState) -> list[str]:
    return [
        f"{name}.{path}"
        for name, thing in tracked.objects.items()
        if isinstance(thing, torch.nn.Module)
        for path, parameter in thing.named_parameters()
        if not shards.is_dtensor(parameter)
    ]


def _prepare(tracked: TrackedState, saved: Any) -> dict[str, set[int]]:
    """Give the objects the modes and parameter groups of the saved state, before they are filled.

    Returns for each optimizer which of its parameters have saved state. Raises RestoreError."""
    held: dict[str, set[int]] = {}
    try:
        trees = typed.decode(saved["objects"], lambda _: None) if _field(saved, "objects") else {}
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


def _load_cut(tracked: TrackedState, resume: Resume, held: dict[str, set[int]]) -> None:
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


def _check_taken(tracked: TrackedState, names: list[str], mine: Collection[str]) -> None:
    """Raise RestoreError if the state has tensors of a module that this script's module does not have."""
    for name, thing in tracked.objects.items():
        if isinstance(thing, torch.nn.Module) and modes.is_live(thing, thing.state_dict()):
            more = [path for path in names if path.startswith(f"{name}.") and path not in mine]
            if more:
                raise RestoreError(
                    f"the state has {more[0]}, which this script's {name} does not have; is it another model?"
                )


def materialise(optimizer: torch.optim.Optimizer, held: set[int] | None = None) -> None:
    """Make an optimizer create its state, with a step that changes nothing: all gradients zero, learning rate
    0.

    `held`: the indices of the parameters that get state; None: all that require gradients. Hooks are not
    called, gradients and values are put back. Does nothing if there is state already."""
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
    """Step without hooks: they might count steps or change other state."""
    before, after = optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks
    kept = dict(before), dict(after)
    before.clear()
    after.clear()
    try:
        optimizer.step()
    finally:
        before.update(kept[0])
        after.update(kept[1])
