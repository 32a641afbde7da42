"""The agent passes an order to profile on to its rank, and answers for a rank that cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agent.daemon.profiling import RankProfiles
from agent.deciding.member import LocalMember
from controlplane.core.records.diagnosis import OperatorTime, ProfileRank, RankProfiled
from controlplane.core.records.model import Cause, Failure, MemberPhase, MemberStatus
from holdfast import removal
from holdfast.ipc.messages import agent as agent_msg
from holdfast.ipc.messages import profiles as profile_msg
from tests.agent.daemon.test_collecting import node
from tests.agent.support import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from agent.daemon.node import NodeDaemon


class Side:
    """The profiles of a node with one rank, what the rank was sent, and what the leader was."""

    def __init__(self, here: NodeDaemon) -> None:
        self.here = here
        status = MemberStatus("j.1", "j", MemberPhase.RUNNING, elastic=True, rank=0, generation=4)
        here.members.take(LocalMember(status))
        self.pushed: list[agent_msg.AgentMessage] = []
        self.sent: list[RankProfiled] = []
        self.connected = True
        self.profiles = RankProfiles(here.members, here.paths.trace, self._push, self.sent.append)

    def _push(self, _member: str, message: agent_msg.AgentMessage) -> bool:
        self.pushed.append(message)
        return self.connected

    @property
    def member(self) -> LocalMember:
        found = self.here.members.get("j.1")
        assert found is not None
        return found

    def order(
        self, request: str = "1-1", member: str = "j.1", generation: int = 4, timeout_s: float = 60.0
    ) -> None:
        self.profiles.order(ProfileRank("n0", "j", member, request, generation, 3, timeout_s, 1000))

    async def answer(self) -> RankProfiled:
        await until(lambda: self.sent, "an answer")
        return self.sent.pop()


@pytest.fixture
async def side() -> AsyncIterator[Side]:
    async with node() as here:
        made = Side(here)
        yield made
        await made.profiles.close()


async def test_a_rank_is_asked_and_its_answer_goes_to_the_leader(side: Side) -> None:
    side.order()
    (order,) = side.pushed
    path = str(side.here.paths.logs / "j.1.profile-1-1.json.gz")
    assert order == agent_msg.Profile("1-1", 4, 3, path, 60.0, 1000)
    side.profiles.take(side.member, profile_msg.ProfileTaken("1-1"))
    rows = (profile_msg.Operator("aten::mm", 6, 0.5, 0.25),)
    late = profile_msg.Profiled("0-9", 4, "of a request that nobody waits for")
    side.profiles.take(side.member, late)
    side.profiles.take(
        side.member, profile_msg.Profiled("1-1", 4, "", "/elsewhere", 99, 7, 3, 1.0, 0.5, rows)
    )
    found = await side.answer()
    assert (found.job, found.member, found.request, found.reason) == ("j", "j.1", "1-1", "")
    assert found.path == path, "the path that the agent gave, whatever the rank says"
    assert (found.bytes, found.first_step, found.steps) == (99, 7, 3)
    assert found.operators == (OperatorTime("aten::mm", 6, 0.5, 0.25),)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"elastic": False}, "does not use Holdfast's SDK"),
        ({"phase": MemberPhase.READY}, "it is ready"),
        ({"generation": 5}, "generation 4 has ended"),
        ({"phase": MemberPhase.EXITED}, "there is no process j.1"),
    ],
)
async def test_a_rank_that_cannot_be_asked_is_refused(
    side: Side, changes: dict[str, object], reason: str
) -> None:
    side.here.members.update(side.member, **changes)
    side.order()
    assert reason in (await side.answer()).reason
    assert side.pushed == []


async def test_nobody_of_that_name_and_nobody_connected(side: Side) -> None:
    side.order(member="j.9")
    assert "there is no process j.9" in (await side.answer()).reason
    side.connected = False
    side.order()
    assert "not connected" in (await side.answer()).reason


async def test_one_profile_at_a_time(side: Side) -> None:
    side.order("1-1")
    side.order("1-2")
    found = await side.answer()
    assert found.request == "1-2" and "for request 1-1" in found.reason


async def test_a_rank_that_dies_ends_it_and_its_drafts_are_removed(side: Side) -> None:
    side.order()
    trace = side.here.paths.trace("j.1", "1-1")
    draft = trace.with_name(removal.draft_name(f"{trace.name}."))
    other = trace.with_name("j.1.log")
    draft.touch()
    other.touch()
    failure = Failure(Cause.SIGNALED, "killed by SIGKILL", signal=9)
    side.here.members.update(side.member, phase=MemberPhase.EXITED, failure=failure)
    assert (await side.answer()).reason == "its process has ended: killed by SIGKILL"
    assert not draft.exists() and other.exists()


async def test_a_new_generation_ends_it_unless_its_steps_are_over(side: Side) -> None:
    side.order()
    side.here.members.update(side.member, generation=5)
    assert "generation 4 has ended" in (await side.answer()).reason
    side.here.members.update(side.member, generation=4)
    side.order("1-2")
    side.profiles.take(side.member, profile_msg.ProfileTaken("1-2", recorded=True))
    side.here.members.update(side.member, generation=5)
    side.profiles.take(side.member, profile_msg.Profiled("1-2", 4, "", "x", 5, 0, 3))
    assert (await side.answer()).reason == ""


async def test_what_takes_too_long_is_given_up(side: Side) -> None:
    side.order(timeout_s=0.1)
    side.profiles.take(side.member, profile_msg.ProfileTaken("1-1"))
    assert (await side.answer()).reason == "given up: 3 steps were not complete within 0.1 s"
    side.order("1-2")
    assert "has not noted the request" in (await side.answer()).reason
