"""Bring a process into a job whose ranks have finished elastic functions that it did not take part in.

All ranks of a generation agree on which functions are over before any state moves. A process that did not
know returns from those functions without running them, runs the script's code between them, and restores the
state in the function that runs. The others wait for it there."""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from holdfast.agreement import resharding, restore
from holdfast.errors import RestoreError, SessionError
from holdfast.groups.groups import carrier, gather_numbers
from holdfast.ipc.shm import ArenaError
from holdfast.state import functions

if TYPE_CHECKING:
    from holdfast.ipc.formation import Resume
    from holdfast.rank_state import RankState

_DIGEST_BYTES = 7


def agree(state: RankState, resume: Resume, *, entered: bool) -> tuple[bool, int]:
    """Agree among all ranks on which functions are over in the state that the generation restores.

    Returns two facts: whether some rank has not reached the running function yet; and the first rank that has
    restored a state of that function before, as this rank has if `entered` (-1: none has)."""
    known = state.functions
    text = max(known.text(), _found(state, resume), key=lambda each: len(functions.parse(each)))
    if state.world_size == 1:
        known.learn(text, resume.step)
        return False, 0 if entered else -1
    data = text.encode()
    absent = int(known.behind or len(known.finished) < len(functions.parse(text)))
    device = carrier(state.backend, state.device)
    row = [len(functions.parse(text)), len(data), absent, int(entered)]
    rows = gather_numbers(row, device, state.world_size)
    most = max(each[0] for each in rows)
    if any(each[0] < most for each in rows):
        giver = next(rank for rank, each in enumerate(rows) if each[0] == most)
        content = torch.zeros(rows[giver][1], dtype=torch.uint8, device=device)
        if giver == state.rank:
            content.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
        dist.broadcast(content, giver)
        text = bytes(content.cpu().tolist()).decode()
    known.learn(text, resume.step)
    first = next((rank for rank, each in enumerate(rows) if each[3]), -1)
    return any(each[2] or each[0] < most for each in rows), first


def _found(state: RankState, resume: Resume) -> str:
    """The finished functions in the header of the state, if this rank reads it; else ""."""
    # An error here is left to the restore, which reports it.
    with contextlib.suppress(ArenaError, OSError, ValueError, KeyError, RestoreError):
        if resume.reshard:
            return resharding.functions(resume)
        header = restore.header(state, resume)
        return str(json.loads(header)["state"].get("functions", "")) if header else ""
    return ""


@dataclass(frozen=True, slots=True)
class Agreed:
    """What the ranks agree on about their function's result.

    - `any`: some rank has a result that is not None.
    - `value`: the result as typed data; None if it is refused.
    - `refused`: why it is not kept; "": it is.
    - `kept`: some rank has taken a snapshot of the last state already, without the result."""

    any: bool
    value: Any
    refused: str
    kept: bool


def same_value(state: RankState, result: Any) -> Agreed:
    """Agree among all ranks of the generation on what their function has returned."""
    value, refused = functions.kept(result)
    words = json.dumps(value, sort_keys=True) + refused
    content = hashlib.blake2b(words.encode(), digest_size=_DIGEST_BYTES).digest()
    digest = int.from_bytes(content, "big")
    row = [int(result is not None), digest, int(state.newest_snapshot == (state.completed, state.generation))]
    rows = [row]
    if state.world_size > 1:
        rows = gather_numbers(row, carrier(state.backend, state.device), state.world_size)
    if not refused and any(each[1] != digest for each in rows):
        value, refused = None, "it differed between ranks"
    return Agreed(any(each[0] for each in rows), value, refused, any(each[2] for each in rows))


class Absent:
    """A hook on tracked modules of a function that this process did not take part in.

    Their parameters are not those that the function left, until the state of the running function is
    restored. Before that, a forward pass or `state_dict` of the module raises SessionError. Reading a
    parameter directly goes unnoticed."""

    def __init__(self, name: str, function: str) -> None:
        self._name, self._function = name, function

    def __call__(self, *_: Any) -> None:
        """Refuse the use of the module, unless the session itself looks at it."""
        if not _looking:
            raise SessionError(
                f"{self._name} does not have the state that {self._function} left: this process joined the "
                "job later and gets its state in the elastic function that is running. Use the trained "
                "model within an elastic function, or only `if not session.catching_up`"
            )


_looking: list[bool] = []
"""Not empty while the session itself looks at modules."""


@contextlib.contextmanager
def looking() -> Any:
    """Mark what is done within as the session's own doing, not the script's."""
    _looking.append(True)
    try:
        yield
    finally:
        _looking.pop()


def mark_absent(state: RankState, function: str) -> None:
    """Mark the tracked modules as not having the state that this function left."""
    for name, thing in state.tracked.objects.items():
        if isinstance(thing, torch.nn.Module):
            for module in thing.modules():
                if not _marks(module):
                    module.register_forward_pre_hook(Absent(name, function))
                    module.register_state_dict_pre_hook(Absent(name, function))  # type: ignore[no-untyped-call]


def lift(state: RankState) -> None:
    """Remove the marks: the state of the tracked modules is about to be restored."""
    for thing in state.tracked.modules:
        for module in thing.modules():
            for hooks, key in _marks(module):
                del hooks[key]


def _marks(module: torch.nn.Module) -> list[tuple[dict[int, Any], int]]:
    both = (module._forward_pre_hooks, module._state_dict_pre_hooks)
    return [(hooks, key) for hooks in both for key, hook in hooks.items() if isinstance(hook, Absent)]
