"""What an agent vouches for, and that nobody adopts anything else: real sockets, real arenas."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import pytest

from agent.peers.blocks import SnapshotInfo, digests_of
from agent.peers.offer import newest
from agent.peers.vouching import digest_of
from controlplane.core.records import effects, events
from controlplane.core.records.model import Partner
from holdfast.ipc.arena import Arena, SlotState
from holdfast.ipc.skips import Skip
from tests.agent.peering import JOB, Side, read, values
from tests.agent.saving_support import Site
from tests.agent.support import AgentProcess, Leader, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MEMBER, REPLACEMENT = "job.1", "job.7"


async def copied(owner: Side, *partners: Side, step: int = 10) -> str:
    """Each partner keeps the owner's snapshot; what the owner vouches for."""
    owner.replicate(*((MEMBER, partner.peers.address) for partner in partners))
    owner.snapshot(MEMBER, values(step), step)
    for partner in partners:
        await partner.keeps(MEMBER, step)
    return owner.vouched(MEMBER, step)


async def alter(keeper: Side, *, step: int = 0) -> None:
    """A keeper changes one byte of a copy, and every digest of its own with it; or says that it is of another
    step. A permitted one can: its memory and its records are its own."""
    await keeper.peers.stop()
    record = keeper.paths.copies / f"{MEMBER}.json"
    content = json.loads(record.read_text())
    with Arena.open(keeper.paths.copies / f"{MEMBER}.arena", owner=True) as arena:
        (slot,) = (slot for slot in arena.slots if slot.state == SlotState.READY)
        writer = arena.begin(step or slot.step, slot.generation, released_step=1 << 60)
        assert not isinstance(writer, Skip) and writer.index != slot.index
        room = slot.data_bytes + slot.header_bytes + 4096
        writer.memory[:room] = arena.area(slot.index)[:room]
        if not step:
            writer.memory[1000] ^= 1
        writer.layout(slot.header, slot.data_bytes)
        made = writer.ready()
        content["copies"][0] |= {"step": step or slot.step, "digests": digests_of(made).hex()}
        arena.begin(slot.step, slot.generation, released_step=1 << 60)  # the honest one is gone
    record.write_text(json.dumps(content))
    await keeper.restart()


async def test_altered_bytes_are_refused_and_an_honest_copy_is_taken(base: Path) -> None:
    async with (
        Side(base, "a") as owner,
        Side(base, "b") as partner,
        Side(base, "d") as honest,
        Side(base, "c") as third,
    ):
        digest = await copied(owner, partner, honest)
        await alter(partner)
        assert [copy.digest for copy in partner.peers.copies()] == [digest], "it says what was vouched for"
        answer = await third.fetched(REPLACEMENT, MEMBER, 10, partner.peers.address, digest=digest)
        assert answer.altered
        assert f"{partner.peers.address} sent altered data" in answer.reason and "vouched" in answer.reason
        with Arena.open(third.paths.arena(REPLACEMENT)) as arena:
            assert not [slot for slot in arena.slots if slot.state == SlotState.READY], "no rank can see it"
        assert third.loaded == []
        answer = await third.fetched(REPLACEMENT, MEMBER, 10, honest.peers.address, digest=digest)
        assert (answer.reason, answer.altered) == ("", False)
        assert read(third.paths.arena(REPLACEMENT), 10) == read(owner.paths.arena(MEMBER), 10)


async def test_a_copy_that_is_offered_as_another_step_is_refused(base: Path) -> None:
    async with Side(base, "a") as owner, Side(base, "b") as partner, Side(base, "c") as third:
        digest = await copied(owner, partner)
        await alter(partner, step=398)
        assert partner.steps(MEMBER) == [398]
        answer = await third.fetched(REPLACEMENT, MEMBER, 398, partner.peers.address, digest=digest)
        assert answer.altered


async def test_what_this_node_keeps_itself_is_held_against_it_too(base: Path) -> None:
    async with Side(base, "a") as owner, Side(base, "b") as partner:
        digest = await copied(owner, partner)
        address = partner.peers.address
        assert not (await partner.fetched(REPLACEMENT, MEMBER, 10, address, digest=digest)).reason
        answer = await partner.fetched("job.8", MEMBER, 10, address, digest="0" * 64)
        assert answer.altered


async def test_what_a_member_left_is_held_against_it_too(base: Path) -> None:
    async with Side(base, "a") as left, Side(base, "b") as partner, Side(base, "c") as third:
        digest = await copied(left, partner)
        answer = await third.fetched(REPLACEMENT, MEMBER, 10, left.peers.address, digest=digest)
        assert answer.reason == ""


async def test_it_is_told_before_anybody_has_a_copy_and_kept_with_it(base: Path) -> None:
    async with Side(base, "a") as owner, Side(base, "b") as partner:
        digest = await copied(owner, partner)
        assert owner.told == [events.SnapshotVouched("a", 1, MEMBER, JOB, 1, 10, digest)]
        assert owner.peers.vouched() == owner.told, "for every new leader"
        await partner.restart()
        assert [copy.digest for copy in partner.peers.copies()] == [digest]
        await copied(owner, partner, step=20)
        assert [event.step for event in owner.peers.vouched()] == [10, 20]
        status = owner.members.pop(MEMBER)
        assert owner.peers.vouched() == [], "what this node forgot is nobody's to vouch for"
        owner.members[MEMBER] = status
        await copied(owner, partner, step=30)
        assert [event.step for event in owner.peers.vouched()] == [30]
        owner.peers.complete(effects.Complete("a", JOB, True, "done"))
        assert owner.peers.vouched() == []


async def test_an_older_agents_copy_is_vouched_for_when_its_next_one_speaks(base: Path) -> None:
    """What an agent of the version before has left is whole at its keeper, and nobody vouches for it."""
    async with Side(base, "a") as owner, Side(base, "b") as partner:
        digest = await copied(owner, partner)
        await partner.peers.stop()
        record = partner.paths.copies / f"{MEMBER}.json"
        content = json.loads(record.read_text())
        del content["owner"], content["copies"][0]["vouched"]
        record.write_text(json.dumps(content))
        await partner.restart()
        assert [copy.digest for copy in partner.peers.copies()] == [""]
        sent = owner.peers.counts["peer_sent_bytes"]
        owner.replicate((MEMBER, partner.peers.address))
        await until(lambda: [c.digest for c in partner.peers.copies()] == [digest], "the owner's word")
        assert owner.peers.counts["peer_sent_bytes"] == sent, "its bytes were there"


OTHERS: dict[str, Callable[[SnapshotInfo], SnapshotInfo]] = {
    "another job": lambda held: dataclasses.replace(held, job="other"),
    "another member": lambda held: dataclasses.replace(held, member="job.2"),
    "another shard": lambda held: dataclasses.replace(held, shard="s1"),
    "another step": lambda held: dataclasses.replace(held, step=398),
    "another generation": lambda held: dataclasses.replace(held, generation=9),
    "other sizes": lambda held: dataclasses.replace(
        held, data_bytes=held.data_bytes - 1, header_bytes=held.header_bytes + 1
    ),
}


@pytest.mark.parametrize("what", OTHERS)
async def test_a_digest_is_of_one_snapshot_of_one_member(base: Path, what: str) -> None:
    async with Side(base, "a") as owner:
        owner.snapshot(MEMBER, values(1), 10)
        offer = newest(owner.paths.arena(MEMBER), owner.members[MEMBER], 10)
        assert offer is not None
        digest = digest_of(offer.held, offer.memory)
        assert digest == digest_of(dataclasses.replace(offer.held, rank=5), offer.memory), (
            "ranks are numbered anew"
        )
        assert digest != digest_of(OTHERS[what](offer.held), offer.memory)
        offer.close()


async def test_an_agent_tells_every_leader_what_it_vouches_for(base: Path) -> None:
    async with Leader() as leader, Side(base, "b") as partner:
        agent = AgentProcess(base, f"127.0.0.1:{leader.port}", address="127.0.0.1")
        try:
            await leader.hello(1)
            await Site(agent, leader).keep(MEMBER, 2, 10)
            where = (Partner(MEMBER, "b", partner.peers.address),)
            await leader.order(effects.Replicate("n0", JOB, where))
            await leader.order(effects.Release("n0", JOB, 10))
            copy = await partner.keeps(MEMBER, 10)
            (vouched,) = leader.of(events.SnapshotVouched)
            assert (vouched.node, vouched.member, vouched.job, vouched.step) == ("n0", MEMBER, JOB, 10)
            assert vouched.digest == copy.digest
            leader.leave()
            leader.lead(2)
            await until(lambda: leader.of(events.SnapshotVouched) == [vouched, vouched], "the same, again")
        finally:
            await agent.end()
