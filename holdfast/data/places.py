"""Keep the positions of iterable streams: one state for every boundary that training may go back to.

That is the newest one, and the one at which the guard keeps the state: while gradients are carried from step
to step it lies many steps back. What lies between is given up, and asking for it is an error: a state of
another step would repeat or skip samples without a word."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import SessionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.data.contract import Held


class Places:
    """The states of all iterable streams, by seed and completed steps."""

    def __init__(self) -> None:
        self._states: dict[int, dict[int, Held | None]] = {}  # None: it was consumed, and no state is left

    def hold(self, seed: int, step: int, held: Held) -> None:
        """Where a stream stands with so many completed steps."""
        self._states.setdefault(seed, {})[step] = held

    def hear(self, seed: int, step: int, held: Held) -> None:
        """Take over a position from a state's header, which knows of none before it."""
        self._states[seed] = {0: None, step: held}

    def at(self, seed: int, step: int) -> tuple[int, Held] | None:
        """The newest state of a stream that is not newer than this step, and of which step it is; None: the
        stream has not begun by then. Raises SessionError when that state is not kept any more."""
        states = self._states.get(seed, {})
        found = max((known for known in states if known <= step), default=-1)
        if found < 0:
            return None
        held = states[found]
        if held is None:
            raise SessionError(
                f"the iterable stream with seed {seed} was consumed before step {step}, and where it stood "
                "there is not kept any more: go on from a checkpoint (run the same command again)"
            )
        return found, held

    def told(self, step: int) -> Iterator[tuple[int, int, Held]]:
        """For each stream that has begun, its seed and what `at` returns. Raises SessionError."""
        for seed in self._states:
            found = self.at(seed, step)
            if found is not None:
                yield seed, *found

    def trim(self, anchor: int, now: int) -> None:
        """`now` steps are completed, and training may go back to step `anchor`: let go of the rest, of what
        was to come as well, for it comes again."""
        for states in self._states.values():
            kept = {max((known for known in states if known <= step), default=-1) for step in (anchor, now)}
            before = -1
            for known in sorted(states):
                if known > now or (known not in kept and before >= 0 and states[before] is None):
                    del states[known]
                    continue
                if known not in kept:
                    states[known] = None
                before = known
