"""Keep the positions of iterable streams: one state for each boundary that training may return to.

Those are the newest boundary, and the one at which the guard keeps the state, which may be many steps back
while gradients are carried. States in between are forgotten. Asking for one is an error, because the state of
another step would silently repeat or skip samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import SessionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.data.contract import StreamPosition


class StreamPositions:
    """The states of all iterable streams, by seed and completed steps."""

    def __init__(self) -> None:
        # By seed, then completed steps. None: consumed, and forgotten.
        self._states: dict[int, dict[int, StreamPosition | None]] = {}

    def __bool__(self) -> bool:
        return bool(self._states)

    def hold(self, seed: int, step: int, held: StreamPosition) -> None:
        """Keep the position of a stream after `step` completed steps."""
        self._states.setdefault(seed, {})[step] = held

    def adopt(self, seed: int, step: int, held: StreamPosition) -> None:
        """Take over a position from a state's header, which knows of no earlier one."""
        self._states[seed] = {0: None, step: held}

    def at(self, seed: int, step: int) -> tuple[int, StreamPosition] | None:
        """The newest state of a stream up to `step`, and the step it belongs to; None: the stream had not
        begun.

        Raises SessionError if that state was forgotten."""
        states = self._states.get(seed, {})
        found = max((known for known in states if known <= step), default=-1)
        if found < 0:
            return None
        held = states[found]
        if held is None:
            raise SessionError(
                f"the iterable stream with seed {seed} was consumed before step {step}, and its position at "
                "that step is no longer kept: continue from a checkpoint (run the same command again)"
            )
        return found, held

    def positions(self, step: int) -> Iterator[tuple[int, int, StreamPosition]]:
        """For each stream that has begun by `step`: seed, step and state, as in `at`. Raises SessionError."""
        for seed in self._states:
            found = self.at(seed, step)
            if found is not None:
                yield seed, *found

    def trim(self, anchor: int, now: int) -> None:
        """Forget states that are not needed, with `now` completed steps and a possible return to step
        `anchor`.

        States after `now` are forgotten too: they will be made again."""
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
