"""What is asked of a process's state where an elastic function is called again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from holdfast.clean.again.made_again import CalledAgain

if TYPE_CHECKING:
    from holdfast.clean.forgotten import ForgottenState
    from holdfast.state.tracked import TrackedState


def called_again(forgotten: ForgottenState, tracked: TrackedState, *, inside: bool = False) -> CalledAgain:
    """For rank 0 of two under an agent. `inside`: it tracks its objects in the function."""
    state: Any = SimpleNamespace(
        tracked=tracked,
        rank=0,
        world_size=2,
        completed=0,
        seed=0,
        agent=object(),
        entry=SimpleNamespace(tracks_inside=inside, first=-1),
        functions=SimpleNamespace(base=0),
    )
    return CalledAgain(state, forgotten)
