"""Copies of snapshots in other nodes' memory: real sockets, real arenas."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from agent.peers.offer import Offer, newest
from agent.peers.push import Pushes
from agent.peers.threads import nice_pool
from controlplane.core.records import effects
from controlplane.core.records.model import Partner, PeerCopy
from holdfast.ipc.arena import Arena
from holdfast.ipc.layout import SlotLayoutError
from holdfast.ipc.shm import HEADER_ALIGN_BYTES, align
from holdfast.ipc.skips import CopyState, SkipKind
from tests.agent.peering import CHUNK, JOB, LARGE, Side, header, read, values
from tests.agent.support import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

MEMBER = "job.1"
SMALL = 1 << 20
"""Bytes of a tensor where nothing depends on how large it is: a crowded machine copies it in time, too."""


@contextlib.asynccontextmanager
async def pushing(owner: Side, *, linger_s: float) -> AsyncIterator[Pushes]:
    """The pushes of this side's members, with another patience."""

    def offer(member: str, _job: str, step: int) -> Offer | None:
        return newest(owner.paths.arena(member), owner.members[member], step)

    with nice_pool(1, "test") as pool:
        count, vouch = (lambda _kind, _number: None), (lambda _held: None)
        pushes = Pushes(
            offer, pool, 5.0, 0, count, vouch=vouch, show=lambda _member, _copies: None, linger_s=linger_s
        )
        yield pushes
        await pushes.stop()


async def test_a_released_snapshot_is_copied_whole(base: Path) -> None:
    async with Side(base, "a") as owner, Side(base, "b") as partner:
        owner.replicate((MEMBER, partner.peers.address))
        owner.snapshot(MEMBER, values(1), 10, rank=3, shard="s1")
        copy = await partner.keeps(MEMBER, 10)
        assert copy == PeerCopy(MEMBER, JOB, 3, "s1", 10, 1, owner.vouched(MEMBER, 10))
        assert partner.copy(MEMBER, 10) == read(owner.paths.arena(MEMBER), 10)
        assert owner.peers.copies() == ()


def owes(side: Side, released_step: int) -> bool:
    with Arena.open(side.paths.arena(MEMBER)) as arena:
        obstacle = arena.obstacle(1, released_step=released_step)
    return obstacle is not None and obstacle.kind is SkipKind.UNCOPIED


def shown(side: Side) -> CopyState:
    with Arena.open(side.paths.arena(MEMBER)) as arena:
        return arena.copies


def read_by_nobody(side: Side) -> bool:
    with Arena.open(side.paths.arena(MEMBER)) as arena:
        return not any(slot.pins for slot in arena.slots)


async def sent(side: Side, count: int) -> None:
    """Wait until this side has heard of so many copies that they arrived. Whatever then keeps the event loop,
    which both sides have in common, leaves no answer unread until it is too late."""
    await until(lambda: side.peers.counts["peer_copies_sent"] == count, "the owner to hear of it")


async def test_a_rank_sees_that_its_newest_snapshot_is_not_there_yet(base: Path) -> None:
    """Until then its peers must keep the step before: if its node is lost, its copies are of that step."""
    async with Side(base, "a") as owner, Side(base, "b") as partner:
        owner.replicate((MEMBER, partner.peers.address))
        owner.snapshot(MEMBER, values(1), 10)
        await partner.keeps(MEMBER, 10)
        await until(lambda: read_by_nobody(owner))
        owner.snapshot(MEMBER, values(2), 20)
        assert owes(owner, 20)
        await partner.keeps(MEMBER, 20)
        await until(lambda: not owes(owner, 20))
        assert shown(owner) is CopyState.SETTLED
        owner.replicate()
        assert shown(owner) is CopyState.NONE, "no other node is to keep any"


async def test_a_partner_that_is_not_reached_keeps_no_rank_from_its_snapshots(base: Path) -> None:
    async with Side(base, "a") as owner:
        async with Side(base, "b") as partner:
            owner.replicate((MEMBER, partner.peers.address))
            owner.snapshot(MEMBER, values(1), 10)
            await partner.keeps(MEMBER, 10)
        await until(lambda: read_by_nobody(owner))
        owner.snapshot(MEMBER, values(2), 20)
        assert owes(owner, 20)
        await until(lambda: not owes(owner, 20))
        owner.snapshot(MEMBER, values(3), 30)
        assert not owes(owner, 30), "the newest try has failed: nobody waits for the next one"


async def test_an_arena_that_is_damaged_hinders_no_release(
    base: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Side(base, "a") as owner, Side(base, "b") as partner:
        owner.replicate((MEMBER, partner.peers.address))
        owner.paths.arena(MEMBER).write_bytes(b"no arena")
        owner.peers.release(effects.Release(owner.name, JOB, 20))
        assert f"{MEMBER} is not shown how far copies of its snapshot are" in caplog.text


async def test_a_spoilt_header_leaves_the_slot_free(base: Path) -> None:
    """A slot that stays pinned is never written again: its rank would have no room for the next snapshot."""
    async with Side(base, "a") as owner:
        owner.snapshot(MEMBER, values(1), 10)
        path = owner.paths.arena(MEMBER)
        with Arena.open(path) as arena:
            (slot,) = (slot for slot in arena.slots if slot.step == 10)
            start = align(slot.data_bytes, HEADER_ALIGN_BYTES)
            with arena.area(slot.index) as memory:
                memory[start : start + slot.header_bytes] = b"x" * slot.header_bytes
            with pytest.raises(SlotLayoutError):
                newest(path, owner.members[MEMBER], 10)
            assert [found.pins for found in arena.slots if found.step == 10] == [0]


async def test_only_changed_chunks_travel(base: Path) -> None:
    async with Side(base, "a") as owner, Side(base, "b") as partner:
        owner.replicate((MEMBER, partner.peers.address))
        sent: list[int] = []
        for step, seed in ((10, 1), (20, 2), (30, 2)):
            owner.snapshot(MEMBER, values(seed), step)
            await partner.keeps(MEMBER, step)
            sent.append(owner.peers.counts["peer_sent_bytes"] - sum(sent))
            assert partner.copy(MEMBER, step) == read(owner.paths.arena(MEMBER), step)
        head = len(header(values(1), 10)[0])
        assert sent[0] >= 2 * LARGE
        assert LARGE < sent[1] <= LARGE + CHUNK  # `w`, and the chunk that ends with `b`
        assert sent[2] == head  # the header alone: it tells the step
        assert partner.steps(MEMBER) == [20, 30]


async def test_a_snapshot_that_is_not_released_stays(base: Path) -> None:
    async with Side(base, "a") as owner, Side(base, "b") as partner:
        owner.snapshot(MEMBER, values(2), 20)
        owner.snapshot(MEMBER, values(1), 10)
        owner.replicate((MEMBER, partner.peers.address))
        await partner.keeps(MEMBER, 10)
        assert partner.steps(MEMBER) == [10]


async def test_a_new_agent_adopts_what_the_old_one_kept(base: Path) -> None:
    async with Side(base, "a") as owner, Side(base, "b") as partner:
        owner.replicate((MEMBER, partner.peers.address))
        for step in (10, 20):
            owner.snapshot(MEMBER, values(step), step)
            await partner.keeps(MEMBER, step)
        before = partner.peers.copies()
        (partner.paths.copies / "torn.7.arena").write_bytes(b"no arena")
        (partner.paths.copies / "half.8.json").write_text('{"v": 1, "copies": [{}]}')
        (partner.paths.copies / "notes.json").write_text("somebody's")
        await partner.restart()
        assert partner.peers.copies() == before
        assert partner.copy(MEMBER, 20) == read(owner.paths.arena(MEMBER), 20)
        assert {path.name for path in partner.paths.copies.iterdir()} == {
            "job.1.arena",
            "job.1.json",
            "notes.json",
        }
        sent = owner.peers.counts["peer_sent_bytes"]
        owner.replicate((MEMBER, partner.peers.address))  # the same snapshot: the new agent has it
        owner.snapshot(MEMBER, values(20), 30)
        await partner.keeps(MEMBER, 30)
        assert owner.peers.counts["peer_sent_bytes"] - sent < 4096


async def test_a_new_owner_agent_finds_its_copies_there(base: Path) -> None:
    async with Side(base, "a") as owner, Side(base, "b") as partner:
        owner.replicate((MEMBER, partner.peers.address))
        owner.snapshot(MEMBER, values(1), 10)
        await partner.keeps(MEMBER, 10)
        await owner.restart()
        owner.replicate((MEMBER, partner.peers.address))
        owner.peers.release(effects.Release("a", JOB, 10))
        await until(lambda: owner.peers.counts["peer_copies_sent"], "the copy to be found")
        assert owner.peers.counts["peer_sent_bytes"] == 0


async def test_two_owners_keep_their_copies_at_one_partner(base: Path) -> None:
    async with Side(base, "a") as first, Side(base, "c") as second, Side(base, "b") as partner:
        for number, owner in enumerate((first, second), 1):
            owner.replicate((f"job.{number}", partner.peers.address))
            owner.snapshot(f"job.{number}", values(number), 10, rank=number, shard=f"s{number}")
        for number, owner in enumerate((first, second), 1):
            await partner.keeps(f"job.{number}", 10)
            assert partner.copy(f"job.{number}", 10) == read(owner.paths.arena(f"job.{number}"), 10)


async def test_a_former_partner_keeps_its_copy_until_the_next_has_one(base: Path) -> None:
    async with Side(base, "a") as owner, Side(base, "b") as first, Side(base, "c") as second:
        owner.replicate((MEMBER, first.peers.address))
        owner.snapshot(MEMBER, values(1), 10)
        await first.keeps(MEMBER, 10)
        owner.replicate((MEMBER, second.peers.address))
        await second.keeps(MEMBER, 10)
        await until(lambda: not first.peers.copies(), "the former partner's drop")
        assert list(first.paths.copies.iterdir()) == []


async def test_a_replaced_member_is_kept_until_its_successor_is_there(base: Path) -> None:
    async with Side(base, "a") as owner, Side(base, "b") as partner:
        owner.replicate((MEMBER, partner.peers.address))
        owner.snapshot(MEMBER, values(1), 10)
        await partner.keeps(MEMBER, 10)
        owner.replicate(("job.2", partner.peers.address))
        assert partner.steps(MEMBER) == [10]
        owner.snapshot("job.2", values(2), 20, generation=2)
        await partner.keeps("job.2", 20, 2)
        await until(lambda: not partner.steps(MEMBER), "the drop of the replaced member's copy")


async def test_an_owner_without_partners_leaves_its_copies_a_while(base: Path) -> None:
    async with Side(base, "a") as owner, Side(base, "b") as partner, pushing(owner, linger_s=0.3) as pushes:
        pushes.replicate(JOB, (Partner(MEMBER, "b", partner.peers.address),))
        owner.snapshot(MEMBER, values(1), 10)
        pushes.release(JOB, 10)
        await partner.keeps(MEMBER, 10)
        pushes.replicate(JOB, ())
        assert partner.steps(MEMBER) == [10]
        await until(lambda: not partner.peers.copies(), "the drop, later")


async def test_what_the_leader_wants_no_more_goes(base: Path) -> None:
    """A dead node's copies: nobody else would tell its keeper to drop them."""
    async with Side(base, "a") as owner, Side(base, "d") as dead, Side(base, "b") as partner:
        dead.replicate(("job.9", partner.peers.address))
        dead.snapshot("job.9", values(9), 10, rank=1, shard="s2")
        await partner.keeps("job.9", 10)
        owner.replicate((MEMBER, partner.peers.address))
        owner.snapshot(MEMBER, values(1), 20, generation=2)
        await partner.keeps(MEMBER, 20, 2)
        partner.peers.discard(effects.Discard("b", JOB, ("job.9", "job.10", "other.1")))
        await until(lambda: not partner.steps("job.9"), "the end of what is of no use")
        assert partner.steps(MEMBER) == [20]


async def test_a_copy_under_an_unused_name_removes_no_other(base: Path) -> None:
    """Whoever leaves a copy says of which generation it is: nobody else's copies go by that word."""
    async with Side(base, "a") as owner, Side(base, "x") as other, Side(base, "b") as partner:
        owner.replicate((MEMBER, partner.peers.address), ("job.2", partner.peers.address))
        for shard, member in (("all", MEMBER), ("s2", "job.2")):
            owner.snapshot(member, values(1), 10, shard=shard)
            await partner.keeps(member, 10)
        other.replicate(("job.99", partner.peers.address))
        for step in (398, 399):
            other.snapshot("job.99", values(step), step, generation=9)
            await partner.keeps("job.99", step, 9)
        assert partner.steps(MEMBER) == [10] and partner.steps("job.2") == [10]


async def test_the_end_of_a_job_ends_its_copies(base: Path) -> None:
    async with Side(base, "a") as owner, Side(base, "b") as told, Side(base, "c") as untold:
        owner.replicate((MEMBER, told.peers.address), (MEMBER, untold.peers.address))
        owner.snapshot(MEMBER, values(1), 10)
        for side in (told, untold):
            await side.keeps(MEMBER, 10)
        for side in (owner, told):
            side.peers.complete(effects.Complete(side.name, JOB, True, "done"))
        for side in (told, untold):  # one by the coordinator, the other by the owner
            await until(lambda side=side: not side.peers.copies(), "the end of the copies")  # type: ignore[misc]
            assert list(side.paths.copies.iterdir()) == []


async def test_a_state_that_grows_gets_a_larger_arena(base: Path) -> None:
    async with Side(base, "a") as owner, Side(base, "b") as partner:
        owner.replicate((MEMBER, partner.peers.address))
        owner.snapshot(MEMBER, values(1, nbytes=SMALL), 10)
        await partner.keeps(MEMBER, 10)
        await sent(owner, 1)
        before = (partner.paths.copies / f"{MEMBER}.arena").stat().st_size
        owner.paths.arena(MEMBER).unlink()
        owner.snapshot(MEMBER, values(1, nbytes=4 * SMALL), 20)
        await partner.keeps(MEMBER, 20)
        await sent(owner, 2)
        assert partner.copy(MEMBER, 20) == read(owner.paths.arena(MEMBER), 20)
        assert (partner.paths.copies / f"{MEMBER}.arena").stat().st_size > 2 * before
        await partner.restart()
        assert partner.steps(MEMBER) == [20]
        assert owner.peers.counts["peer_copies_failed"] == 0
