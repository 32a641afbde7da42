"""Gigabytes are unmapped while nobody waits: neither for a lock, nor on the event loop."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from agent.deciding.member import LocalMember
from agent.host.paths import Paths
from agent.peers.filling import SharedArena
from agent.ranks.members import MemberMemory
from controlplane.core.records import effects
from controlplane.core.records.model import MemberPhase, MemberStatus
from holdfast import removal
from holdfast.ipc.arena import Arena
from tests.agent.peering import JOB, LARGE, Side, values
from tests.agent.support import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MEMBER = "job.1"


class Slow(Arena):
    """An arena whose memory takes long to let go."""

    meanwhile: Callable[[], object]

    def close(self) -> None:
        if self._descriptor >= 0:
            self.meanwhile()
        super().close()


def slow(path: Path, meanwhile: Callable[[], object]) -> Slow:
    arena = Slow.open(path)
    assert isinstance(arena, Slow)
    arena.meanwhile = meanwhile
    return arena


@pytest.mark.parametrize("ends", ["complete", "grows"])
async def test_a_beat_does_not_wait_for_a_copy_that_goes(base: Path, ends: str) -> None:
    async with Side(base, "a") as owner, Side(base, "b") as partner:
        owner.replicate((MEMBER, partner.peers.address))
        owner.snapshot(MEMBER, values(1), 10)
        await partner.keeps(MEMBER, 10)
        told: list[object] = []
        with ThreadPoolExecutor(1) as beats:
            copies = partner.peers._kept
            kept = copies._all[MEMBER].kept
            kept.arena.close()
            path = partner.paths.copies / f"{MEMBER}.arena"
            kept.arena = slow(path, lambda: told.append(beats.submit(copies.held).result(PATIENCE_S / 2)))
            if ends == "complete":
                partner.peers.complete(effects.Complete("b", JOB, True, "done"))
            else:
                owner.paths.arena(MEMBER).unlink()
                owner.snapshot(MEMBER, values(2, nbytes=2 * LARGE), 20)
            await until(lambda: told, "a beat while the memory is let go")
            assert isinstance(kept, SharedArena)


def test_a_member_is_dismissed_at_once_and_its_arena_in_its_own_time(base: Path) -> None:
    paths = Paths(base / "a", base / "a.shm")
    paths.memory.mkdir(mode=0o700)
    removal.claim(paths.memory)
    memory, go_on = MemberMemory(paths), threading.Event()
    member = LocalMember(MemberStatus(MEMBER, JOB, MemberPhase.EXITED))
    memory.make(member)
    memory.keep(member.status)
    Arena.create(paths.arena(MEMBER), 4096).close()
    late: list[bool] = []
    member.arena = slow(paths.arena(MEMBER), lambda: late.append(not go_on.wait(PATIENCE_S / 2)))
    memory.remove(member)
    assert not paths.record(MEMBER).exists(), "another agent does not take it up"
    go_on.set()
    memory.end()
    assert late == [False], "it was not waited for"
    assert [path.name for path in paths.memory.iterdir()] == [removal.MARK]
