"""Decide, by what all ranks hold, which of its two slots each rank overwrites with its next snapshot.

Where ranks hold different parts of the state, a snapshot counts once every rank has it. The coordinator can
find that out and release the older slot; but with a snapshot after every step that costs it an order per step
and rank, and training would lose more steps while it is late or away. So the ranks tell each other, in the
exchange that precedes a snapshot, which steps their slots hold. **The newest step that all hold is kept by
all, and each overwrites its other slot.** A rank that dies in the middle of a copy costs no more than that.

The coordinator makes checkpoints of snapshots. It may begin one only from a step that is offered to it, and
says before which step it will begin none. Another step that is offered is kept by all until the coordinator
has answered (if it needs the step, an agent has begun to read it by then), or has not for `ANSWER_S`.
Meanwhile the ranks overwrite the newer slot again and again: a rank that dies in the middle of such a copy
costs the steps since the older one. They do so, too, while an agent reads the older slot of one of them.

Where other nodes keep copies, these are of offered steps only. **All keep the newest that has arrived
everywhere: the anchor.** A node that is lost takes along the copies that it kept, so what is whole after its
end is what all other ranks hold themselves. They overwrite the other slot. The next offered step becomes the
anchor once it was released to all and is owed by none; until then both are needed, and no snapshot is taken.
So that there is time for some, the next step is offered no sooner than the copies have taken once more. In a
new generation the slots of the earlier one stand for the anchor, until there is one.

If a rank has lost its slots (its arena was replaced), there may be no step that all hold, and none to lose.

All ranks see the same rows, so all decide alike. No clock: `now` is an argument, in s."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.ipc.skips import CopyState

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.ipc.agent_client import AgentOrders

NO_STEP = -1
NUMBERS = 3
"""Numbers per rank in the exchange: those of `Holding`."""
ANSWER_S = 10.0
"""So long an offered step is kept without an answer. A coordinator that is there needs a fraction of it; in a
cluster of thousands of nodes, the time until each has sent its next heartbeat: 5 s."""
PAUSES_S = (5.0, 20.0)
"""Without an answer: how long until a step is offered again, at first and at most. It doubles each time."""
LINGER_S = 1.0
"""After the answer an offered step is kept for so long: the agent may be about to read it."""
REPORTS_PER_S = 40
"""So many offers per second may all ranks of a job make: one leader hears them all, and answers each node.
With 800 ranks, every 20 s: a checkpoint that is due waits so long for its step."""
_NEWEST_KEPT, _OLDER_KEPT, _WAITS, _ALONE, _COPIED, _OWED, _NEWEST_RELEASED, _OLDER_RELEASED, _FORMER = (
    1 << place for place in range(9)
)


@dataclass(frozen=True, slots=True)
class Slots:
    """What a rank's arena holds of its generation: the steps of its READY slots (NO_STEP: none), and whether
    a reader keeps them. `former`: it holds a snapshot of an earlier generation. `copies`: how far those on
    other nodes are."""

    newest: int = NO_STEP
    older: int = NO_STEP
    newest_read: bool = False
    older_read: bool = False
    former: bool = False
    copies: CopyState = CopyState.NONE

    @classmethod
    def of(
        cls, ready: Iterable[tuple[int, bool]], *, former: bool = False, copies: CopyState = CopyState.NONE
    ) -> Slots:
        """From the step of each READY slot, and whether a reader keeps it."""
        none = (NO_STEP, False)
        newest, older = [*sorted(ready, reverse=True), none, none][:2]
        return cls(newest[0], older[0], newest[1], older[1], former, copies)


@dataclass(frozen=True, slots=True)
class Told:
    """What the coordinator has said: the newest step that it has released, up to which step it takes no
    snapshot for whole any more, and before which step it begins no checkpoint."""

    released: int = NO_STEP
    void: int = NO_STEP
    kept_from: int = 0

    @classmethod
    def by(cls, orders: AgentOrders) -> Told:
        """By the orders that this rank has from its agent."""
        return cls(orders.released_step, orders.void_step, orders.kept_from)


@dataclass(frozen=True, slots=True)
class Holding:
    """What one rank says that it holds, as numbers: the two steps, and bits.

    They say which of the steps it has to keep, and which is the newest released one; whether it would rather
    not offer another step yet; whether the ranks are to decide among themselves, since it holds a part of the
    state that no other rank is known to hold; whether other nodes are to keep copies, and are owed one; and
    whether it holds a snapshot of an earlier generation."""

    newest: int = NO_STEP
    older: int = NO_STEP
    bits: int = 0

    def holds(self, step: int) -> bool:
        """Whether one of its slots has this step."""
        return step != NO_STEP and step in (self.newest, self.older)

    @property
    def kept(self) -> tuple[int, ...]:
        """The steps that it has to keep."""
        steps = ((self.newest, _NEWEST_KEPT), (self.older, _OLDER_KEPT))
        return tuple(step for step, bit in steps if self.bits & bit)

    def released(self, step: int) -> bool:
        """Whether it holds this step, and was told that it is the newest that all are known to have. Of a
        rank without copies on other nodes that is not asked: it owes nobody any."""
        steps = ((self.newest, _NEWEST_RELEASED), (self.older, _OLDER_RELEASED))
        return not self.copied or any(step == held and self.bits & bit for held, bit in steps)

    @property
    def waits(self) -> bool:
        """Whether it would rather not offer another step yet."""
        return bool(self.bits & _WAITS)

    @property
    def copied(self) -> bool:
        """Whether other nodes are to keep copies of its snapshots."""
        return bool(self.bits & _COPIED)

    @property
    def owed(self) -> bool:
        """Whether its newest released snapshot is still on its way to them."""
        return bool(self.bits & _OWED)

    @property
    def former(self) -> bool:
        """Whether one of its slots holds a snapshot of an earlier generation."""
        return bool(self.bits & _FORMER)

    @property
    def alone(self) -> bool:
        """Whether the ranks are to decide among themselves for its sake."""
        return bool(self.bits & _ALONE)


def common(rows: Sequence[Holding]) -> int:
    """The newest step that all ranks hold; NO_STEP: there is none."""
    steps = (step for step in (rows[0].newest, rows[0].older) if all(row.holds(step) for row in rows))
    return max(steps, default=NO_STEP)


def to_keep(rows: Sequence[Holding], anchor: int = NO_STEP) -> int | None:
    """The step that all keep, while each overwrites its other slot; NO_STEP: they have none in common.

    None: both steps that all hold have to be kept. One that some rank lacks can never be restored, and need
    not be. `anchor`: a step that all hold, and keep in any case."""
    newest, kept = common(rows), kept_by_any(rows)
    if anchor != NO_STEP:
        return None if kept - {anchor} else anchor
    others = kept - {newest}
    if newest == NO_STEP or not others:
        return newest
    return None if newest in kept else others.pop()


def kept_by_any(rows: Sequence[Holding]) -> set[int]:
    """The steps that all ranks hold and one of them has to keep."""
    return {step for row in rows for step in row.kept if all(each.holds(step) for each in rows)}


def anchored(rows: Sequence[Holding], before: int) -> int:
    """The newest step that all hold, that was released to all, and of which no copy is owed; else the one
    `before`, while all hold it. NO_STEP: there is none, or no other node keeps copies."""
    held = [step for step in (rows[0].newest, rows[0].older) if all(row.holds(step) for row in rows)]
    if not any(row.copied for row in rows):
        return NO_STEP
    if not any(row.owed for row in rows):
        arrived = (step for step in held if all(row.released(step) for row in rows))
        before = max(before, max(arrived, default=NO_STEP))
    return before if before in held else NO_STEP


def _nothing_to_lose(rows: Sequence[Holding]) -> bool:
    """Whether those who hold any step of this generation hold two, with none in common: another rank has lost
    its slots. With only one, the other slot may hold a step of an earlier generation that is whole."""
    some = [row for row in rows if row.newest != NO_STEP]
    return bool(some) and all(row.older != NO_STEP for row in some)


def _is_leaving(rows: Sequence[Holding], anchor: int) -> bool:
    """Whether some rank's copies of a step that is not the anchor are being sent."""
    released = {step for row in rows for step in (row.newest, row.older) if row.copied and row.released(step)}
    return bool(released - {anchor, NO_STEP})


class LettingGo:
    """One rank's part in it."""

    def __init__(self) -> None:
        self._pause_s = PAUSES_S[0]
        self.restart()

    def restart(self) -> None:
        """A generation begins: its ranks hold nothing in common yet."""
        self.on = False
        """Whether the ranks decide among themselves. All switch it on at the same boundary, and only a new
        generation switches it off: the coordinator does not know the steps that were not offered."""
        self.keep = NO_STEP
        """The step that all ranks hold and keep; NO_STEP: the coordinator says which."""
        self.anchor = NO_STEP
        """The newest step that was released and has arrived at the nodes that keep copies."""
        self._kept_for_nodes = False  # the anchor, or what stands for it, is kept: other nodes keep copies
        self._full = False  # both slots are needed for that
        self._copied = False  # other nodes are to keep copies of this rank's snapshots
        self._copied_from = NO_STEP  # after which step copies of the next anchor began to leave
        self._rests_until = 0  # no step before this one is offered
        self._none_whole = False
        self._lacked = False  # the step that was offered last is not on all ranks, and never will be
        self.offer = NO_STEP
        """The coordinator is to be told of the first snapshot of this step or a later one, unless it has
        been."""
        self._offered, self._offered_at = NO_STEP, 0.0
        self._reserved = NO_STEP  # the offered step, if it was to be kept when the rows were exchanged last
        self._answered_at: float | None = None
        # No checkpoint will be made of it, by what was heard before the exchange.
        self._unneeded = False
        self._forced = NO_STEP  # the newest step that somebody waits for

    def row(
        self, slots: Slots, told: Told, *, completed: int, world_size: int, now: float, alone: bool = False
    ) -> Holding:
        """What this rank says after so many complete steps. `alone`: it holds a part of the state that no
        other rank is known to hold, and no other node keeps copies of it."""
        if not self.on:
            return Holding(bits=_ALONE * alone)
        self._hear(told, now)
        self._copied = slots.copies is not CopyState.NONE
        kept = self._reserved = self._offered if self._is_reserved(now) else NO_STEP
        wanted = {kept, told.released if self._copied and told.released != self.anchor else NO_STEP} - {
            NO_STEP
        }
        is_first_needed = self._offered < told.kept_from <= completed  # the coordinator waits for it
        waits = completed <= told.void or (not is_first_needed and self._waits(world_size, now))
        said = {
            _NEWEST_KEPT: slots.newest_read or slots.newest in wanted,
            _OLDER_KEPT: slots.older_read or slots.older in wanted,
            _WAITS: waits,
            _COPIED: self._copied,
            _OWED: slots.copies is CopyState.OWED,
            _NEWEST_RELEASED: self._copied and slots.newest == told.released != NO_STEP,
            _OLDER_RELEASED: self._copied and slots.older == told.released != NO_STEP,
            _FORMER: slots.former,
        }
        return Holding(slots.newest, slots.older, sum(bit for bit, holds in said.items() if holds))

    def learn(self, rows: Sequence[Holding], completed: int, *, offer: bool) -> bool:
        """Decide by the rows of all ranks, after so many complete steps. Returns whether each may overwrite a
        slot. `offer`: the step is one that a checkpoint may be made of. It is offered unless another slot is
        needed, too: then no snapshot could follow it."""
        if not self.on:
            return True
        if self._reserved != NO_STEP and not all(row.holds(self._reserved) for row in rows):
            self._lacked = True
        self._anchor(rows, completed)
        if self._kept_for_nodes and self.anchor == NO_STEP:  # what an earlier generation left is kept
            self.keep, self._full = NO_STEP, bool(kept_by_any(rows))
        else:
            found = to_keep(rows, self.anchor if self._kept_for_nodes else NO_STEP)
            self._full = found is None
            self.keep = found if found is not None else self.anchor if self._kept_for_nodes else common(rows)
        self._none_whole = not self.decides and _nothing_to_lose(rows)
        free = not any(row.waits or row.kept for row in rows) and completed >= self._rests_until
        if offer and free and (self.keep != NO_STEP or self._kept_for_nodes):
            self.offer = completed
        return not self._full

    def _anchor(self, rows: Sequence[Holding], completed: int) -> None:
        """Find out which step is the anchor, and whether one is to be kept."""
        before, self.anchor = self.anchor, anchored(rows, self.anchor)
        copied = any(row.copied for row in rows)
        if self.anchor > before and self._copied_from != NO_STEP:
            self._rests_until, self._copied_from = 2 * completed - self._copied_from, NO_STEP
        elif self._copied_from == NO_STEP and _is_leaving(rows, self.anchor):
            self._copied_from = completed
        former = common(rows) != NO_STEP and any(row.former for row in rows)
        self._kept_for_nodes = copied and (self.anchor != NO_STEP or former)

    @property
    def decides(self) -> bool:
        """Whether the ranks themselves have found out what may be overwritten, not the coordinator."""
        return self.keep != NO_STEP or self._none_whole or self._kept_for_nodes

    def limits(self, slots: Slots, told: Told, now: float) -> Told:
        """What `Arena.begin` is to go by, instead of what the coordinator has said, so that the slot is
        overwritten which may be."""
        if self._none_whole and slots.newest != NO_STEP:
            return Told(max(told.released, slots.newest), told.void)
        reserved = self._offered if self._is_reserved(now) else NO_STEP
        if self._kept_for_nodes and self._full:  # this snapshot is not agreed upon: the last one, say
            if max(told.released, reserved) >= slots.newest:
                return told  # the older one once the newer is released, and none before
        if self._kept_for_nodes and self.keep == NO_STEP and slots.newest != NO_STEP:
            return Told(min(told.released, slots.newest - 1), slots.newest)
        if self.keep not in (slots.newest, slots.older) or self.keep == NO_STEP:
            return told
        other = slots.older if self.keep == slots.newest else slots.newest
        if other == reserved != NO_STEP:
            return told
        return Told(self.keep, slots.newest if slots.newest > self.keep else NO_STEP)

    def is_offered(self, step: int) -> bool:
        """Whether the coordinator is told of the snapshot of this step."""
        coordinators = self.keep == NO_STEP and not self._kept_for_nodes
        return not self.on or coordinators or self._offered < self.offer <= step

    def force(self, step: int) -> None:
        """Offer this step in any case: somebody waits for a checkpoint of it."""
        self.offer = self._forced = step

    def offered(self, step: int, told: Told, now: float) -> None:
        """The coordinator was told of the snapshot of this step. `told`: what it has said before."""
        self._hear(told, now)
        unanswered = self._offered != NO_STEP and self._answered_at is None
        self._pause_s = min(2 * self._pause_s, PAUSES_S[1]) if unanswered else PAUSES_S[0]
        self._offered, self._offered_at, self._answered_at = step, now, None
        self._lacked = False
        self._hear(told, now)

    def _hear(self, told: Told, now: float) -> None:
        if told.released >= self._offered != NO_STEP and self._answered_at is None:
            self._answered_at = now
        self._unneeded = self._offered < told.kept_from and self._offered != self._forced
        self._lacked = self._lacked or told.released < self._offered <= told.void

    def _is_reserved(self, now: float) -> bool:
        if self._offered == NO_STEP or self._lacked:
            return False
        if self._answered_at is not None:
            return not self._unneeded and now < self._answered_at + LINGER_S
        return (self._copied or not self._unneeded) and now < self._offered_at + ANSWER_S

    def _waits(self, world_size: int, now: float) -> bool:
        """Whether the newest offer is too young for another one."""
        if self._offered == NO_STEP:
            return False
        if now < self._offered_at + world_size / REPORTS_PER_S:
            return True
        if self._lacked and self._answered_at is None:
            return False
        if self._answered_at is not None:  # where it was offered for copies only, these decide
            return not (self._copied and self._unneeded) and now < self._answered_at + LINGER_S
        return now < self._offered_at + ANSWER_S + self._pause_s
