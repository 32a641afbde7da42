"""Where other nodes keep copies, one step stays whole whichever node is lost, and whenever."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from holdfast.ipc.skips import CopyState
from holdfast.snapshots.letting_go import NO_STEP, Holding, LettingGo, Slots, Told, anchored, to_keep

NEWEST_KEPT, OLDER_KEPT, COPIED, OWED, NEWEST_RELEASED, OLDER_RELEASED = 1, 2, 16, 32, 64, 128
ARRIVED, ON_ITS_WAY = COPIED | NEWEST_RELEASED, COPIED | OWED | NEWEST_RELEASED
EVERY = 4
"""Steps between two that may be offered."""


@pytest.mark.parametrize(
    ("rows", "before", "after"),
    [
        ([Holding(20, 19), Holding(20, 19)], NO_STEP, NO_STEP),  # no other node keeps copies
        ([Holding(20, 10, COPIED), Holding(20, 10, COPIED)], 10, 10),
        ([Holding(20, 10, ARRIVED), Holding(20, 10, ARRIVED)], 10, 20),
        ([Holding(20, 10, ARRIVED), Holding(20, 10, ON_ITS_WAY)], 10, 10),
        ([Holding(20, 10, ARRIVED), Holding(20, 10, COPIED)], 10, 10),  # one has not heard of its release
        ([Holding(20, 10, ARRIVED), Holding(20, 10)], 10, 20),  # of one, others hold the same part
        ([Holding(21, 20, COPIED | OLDER_RELEASED), Holding(21, 20, COPIED | OLDER_RELEASED)], NO_STEP, 20),
        ([Holding(20, 10, ARRIVED), Holding(10, NO_STEP, COPIED)], 10, 10),
        ([Holding(20, 10, COPIED), Holding(20, NO_STEP, COPIED)], 10, NO_STEP),  # one has a new arena
    ],
)
def test_the_anchor_is_the_newest_step_that_has_arrived_everywhere(
    rows: list[Holding], before: int, after: int
) -> None:
    assert anchored(rows, before) == after == anchored(rows[::-1], before)


@pytest.mark.parametrize(
    ("rows", "keep"),
    [
        ([Holding(21, 10), Holding(21, 10)], 10),  # 21 is overwritten by 22
        ([Holding(21, 10), Holding(10, 9)], 10),
        ([Holding(20, 10, NEWEST_KEPT), Holding(20, 10)], None),  # both: no snapshot is taken
        ([Holding(20, 10, OLDER_KEPT), Holding(20, 10)], 10),
        ([Holding(20, 10, NEWEST_KEPT), Holding(10, 9)], 10),  # 20 is not on all: it is of no use
    ],
)
def test_the_anchor_is_kept_in_any_case(rows: list[Holding], keep: int | None) -> None:
    assert to_keep(rows, 10) == keep


@dataclass(eq=False)
class Rank:
    """A rank on a node, its two slots, and the two that its partner keeps for it."""

    node: int
    partner: int
    letting_go: LettingGo = field(default_factory=LettingGo)
    generation: int = 1
    slots: list[tuple[int, int]] = field(default_factory=list)  # generation, step
    copies: list[tuple[int, int]] = field(default_factory=list)
    told: Told = field(default_factory=Told)
    pushes: tuple[int, int] | None = None  # on its way to the partner
    state: CopyState = CopyState.NONE

    @property
    def steps(self) -> Slots:
        own = [(step, (generation, step) == self.pushes) for generation, step in self.slots
               if generation == self.generation]  # fmt: skip
        return Slots.of(own, former=len(own) < len(self.slots), copies=self.state)

    def row(self, completed: int, ranks: int, now: float) -> Holding:
        return self.letting_go.row(self.steps, self.told, completed=completed, world_size=ranks, now=now)

    def free(self, now: float) -> bool:
        """Give up the slot that `Arena.begin` would take. False: there is none."""
        if len(self.slots) < 2:
            return True
        told, (older, newer) = self.letting_go.limits(self.steps, self.told, now), sorted(self.slots)
        if newer[1] <= told.released:
            chosen = older
        elif newer[0] < self.generation or newer[1] <= told.void:
            chosen = newer
        else:
            return False
        if chosen == self.pushes:
            return False
        self.slots.remove(chosen)
        return True

    def hear(self, released: int) -> None:
        """Its agent hears of a release: the newest snapshot up to it is to be copied."""
        self.told = Told(max(released, self.told.released))
        found = max((slot for slot in self.slots if slot[1] <= released), default=None)
        if self.pushes is None and found is not None and found not in self.copies:
            self.pushes, self.state = found, CopyState.OWED
            self.copies = sorted(self.copies)[-1:]

    def arrive(self) -> None:
        if self.pushes is not None:
            self.copies.append(self.pushes)
        self.pushes, self.state = None, CopyState.SETTLED


class Job:
    """Ranks that hold different parts, and a coordinator."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        nodes, per_node = self.rng.choice((2, 3)), self.rng.choice((1, 2))
        self.ranks = [Rank(node, (node + 1) % nodes) for node in range(nodes) for _ in range(per_node)]
        self.nodes, self.now, self.step, self.generation, self.last = nodes, 0.0, 0, 1, NO_STEP
        self.best = (0, NO_STEP)
        self.begin()

    def begin(self) -> None:
        for rank in self.ranks:
            rank.generation = self.generation
            rank.letting_go.restart()
            rank.letting_go.on = True
            rank.told = Told(min(rank.told.released, self.step))

    def begin_anew(self) -> None:
        """Go back to the newest state, as a coordinator that hears of all slots does."""
        self.step, self.generation = max(self.whole()[1], 0), self.generation + 1
        steps = [{step for _, step in rank.slots if step <= self.step} for rank in self.ranks]
        self.begin()
        self.last = max(set.intersection(*steps), default=NO_STEP)
        for rank in self.ranks:
            rank.hear(self.last)

    def whole(self, lost: int = -1) -> tuple[int, int]:
        """The newest state of which every part is left when this node is lost (-1: none is)."""
        left = []
        for rank in self.ranks:
            here = rank.slots if rank.node != lost else []
            left.append({*here, *(rank.copies if rank.partner != lost else [])})
        return max(set.intersection(*left), default=(0, NO_STEP))

    def outlives(self) -> tuple[int, int]:
        """The newest state that is left whichever node is lost."""
        return min(self.whole(node) for node in range(self.nodes))

    def boundary(self, fails: float) -> bool:
        """Agree on a snapshot and take it. Returns whether all have it."""
        self.step, self.now = self.step + 1, self.now + self.rng.choice((0.05, 0.5))
        rows = [rank.row(self.step, len(self.ranks), self.now) for rank in self.ranks]
        go = {rank.letting_go.learn(rows, self.step, offer=self.step % EVERY == 0) for rank in self.ranks}
        parts = [rank.letting_go for rank in self.ranks]
        assert len(go) == len({(part.keep, part.anchor, part.offer) for part in parts}) == 1
        owed = any(rank.state is CopyState.OWED for rank in self.ranks)
        blocked = owed and not parts[0].decides  # as `SnapshotTurns` has it
        made = [rank for rank in self.ranks if go == {True} and not blocked and rank.free(self.now)]
        made = [rank for rank in made if self.rng.random() >= fails]
        for rank in made:
            rank.slots.append((self.generation, self.step))
            if rank.letting_go.is_offered(self.step):
                rank.letting_go.offered(self.step, rank.told, self.now)
        return len(made) == len(self.ranks)

    def release(self) -> None:
        """Have the coordinator release an offered step that all hold."""
        offers = {rank.letting_go.offer for rank in self.ranks}
        found = [step for step in offers if all((self.generation, step) in rank.slots for rank in self.ranks)]
        self.last = max(self.last, *found, NO_STEP)

    def turn(self, *, away: bool = False, fails: float = 0.0) -> bool:
        """A step, and what the agents do meanwhile. Returns whether all have a snapshot of it.

        At every moment what all keep is whole, and nothing that outlives any node is lost."""
        made, best, rng = self.boundary(fails), self.best, self.rng
        assert self.outlives() >= best, (self.step, best)
        assert self.whole()[1] >= self.ranks[0].letting_go.keep, "nobody overwrites what all keep"
        if not away:
            self.release()
        for rank in rng.sample(self.ranks, len(self.ranks)):
            if rng.random() < 0.5 and not away:
                rank.hear(self.last)
                assert self.outlives() >= best, (self.step, best)
            if rng.random() < 0.3 and rank.pushes is not None:
                rank.arrive()
        self.best = max(best, self.outlives())
        return made


@pytest.mark.parametrize("seed", range(40))
def test_what_is_left_of_a_job_that_loses_a_node_never_grows_older(seed: int) -> None:
    """Copies to other nodes take their time; copies into slots fail; the coordinator comes and goes."""
    job, away_until = Job(seed), 0.0
    for _ in range(200):
        if job.rng.random() < 0.005:
            away_until = job.now + job.rng.choice((5.0, 30.0))
        job.turn(away=job.now < away_until, fails=0.01)
    made = 0
    while job.step < 400:
        made += job.turn()
    assert job.best[1] >= 300, "new copies have come"
    assert made > 60, "and snapshots between them"


@pytest.mark.parametrize("seed", range(30))
def test_a_new_generation_keeps_what_the_one_before_has_left_until_it_has_an_anchor(seed: int) -> None:
    """All ranks live on: they have left one generation, at any moment, and form the next."""
    job = Job(seed)
    for _ in range(12):
        for _ in range(job.rng.randrange(1, 40)):
            job.turn(fails=0.01)
        job.begin_anew()
        assert job.outlives() >= job.best
    assert job.best[1] > 0
