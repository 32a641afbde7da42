"""Copies that come back: bit for bit into a member's arena, or not at all."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from agent.peers.blocks import CHUNK_BYTES
from controlplane.core.records import effects
from holdfast.ipc.arena import Arena, SlotState
from tests.agent.peering import JOB, Side, read, values, write
from tests.agent.support import until

if TYPE_CHECKING:
    from pathlib import Path

MEMBER, REPLACEMENT = "job.1", "job.7"


def everything(base: Path) -> list[Path]:
    return sorted(base.rglob("*"))


async def copied(owner: Side, partner: Side, *steps: int) -> None:
    """The partner keeps the owner's snapshots of these steps."""
    owner.replicate((MEMBER, partner.peers.address))
    for step in steps:
        owner.snapshot(MEMBER, values(step), step)
        await partner.keeps(MEMBER, step)


async def test_a_copy_comes_back_bit_for_bit(base: Path) -> None:
    async with Side(base, "a") as owner, Side(base, "b") as partner, Side(base, "c") as third:
        await copied(owner, partner, 10, 20)
        for step in (20, 10):
            assert await third.fetch(REPLACEMENT, MEMBER, step, partner.peers.address) == ""
            assert read(third.paths.arena(REPLACEMENT), step) == read(owner.paths.arena(MEMBER), step)
        assert third.loaded == [REPLACEMENT, REPLACEMENT]


async def test_what_a_member_left_is_given_to_another_node(base: Path) -> None:
    """Its rank is gone from this node, and no partner keeps a copy: its arena is all there is."""
    async with Side(base, "a") as left, Side(base, "c") as third:
        for step in (10, 20):
            left.snapshot(MEMBER, values(step), step)
        for step in (20, 10):
            assert await third.fetch(REPLACEMENT, MEMBER, step, left.peers.address) == ""
            assert read(third.paths.arena(REPLACEMENT), step) == read(left.paths.arena(MEMBER), step)
        reason = await third.fetch(REPLACEMENT, MEMBER, 30, left.peers.address)
        assert f"snapshot 30 of {MEMBER}" in reason and f"snapshot 10 of {MEMBER} (generation 1)" in reason
        del left.members[MEMBER]
        assert "it has no snapshot of it" in await third.fetch("job.8", MEMBER, 20, left.peers.address)
        with Arena.open(left.paths.arena(MEMBER)) as arena:
            assert not any(slot.pins for slot in arena.slots), "what was given is not held any longer"


async def test_what_this_agent_keeps_itself_needs_no_network(base: Path) -> None:
    async with Side(base, "a") as owner, Side(base, "b") as partner:
        await copied(owner, partner, 10)
        assert await partner.fetch(REPLACEMENT, MEMBER, 10, partner.peers.address) == ""
        assert read(partner.paths.arena(REPLACEMENT), 10) == read(owner.paths.arena(MEMBER), 10)
        assert partner.peers.counts["peer_given_bytes"] == 0


async def test_a_fetch_goes_into_the_arena_that_the_rank_has(base: Path) -> None:
    async with Side(base, "a") as owner, Side(base, "b") as partner, Side(base, "c") as third:
        await copied(owner, partner, 10)
        write(third.paths.arena(REPLACEMENT), values(5), 5)
        with Arena.open(third.paths.arena(REPLACEMENT)) as rank:
            assert await third.fetch(REPLACEMENT, MEMBER, 10, partner.peers.address) == ""
            slot = rank.find(10)
            assert slot is not None and bytes(slot.memory) == read(owner.paths.arena(MEMBER), 10)[2]
            assert rank.find(5) is not None


async def test_a_fetch_that_runs_is_not_begun_again(base: Path) -> None:
    async with Side(base, "a") as owner, Side(base, "b") as partner, Side(base, "c") as third:
        await copied(owner, partner, 10)
        order = effects.Fetch("c", REPLACEMENT, JOB, MEMBER, 10, 1, partner.peers.address)
        for _ in range(3):
            third.peers.fetch(order)
        await until(lambda: third.told, "the answer")
        assert len(third.told) == 1
        before = third.paths.arena(REPLACEMENT).read_bytes()
        assert await third.fetch(REPLACEMENT, MEMBER, 10, partner.peers.address) == ""
        assert third.paths.arena(REPLACEMENT).read_bytes() == before  # it was there already


@pytest.mark.parametrize("kept_here", [True, False])
async def test_a_rotten_copy_is_refused(base: Path, kept_here: bool) -> None:
    async with Side(base, "a") as owner, Side(base, "b") as partner, Side(base, "c") as third:
        await copied(owner, partner, 10)
        with Arena.open(partner.paths.copies / f"{MEMBER}.arena") as arena:
            slot = arena.find(10)
            assert slot is not None
            arena.area(slot.index)[CHUNK_BYTES + 5] ^= 1
        fetching = partner if kept_here else third
        reason = await fetching.fetch(REPLACEMENT, MEMBER, 10, partner.peers.address)
        assert "chunk 1 (8388608 bytes at 8388608) is corrupted" in reason
        with Arena.open(fetching.paths.arena(REPLACEMENT)) as arena:
            assert [slot.state for slot in arena.slots] == [SlotState.FREE, SlotState.FREE]
        assert fetching.loaded == []


async def test_a_copy_that_is_not_there_is_named_with_what_is(base: Path) -> None:
    async with Side(base, "a") as owner, Side(base, "b") as partner, Side(base, "c") as third:
        await copied(owner, partner, 10)
        for asking in (third, partner):
            reason = await asking.fetch(REPLACEMENT, MEMBER, 20, partner.peers.address)
            assert (
                f"snapshot 20 of {MEMBER}" in reason and f"snapshot 10 of {MEMBER} (generation 1)" in reason
            )
            reason = await asking.fetch(REPLACEMENT, MEMBER, 10, partner.peers.address, generation=2)
            assert f"snapshot 10 of {MEMBER} (generation 2)" in reason
        assert "UNAVAILABLE" in await third.fetch(REPLACEMENT, MEMBER, 10, "127.0.0.1:1")


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".hidden", "x" * 97])
async def test_no_name_becomes_a_path(base: Path, name: str) -> None:
    async with Side(base, "b") as partner:
        before = everything(base)
        assert "is not allowed" in await partner.fetch(name, MEMBER, 10, partner.peers.address)
        assert "is not allowed" in await partner.fetch(REPLACEMENT, name, 10, partner.peers.address)
        assert everything(base) == before


async def test_a_silent_peer_ends_a_fetch(base: Path) -> None:
    async def silence(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await forever.wait()
        writer.close()

    forever = asyncio.Event()
    async with Side(base, "c", peer_timeout_s=1.0) as third:
        server = await asyncio.start_server(silence, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        reason = await third.fetch(REPLACEMENT, MEMBER, 10, f"127.0.0.1:{port}")
        assert "DEADLINE_EXCEEDED" in reason
        forever.set()
        server.close()
