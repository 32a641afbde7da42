"""What a node answers when it is asked where its ranks stand, and one of them cannot be looked at."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from agent.daemon.node import NodeDaemon
from agent.daemon.stacks import RECORD_BYTES_MAX
from agent.deciding.member import LocalMember
from agent.host.paths import Paths
from controlplane.core.records import effects, events
from controlplane.core.records.model import MemberPhase, MemberStatus
from controlplane.settings import AgentSettings
from holdfast.ipc.messages.rank import GroupProgress
from tests.agent.support import folder, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@contextlib.asynccontextmanager
async def node() -> AsyncIterator[NodeDaemon]:
    """A node that serves nobody yet."""
    with folder() as base:
        paths = Paths(base, base / "shm")
        paths.create()
        made = NodeDaemon(
            AgentSettings(coordinator="127.0.0.1:1"), "n0", "127.0.0.1", 2, paths, incarnation=1
        )
        try:
            yield made
        finally:
            await made.stacks.close()
            await made.peers.stop()
            await made.snapshots.close()
            made.memory.close(made.members)
            made.port.close()


async def test_a_rank_whose_stacks_cannot_be_had_hides_none_of_the_others() -> None:
    async with node() as here:
        for name in ("j.1", "j.2"):
            here.members.take(LocalMember(MemberStatus(name, "j", MemberPhase.RUNNING, generation=1)))
        here.paths.stacks("j.1").mkdir()  # nothing can be written there
        here.stacks.order(effects.CollectStacks("n0", "j", 1, 4, 1000))
        kept = here.link._outbox._kept
        (told,) = await until(lambda: [e for e in kept if isinstance(e, events.StacksCollected)], "an answer")
        assert told.round == 4
        assert [standing.member for standing in told.ranks] == ["j.1", "j.2"]
        assert "its stacks cannot be read" in told.ranks[0].stacks


async def test_records_alone_are_asked_of_ranks_that_have_left_the_generation() -> None:
    async with node() as here:
        for name, rank in (("j.1", 0), ("j.2", 1), ("j.spare", -1)):
            status = MemberStatus(name, "j", MemberPhase.READY, generation=2, rank=rank, pid=1)
            here.members.take(LocalMember(status))
        here.stacks.order(effects.CollectStacks("n0", "j", 1, 4, 1 << 20, records_only=True))
        await until(lambda: len(here.stacks._asked) == 2, "both ranks to be asked")
        for name, text in (("j.1", "a record"), ("j.2", "x" * (RECORD_BYTES_MAX + 1))):
            (member,) = (each for each in here.members.of("j") if each.name == name)
            asked = here.stacks._asked[name]
            here.stacks.take_groups(member, GroupProgress(asked.round, (), record=text))
        kept = here.link._outbox._kept
        (told,) = await until(lambda: [e for e in kept if isinstance(e, events.StacksCollected)], "an answer")
        assert [(s.rank, s.flight_record, s.stacks) for s in told.ranks] == [(0, "a record", ""), (1, "", "")]
