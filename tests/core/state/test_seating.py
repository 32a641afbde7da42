"""The rank sets of a job against a look at all of its members, whatever happens to them, in any order."""

from __future__ import annotations

import random

import pytest

from controlplane.core.records.model import (
    Cause,
    Failure,
    Generation,
    MemberPhase,
    MemberStatus,
    Placement,
    Resume,
    Role,
    Tier,
)
from controlplane.core.state.delivery_log import ROOM, DeliveryLog
from controlplane.core.state.job import Job
from controlplane.core.state.member import Member
from tests.core.make import spec

FAILURE = Failure(Cause.SIGNALED, "killed by signal 9", signal=9)


class Life:
    """A job of some ranks to which things happen by chance."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.job = Job(spec())
        self.names = 0
        self.sit()

    def member(self, rank: int) -> Member:
        self.names += 1
        node = f"n{self.chance.randrange(4)}"
        return self.job.add(Member(f"j.{self.names}", "j", node, Role.RANK, rank))

    def sit(self) -> None:
        newcomers = [self.member(rank) for rank in range(self.chance.randrange(1, 7))]
        self.job.sit([Placement(mb.rank, mb.name, mb.node, 0) for mb in newcomers])

    def put(self) -> None:
        member = self.member(self.chance.randrange(len(self.job.seats)))
        self.job.seating.put(Placement(member.rank, member.name, member.node, 1), member)
        self.job.changed(member)

    def turn(self) -> None:
        number = (self.job.generation.number if self.job.generation else 0) + self.chance.randrange(1, 3)
        self.job.turn(Generation("j", number, 1, self.job.seats, "h:1", "", Resume(Tier.FRESH, 0), ""))

    def change(self) -> None:
        member, chance = self.chance.choice(list(self.job.members.values())), self.chance
        member.status = chance.choice((None, *[self.status(member) for _ in range(4)]))
        member.failure = chance.choice((None, None, FAILURE))
        member.done, member.started = chance.random() < 0.2, chance.randrange(6)
        member.entered = chance.randrange(6)
        self.job.changed(member)

    def status(self, member: Member) -> MemberStatus:
        return MemberStatus(
            member.name, "j", self.chance.choice(list(MemberPhase)), generation=self.chance.randrange(6),
            failure=self.chance.choice((None, FAILURE)), no_room=self.chance.choice(("", "", "no memory")),
        )  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_the_rank_sets_are_what_a_look_at_all_would_find(seed: int) -> None:
    life = Life(seed)
    for _ in range(120):
        life.chance.choices((life.change, life.put, life.turn, life.sit), (12, 3, 2, 1))[0]()
        if life.chance.random() < 0.7:  # what is noted late is noted all the same
            life.job.seating.check()
            dead = [mb.name for mb in life.job.seated() if mb.dead]
            assert [mb.name for mb in life.job.dead()] == dead
            nodes = list(dict.fromkeys(seat.node for seat in life.job.seats))
            assert list(life.job.seat_nodes()) == nodes
            assert {mb.name for mb in life.job.members.values() if mb.dead and mb.alive} == set(
                life.job.zombies
            )


def test_a_rank_set_that_missed_a_change_is_found_out() -> None:
    job = Life(1).job
    job.seating.check()
    job.seated()[0].failure = FAILURE
    with pytest.raises(AssertionError, match="a rank set is kept wrongly"):
        job.seating.check()


def test_what_a_node_was_sent_is_forgotten_with_its_stream_and_with_time() -> None:
    sent = DeliveryLog()
    for number in range(10 * ROOM):
        sent.put(("interrupt", "a", str(number)), float(number), stale=number - 5.0)
    assert len(sent) <= ROOM
    assert sent.renew(("form", "7"), ("a", "b"), 200.0, 1.0, 0.0) == (["a", "b"], 200.0)
    assert sent.renew(("form", "7"), ("a", "b", "c"), 200.5, 1.0, 0.0) == (["c"], 200.0)
    sent.forget("a")
    assert sent.renew(("form", "7"), ("a", "b", "c"), 200.5, 1.0, 0.0) == (["a"], 200.0)
    assert ("form", "b", "7") in sent and ("interrupt", "a", "159") not in sent
