"""Run the steps since a snapshot again, on all ranks together, after their replicas were found to differ.

Collectives of a step need all ranks, so no rank can replay alone. All go back to the newest snapshot of this
generation that was taken while they agreed, each in its own arena, and call the script's declared step again
with the same samples and the same random numbers. They do so in their own places and, if the difference
comes again, also in each other's (`RankState.replayed_as`). The job goes back afterwards whatever comes of
it, so nothing of this is kept: no snapshot is taken, no sample counts, no number is reported. What the runs
prove is the coordinator's to say.

Every rank sees the same digests of all ranks after each run, so all decide alike which run is next."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.agreement.proof import NUMBERS, Proof
from holdfast.clean import gradients
from holdfast.errors import StateError
from holdfast.groups.groups import carrier, gather_numbers
from holdfast.ipc.arena import Arena, SlotState
from holdfast.ipc.formation import Resume
from holdfast.ipc.messages.replicas import DONE
from holdfast.replay import passes
from holdfast.replay.declared import DeclaredStep
from holdfast.snapshots import snapshot
from holdfast.state import shard_ids, sums
from holdfast.state.randomness import seed_step

if TYPE_CHECKING:
    from holdfast.data.streams import SampleStreams
    from holdfast.ipc.messages.replicas import Pass
    from holdfast.rank_state import RankState

STEPS_MAX = 1000
"""Steps from the snapshot to the comparison. They run two to five times while the job waits."""
_NONE = -1
log = logging.getLogger("holdfast.sdk")


@dataclass(slots=True)
class _Window:
    """Where the runs begin and end. `older`: a snapshot before `base`, to show that the function does what
    the script did; _NONE: there is none."""

    base: int
    end: int
    older: int
    found: list[Pass] = field(default_factory=list)


class _TooManyDifferError(Exception):
    """More ranks differ than a message can list. All ranks raise it alike."""


class StepReplay:
    """One rank's part of replays."""

    def __init__(self, state: RankState, streams: SampleStreams) -> None:
        self._state, self._streams = state, streams
        self._proof = Proof(state.tracked)
        self.declared = DeclaredStep(state)

    def refused(self) -> str:
        """Why this rank cannot replay its steps, as a code; "": as far as it knows it can."""
        state = self._state
        reasons = {
            "only_reported": not state.environment.corrupt_acts,
            "no_step_function": self.declared.function is None,
            "own_random": state.entry.seed is None,
            "carried_gradients": state.guard.carries,
            "own_loader": self._streams.consumed,
            "not_replicated": state.layout.dp != state.world_size or shard_ids.claimed(state.tracked),
            "no_snapshot": not state.snapshots.path,
        }
        return next((code for code, applies in reasons.items() if applies), "")

    def run(self, agreed_step: int) -> tuple[str, tuple[Pass, ...]]:
        """Replay the steps since the newest snapshot of `agreed_step` or before; all ranks call it.

        Returns DONE and what the runs gave, or why there was no replay. The tracked state is another one
        afterwards. Raises Interrupted, RestoreError, ArenaError, and what the script's function raises."""
        window = self._window(agreed_step)
        if isinstance(window, str):
            return window, ()
        state = self._state
        log.warning(
            "replicas differ: all ranks run the steps %d to %d again, to learn whether the script or a "
            "device did it",
            window.base,
            window.end - 1,
        )
        try:
            self._runs(window)
        except _TooManyDifferError:
            return "too_many", ()
        finally:
            state.completed, state.replayed_as = window.end, _NONE
        return DONE, tuple(window.found)

    def _runs(self, window: _Window) -> None:
        """Run what is needed to decide, and note what each run gave."""
        world, base, end = self._state.world_size, window.base, window.end
        seen = self._note(window, "seen")
        again = self._again(window, base, end, "again")
        if self._again(window, base, end, "again") != again:
            return
        if len(set(again)) > 1:
            for shift in range(1, min(world, 3)) if again == seen else ():
                self._again(window, base, end, "exchanged", shift)
        elif again[0] not in seen and window.older != _NONE:
            self._load(base)
            self._note(window, "kept")
            self._again(window, window.older, base, "before")

    def _window(self, agreed_step: int) -> _Window | str:
        """Where all ranks can begin; else why they cannot."""
        state = self._state
        held = sorted(self._held(agreed_step), reverse=True)[:2]
        own = [*held, *[_NONE] * (2 - len(held)), self.declared.since(), sums.signed(self._kinds())]
        rows = self._gather(own)
        common = set.intersection(*({step for step in row[:2] if step != _NONE} for row in rows))
        since = max(row[2] for row in rows)
        if len({row[3] for row in rows}) > 1 or any(row[3] == 0 for row in rows):
            return "not_replicated"
        if not common:
            return "no_snapshot"
        base, end = max(common), state.completed
        if since > base:
            return "left_function"
        if end - base > STEPS_MAX:
            return "too_long"
        older = max((step for step in common if step < base), default=_NONE)
        usable = older != _NONE and since <= older and base - older <= STEPS_MAX
        return _Window(base, end, older if usable else _NONE)

    def _held(self, agreed_step: int) -> list[int]:
        """The steps of the snapshots that this rank has taken in this generation and elastic function, while
        all agreed."""
        state = self._state
        with Arena.open(state.snapshots.path, touched=False) as arena:
            return [
                slot.step
                for slot in arena.slots
                if slot.state == SlotState.READY
                and slot.generation == state.generation
                and state.functions.base <= slot.step <= agreed_step
                and slot.shard == state.shard_id
            ]

    def _again(self, window: _Window, begin: int, end: int, kind: str, shift: int = 0) -> list[int]:
        """Run the steps [begin, end) as the rank `shift` places further. Returns what all ranks then hold."""
        state, function = self._state, self.declared.function
        assert function is not None and state.entry.seed is not None
        self._load(begin)
        state.replayed_as = (state.rank + shift) % state.world_size
        for step in range(begin, end):
            state.check_interrupted()
            state.completed = step
            state.progress.mark("evaluate")
            self._streams.begin(step)
            seed_step(state.entry.seed, state.step, state.seed_group)
            function()
            self._streams.end()
        state.completed, state.replayed_as = end, _NONE
        return self._note(window, kind, shift)

    def _load(self, step: int) -> None:
        """Go back to the snapshot of `step`: state, gradients and positions in the data."""
        state = self._state
        tracked = state.tracked
        tracked.at, tracked.random, tracked.data = state.layout, None, False
        snapshot.load(state.snapshots.path, step, tracked, state.generation, state.shard_id)
        tracked.random, tracked.began = None, False
        gradients.drop(tracked.modules)
        state.completed = step
        self._streams.restored(Resume("memory", step, state.rank, skip=state.skipped))

    def _note(self, window: _Window, kind: str, shift: int = 0) -> list[int]:
        """Note which state each rank holds now."""
        self._state.progress.mark("evaluate")
        digests = [sums.unsigned(row[0]) for row in self._gather([sums.signed(self._digest())])]
        found = passes.summed_up(kind, shift, digests)
        if found is None:
            raise _TooManyDifferError
        window.found.append(found)
        return digests

    def _digest(self) -> int:
        """A number of 64 bits for the state that this rank holds, without buffers: they may differ."""
        return sums.text(repr([number for pair in self._pairs() for number in pair]).encode())

    def _kinds(self) -> int:
        """A number for what this rank holds, whatever its bits are; 0: its state cannot be read."""
        try:
            return sums.text(repr([key for key, _ in self._pairs()]).encode())
        except StateError:
            return 0

    def _pairs(self) -> list[tuple[int, int]]:
        row = self._proof.sums(self._state.snapshots.plan())
        return [
            (row[at], row[at + 1])
            for start in range(0, len(row), NUMBERS)
            for at in range(start, start + NUMBERS - 2, 2)
        ]

    def _gather(self, numbers: list[int]) -> list[list[int]]:
        state = self._state
        return gather_numbers(numbers, carrier(state.backend, state.device), state.world_size)
