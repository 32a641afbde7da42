"""Ranks that agree on what they overwrite always hold one step in common, whoever dies and whenever."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from holdfast.snapshots.letting_go import (
    ANSWER_S,
    LINGER_S,
    NO_STEP,
    PAUSES_S,
    Holding,
    LettingGo,
    Slots,
    Told,
    common,
    to_keep,
)

NEWEST_KEPT, OLDER_KEPT, WAITS = 1, 2, 4
EVERY = 4
"""Steps between two snapshots that may be offered."""


@pytest.mark.parametrize(
    ("rows", "newest", "keep"),
    [
        ([Holding(11, 10), Holding(11, 10)], 11, 11),
        ([Holding(11, 10), Holding(10, 9)], 10, 10),  # one has not made its last one
        ([Holding(11, 10), Holding(10)], 10, 10),
        ([Holding(11), Holding(10)], NO_STEP, NO_STEP),
        ([Holding(), Holding(10, 9)], NO_STEP, NO_STEP),  # one has a new arena
        ([Holding(11, 10, OLDER_KEPT), Holding(11, 10)], 11, 10),  # step 10 is read, or offered
        ([Holding(11, 10, NEWEST_KEPT), Holding(11, 10)], 11, 11),
        ([Holding(11, 10, NEWEST_KEPT), Holding(11, 10, OLDER_KEPT)], 11, None),
        ([Holding(11, 10, OLDER_KEPT), Holding(11)], 11, 11),  # 10 is not on all: it is of no use
        ([Holding(12, 10, OLDER_KEPT), Holding(12, 11, OLDER_KEPT)], 12, 12),
    ],
)
def test_what_all_keep(rows: list[Holding], newest: int, keep: int | None) -> None:
    assert common(rows) == newest and to_keep(rows) == keep


@dataclass(eq=False)
class Rank:
    """One rank's two slots, as `Arena.begin` hands them out, and its part in the agreement."""

    letting_go: LettingGo = field(default_factory=LettingGo)
    steps: list[int] = field(default_factory=list)
    pinned: set[int] = field(default_factory=set)
    released: int = NO_STEP
    kept_from: int = 0

    @property
    def slots(self) -> Slots:
        return Slots.of((step, step in self.pinned) for step in self.steps)

    def row(self, ranks: int, now: float, completed: int = 1 << 30) -> Holding:
        told = Told(self.released, kept_from=self.kept_from)
        return self.letting_go.row(self.slots, told, completed=completed, world_size=ranks, now=now)

    def free(self, now: float) -> bool:
        """Take the slot that may be overwritten, as the arena would. False: there is none."""
        if len(self.steps) < 2:
            return True
        told = self.letting_go.limits(self.slots, Told(self.released, kept_from=self.kept_from), now)
        older, newer = sorted(self.steps)
        chosen = older if newer <= told.released else newer if newer <= told.void else None
        if chosen is None or chosen in self.pinned:
            return False
        self.steps.remove(chosen)
        return True


def whole(ranks: list[Rank]) -> int:
    return max(set.intersection(*(set(rank.steps) for rank in ranks)), default=NO_STEP)


@pytest.mark.parametrize("seed", range(60))
def test_a_step_stays_whole_at_every_moment_and_is_the_last(seed: int) -> None:
    """Copies end in any order, fail, and are never begun; agents read slots; the coordinator comes and
    goes."""
    rng, now = random.Random(seed), 0.0
    ranks = [Rank(steps=[0]) for _ in range(rng.choice((1, 2, 3, 5)))]
    for rank in ranks:
        rank.letting_go.on = True
    best, lags, away_until, last = 0, [], 0.0, NO_STEP
    for step in range(1, 120):
        now += rng.choice((0.05, 0.5))
        if rng.random() < 0.02:
            away_until = now + 60.0
        rows = [rank.row(len(ranks), now) for rank in ranks]
        go = {rank.letting_go.learn(rows, step, offer=step % EVERY == 0) for rank in ranks}
        assert len(go) == 1 and len({rank.letting_go.keep for rank in ranks}) == 1, "all decide alike"
        assert ranks[0].letting_go.keep >= best, "what was whole and kept is kept until a newer one is"
        best = ranks[0].letting_go.keep
        offers = {rank.letting_go.offer for rank in ranks}
        assert len(offers) == 1, "all offer the same"
        made = []
        for rank in rng.sample(ranks, len(ranks)):
            if go == {True} and rank.free(now):
                assert best in rank.steps
                made.append(rank)
        assert whole(ranks) >= best, "whoever dies now has it in his arena"
        failed = [rank for rank in made if rng.random() < 0.01]  # its slot is given back
        for rank in made:
            if rank not in failed:
                rank.steps.append(step)
                if rank.letting_go.is_offered(step):
                    rank.letting_go.offered(step, Told(rank.released), now)
        if not failed:
            lags.append(step - whole(ranks))
        (offer,) = offers
        if offer != last and now >= away_until and all(offer in rank.steps for rank in ranks):
            last = offer
            for rank in ranks:
                rank.released = offer  # a checkpoint is begun from it
            for rank in rng.sample(ranks, rng.randrange(len(ranks) + 1)):
                rank.pinned = {offer}
        elif rng.random() < 0.1:
            for rank in ranks:
                rank.pinned = set()
    assert set(lags) == {0}, "where every copy succeeds, the newest step is whole"


def test_an_offered_step_is_kept_until_the_coordinator_has_answered_and_a_moment_longer() -> None:
    rank = Rank(steps=[0])
    rank.letting_go.on = True

    def turn(step: int, now: float) -> list[int]:
        assert rank.letting_go.learn([rank.row(1, now)], step, offer=step % EVERY == 0)
        assert rank.free(now)
        rank.steps.append(step)
        if rank.letting_go.is_offered(step):
            rank.letting_go.offered(step, Told(rank.released), now)
        return sorted(rank.steps)

    assert [turn(step, step / 10) for step in range(1, 5)][-1] == [3, 4]  # 4 is offered
    assert [turn(step, step / 10) for step in range(5, 9)][-1] == [4, 8], "8 is not offered: 4 waits"
    rank.released = 4
    assert turn(9, 0.9) == [4, 9]
    assert turn(10, 1.0 + LINGER_S) == [9, 10], "4 is let go of"
    assert turn(12, 2.2) == [10, 12] and rank.letting_go.offer == 12


def test_an_offered_step_is_not_kept_if_it_is_known_that_no_checkpoint_is_made_of_it() -> None:
    rank = Rank(steps=[3, 4])
    rank.letting_go.on = True
    rank.letting_go.offered(4, Told(), 0.0)
    rank.released, rank.kept_from = 4, 8
    assert rank.row(1, 0.1, completed=5) == Holding(4, 3, WAITS), "the next offer waits a moment"
    for step in (5, 8):
        rank.letting_go.offered(step, Told(4, kept_from=8), 2.0)
        rank.steps = [step - 1, step]
        assert rank.row(1, 2.1).kept == ((8,) if step == 8 else ()), "a checkpoint may be made of 8"


def test_the_first_step_of_which_a_checkpoint_may_be_made_is_offered_at_once() -> None:
    rank = Rank(steps=[6, 7])
    rank.letting_go.on = True
    rank.letting_go.offered(6, Told(), 0.0)
    rank.released, rank.kept_from = 6, 8
    assert rank.row(400, 0.1, completed=7).waits, "ranks of a large job offer seldom"
    assert not rank.row(400, 0.1, completed=8).waits
    rank.letting_go.offered(8, Told(6, kept_from=8), 0.2)
    assert rank.row(400, 0.3, completed=9).waits


def test_a_step_that_somebody_waits_for_is_kept_although_the_coordinator_did_not_know_of_that_yet() -> None:
    rank = Rank(steps=[3, 4])
    rank.letting_go.on = True
    rank.letting_go.force(4)
    rank.letting_go.offered(4, Told(), 0.0)
    rank.released, rank.kept_from = 4, 8
    assert rank.row(1, 0.1).kept == (4,)
    assert rank.row(1, 0.2 + LINGER_S).kept == ()


def test_a_coordinator_that_is_away_is_not_waited_for() -> None:
    rank = Rank(steps=[0, 4])
    rank.letting_go.on = True
    rank.letting_go.offered(4, Told(NO_STEP), 0.0)
    assert rank.row(1, ANSWER_S - 0.1) == Holding(4, 0, NEWEST_KEPT | WAITS)
    assert rank.row(1, ANSWER_S + 0.1) == Holding(4, 0, WAITS)
    assert rank.row(1, ANSWER_S + PAUSES_S[0] + 0.1) == Holding(4, 0, 0), "it may be back"
    rank.letting_go.offered(8, Told(NO_STEP), 20.0)
    assert rank.row(1, 20.0 + ANSWER_S + 2 * PAUSES_S[0] - 0.1).waits, "it is offered less often"
    rank.letting_go.offered(12, Told(8), 60.0)
    assert not rank.row(1, 60.0 + ANSWER_S + PAUSES_S[0] + 0.1).waits, "it has answered once"


def test_without_an_answer_the_next_offer_waits_although_the_step_is_gone() -> None:
    rank = Rank(steps=[3, 4])
    rank.letting_go.on = True
    rank.letting_go.offered(4, Told(), 0.0)
    for step in range(5, 8):
        now = ANSWER_S + step / 10
        assert rank.letting_go.learn([rank.row(1, now)], step, offer=True) and rank.free(now)
        rank.steps.append(step)
    assert rank.steps == [6, 7] and rank.letting_go.offer == NO_STEP
    assert rank.row(1, ANSWER_S + PAUSES_S[0] - 0.1).waits


def test_many_ranks_offer_seldom() -> None:
    rank = Rank(steps=[4])
    rank.letting_go.on = True
    rank.letting_go.offered(4, Told(4), 0.0)
    assert rank.row(4_000, 99.9).waits and not rank.row(4_000, 100.1).waits


def test_with_nothing_in_common_there_is_nothing_to_lose() -> None:
    """A rank has got a new arena."""
    ranks = [Rank(steps=[3, 4]), Rank()]
    for rank in ranks:
        rank.letting_go.on = True
    rows = [rank.row(2, 1.0) for rank in ranks]
    assert all(rank.letting_go.learn(rows, 5, offer=False) for rank in ranks)
    assert all(rank.letting_go.decides and rank.free(1.0) for rank in ranks)
    assert ranks[0].steps == [4]


def test_a_slot_of_an_earlier_generation_is_left_to_the_coordinator() -> None:
    rank = LettingGo()
    rank.on = True
    assert rank.learn([Holding(8), Holding(7, 6)], 9, offer=False)
    assert not rank.decides and rank.limits(Slots(8), Told(5), 1.0) == Told(5)


def test_before_the_first_snapshot_of_a_generation_the_coordinator_decides() -> None:
    rank = LettingGo()
    rank.on = True
    rows = [Holding(), Holding(8)]  # the slots of an earlier generation may hold all that there is
    assert rank.learn(rows, 8, offer=True)
    assert not rank.decides and rank.is_offered(8)
    assert rank.limits(Slots(8), Told(5, 6), 1.0) == Told(5, 6)
    rank.restart()
    row = rank.row(Slots(8, 7), Told(0), completed=9, world_size=2, now=1.0)
    assert row == Holding(), "it takes no part any more"


def test_a_step_that_never_becomes_whole_is_not_waited_for() -> None:
    rank = Rank(steps=[3, 4])
    rank.letting_go.on = True
    rank.letting_go.offered(4, Told(), 0.0)
    assert rank.row(1, 0.1).bits == NEWEST_KEPT | WAITS
    rank.letting_go.learn([rank.row(2, 0.1), Holding(3, 2)], 5, offer=False)
    assert rank.row(2, 0.2).bits == 0, "another rank has no snapshot of it"
    rank.letting_go.offered(8, Told(), 1.0)
    row = rank.letting_go.row(Slots(8, 7), Told(void=10), completed=9, world_size=1, now=1.1)
    assert row.bits == WAITS, "the coordinator takes none up to step 10"
    row = rank.letting_go.row(Slots(10, 9), Told(void=10), completed=11, world_size=1, now=1.2)
    assert row.bits == 0
