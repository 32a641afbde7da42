"""What is asked of a process's state where an elastic function is called again."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from holdfast.clean.again.made_again import CalledAgain

if TYPE_CHECKING:
    from holdfast.clean.forgotten import ForgottenState
    from holdfast.state.tracked import TrackedState


@dataclass
class Entry:
    """How the function is entered. `tracks_inside`: it tracks its objects itself. `first`: the first rank
    that has been there before; -1: none has."""

    tracks_inside: bool = False
    first: int = -1


def called_again(forgotten: ForgottenState, tracked: TrackedState, entry: Entry | None = None) -> CalledAgain:
    """For rank 0 of two under an agent."""
    state: Any = SimpleNamespace(
        tracked=tracked,
        rank=0,
        world_size=2,
        completed=0,
        seed=0,
        agent=object(),
        entry=entry or Entry(),
        functions=SimpleNamespace(base=0),
    )
    return CalledAgain(state, forgotten)
