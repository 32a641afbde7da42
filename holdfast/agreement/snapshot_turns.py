"""Agree, at the end of a step, whether all ranks take a snapshot now, and how often from then on.

A snapshot counts once every rank has it. If one rank has no free slot at the moment (the coordinator has not
released the older one yet, or the agent reads it) and the others take theirs, they hold a step that can never
become whole, and have no free slot themselves until the coordinator voids it. So each rank says beforehand
what stands in its way for the moment, and either all take this snapshot or none does.

Where a rank holds a part of the state that no other rank holds, they do not wait for the coordinator, which
releases slots otherwise: each says which steps it holds, and what they hold in common tells them which slot
to overwrite (`snapshots.letting_go`).

One thing stands in the way for the sake of the others: a rank whose newest released snapshot is still on its
way to the nodes that keep copies. If its node is lost, what is there is the step before, and the others must
not have overwritten theirs.

What does not pass by itself (no shared memory, a state that cannot be read) does not keep the others back:
where every rank holds the whole state, their snapshots are worth having without it.

The numbers travel with those that prove the ranks' equality, or alone at boundaries where nothing is
compared. All ranks see the same numbers, so all decide alike."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from holdfast.ipc.skips import Skip, SkipKind
from holdfast.snapshots import letting_go
from holdfast.snapshots.letting_go import Holding, Told
from holdfast.state import shard_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.rank_state import RankState

NUMBERS = 3 + letting_go.NUMBERS
"""Numbers per rank: a code of what stands in the way (0: nothing), the steps between two snapshots that it
would choose (0: it cannot say yet), how long the exchange before this one took (us; 0: there was none), and
its `Holding`."""
log = logging.getLogger("holdfast.sdk")
_SHARED = {
    SkipKind.UNRELEASED: "its newest snapshot is not known to be ready on all ranks yet",
    SkipKind.BEING_READ: "the agent still reads its older snapshot",
    SkipKind.UNCOPIED: "its newest snapshot has not arrived at the nodes that keep copies yet",
    SkipKind.BEING_FILLED: "the agent is bringing a snapshot into its arena",
}
"""What keeps all ranks from a snapshot: it passes by itself, and the next boundary may be better."""
_DECIDED = (SkipKind.UNRELEASED, SkipKind.BEING_READ)
"""What does not, where the ranks know themselves what they hold."""
_ALL_NEEDED = Skip(SkipKind.BEING_READ, "both snapshots that all ranks hold are still needed")


def _skip(rank: int, kind: SkipKind) -> Skip:
    return Skip(kind, f"rank {rank}: {_SHARED[kind]}")


class SnapshotTurns:
    """One rank's part in the agreement."""

    def __init__(self, state: RankState) -> None:
        self._state = state
        self._refused: tuple[int, Skip] | None = None  # after how many complete steps, and why
        self._exchange_us = 0

    @property
    def refused(self) -> Skip | None:
        """Why no rank takes a snapshot at this boundary; None: each may try."""
        if self._refused is not None and self._refused[0] == self._state.completed:
            return self._refused[1]
        return None

    def begin(self) -> None:
        """A generation begins: forget what was agreed upon."""
        self._refused, self._exchange_us = None, 0
        self._state.spacing.restart()
        self._state.letting_go.restart()

    def numbers(self) -> list[int]:
        """What this rank says at this boundary."""
        state = self._state
        alone = state.world_size == 1 or state.shard_id not in ("", shard_ids.WHOLE)
        decide = state.environment.ranks_release or state.spacing.automatic
        orders = state.agent.orders if state.agent is not None else None
        row = state.letting_go.row(
            state.snapshots.slots(state.generation),
            Told.by(orders) if orders is not None else Told(),
            completed=state.completed,
            world_size=state.world_size,
            now=time.monotonic(),
            alone=alone and decide,
        )
        return [
            self._obstacle(),
            state.spacing.proposal(),
            self._exchange_us,
            row.newest,
            row.older,
            row.bits,
        ]

    def learn(self, rows: Sequence[Sequence[int]], seconds: float) -> None:
        """Decide by the numbers of all ranks, by rank, which took `seconds` to exchange."""
        holdings = [Holding(*row[3:]) for row in rows]
        if skip := self._decide(holdings, [row[0] for row in rows]):
            self._refused = (self._state.completed, skip)
        # The rank that came last has waited for nobody.
        if shortest_us := min(row[2] for row in rows):
            self._state.spacing.exchange_took(shortest_us / 1e6)
        self._exchange_us = max(1, int(seconds * 1e6))
        self._choose([row[1] for row in rows], alone=any(row.alone for row in holdings))

    def _decide(self, rows: Sequence[Holding], codes: Sequence[int]) -> Skip | None:
        """Why no rank takes a snapshot; None: each may try."""
        state = self._state
        offer = state.spacing.due_in_any_case(state.completed)
        go = state.letting_go.learn(rows, state.completed, offer=offer)
        skips = [_skip(rank, SkipKind(code)) for rank, code in enumerate(codes) if code]
        if not go:  # the reason is where copies are on their way, if they are anywhere
            return next((skip for skip in skips if skip.kind is SkipKind.UNCOPIED), _ALL_NEEDED)
        decided = _DECIDED if state.letting_go.decides else ()
        return next((skip for skip in skips if skip.kind not in decided), None)

    def _obstacle(self) -> int:
        state, agent = self._state, self._state.agent
        if agent is None or agent.orders.arena is not agent.arena_taken:
            return 0  # a new arena has free slots
        orders = agent.orders
        skip = state.snapshots.obstacle(state.generation, orders.released_step, orders.void_step)
        return skip.kind.value if skip is not None and skip.kind in _SHARED else 0

    def _choose(self, proposals: Sequence[int], *, alone: bool) -> None:
        """Choose how often snapshots are taken. A rank says that it is alone until the ranks decide."""
        state = self._state
        alone = alone or state.letting_go.on
        news = state.spacing.choose(proposals, state.completed, alone=alone)
        state.letting_go.on = alone
        if news and state.rank == 0:
            log.info("%s", news)
            state.spacing.tell(news)
