"""A leader in this process, and nodes whose agents keep and send real logs; ranks are what the test
writes."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, cast

from agent.deciding.member import LocalMember
from agent.deciding.node_state import AgentFacts, NodeState
from agent.deciding.progress import HangLimits
from agent.host.paths import Paths
from agent.logs.keeping import RankLogs
from agent.logs.sending import LogSender
from controlplane.access.client_credentials import plain
from controlplane.cli.logs import command
from controlplane.cli.main import tree
from controlplane.core.records.logs import ReadLog
from controlplane.core.records.model import JobPhase, JobSpec, MemberPhase
from controlplane.wire import codec
from controlplane.wire import control_pb2 as pb
from tests.agent.support import folder
from tests.daemon.hand import Hand
from tests.daemon.rig import until
from tests.security.authority import CLUSTER
from tests.security.serving import asked, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from controlplane.daemon.server.log_relay import LogRelay
    from tests.security.serving import Served

JOB = "j"
LIMIT_BYTES = 1 << 20


class LoggingHand(Hand):
    """An agent whose members' logs are kept, bounded and sent by the agent's own code."""

    def __init__(self, address: str, node: str, base: Path) -> None:
        super().__init__(address, node)
        self.paths = Paths(base / node, base / f"{node}-shm")
        self.paths.create()
        facts = AgentFacts(node, 1, 5.0, 10.0, 0.0, HangLimits(10.0, 60.0, 1800.0))
        self.state = NodeState(facts, cast("Any", None))
        self.logs = RankLogs(self.paths, self.state, LIMIT_BYTES)
        self.sender = LogSender(node, self.paths, self.logs, lambda: address, plain())
        self.deaf = False  # takes no orders to send a log
        self.deaf_to = ""  # the member whose log it does not send
        self.ignored = 0  # orders to send it
        self._obey[ReadLog] = self._send_log

    async def _send_log(self, order: ReadLog) -> None:
        if self.deaf_to and order.member == self.deaf_to:
            self.ignored += 1
        elif not self.deaf:
            self.sender.order(order)

    async def report(self, member: str, **changes: Any) -> None:
        await super().report(member, **changes)
        self.state.take(LocalMember(self.members[member]))
        self.logs.note(self.members[member])

    async def close(self) -> None:
        await self.sender.close()
        await super().close()

    def member(self, rank: int) -> str:
        """The member on this node that has a rank now."""
        runs = MemberPhase.RUNNING
        alive = [each for each in self.members.values() if each.rank == rank and each.phase is runs]
        return alive[-1].member if alive else ""

    def write(self, member: str, data: bytes) -> None:
        with self.paths.log(member).open("ab") as file:
            file.write(data)


class LogStage:
    """Job `j` trains with rank 0 on n0 and rank 1 on n1."""

    def __init__(self, served: Served, hands: list[LoggingHand]) -> None:
        self.served, self.hands = served, hands

    def log(self, rank: int, data: bytes) -> str:
        """Have a rank write; returns its member."""
        hand = next(hand for hand in self.hands if hand.member(rank))
        hand.write(hand.member(rank), data)
        return hand.member(rank)

    def holder(self, rank: int) -> LoggingHand:
        """The node on which a rank is."""
        return next(hand for hand in self.hands if hand.member(rank))

    async def logs(self, *words: str) -> int:
        """Run `holdfast logs` in this process, and return its exit code."""
        values = tree().parse_args(["logs", *words, "--coordinator", self.served.address])
        return await command.answered(values)

    def relays(self) -> list[LogRelay]:
        """The logs that are on their way through the leader."""
        assert self.served.front.leader_term is not None
        return list(self.served.front.leader_term.logs._relays.values())


@contextlib.asynccontextmanager
async def log_stage() -> AsyncIterator[LogStage]:
    """Build it."""
    with folder() as base:
        async with serving(leads=True) as served, contextlib.AsyncExitStack() as stack:
            hands = [LoggingHand(served.address, f"n{number}", base) for number in range(2)]
            for hand in hands:
                await stack.enter_async_context(hand)
                await hand.work(CLUSTER)
                beating = asyncio.create_task(_beats(hand))
                stack.callback(beating.cancel)
            spec = JobSpec(JOB, ("train.py",), "/", nnodes_min=2, nnodes_max=2, nproc_per_node=1)
            await asked(served.address, "Submit", pb.SubmitRequest(spec=codec.spec_message(spec)))
            stage = LogStage(served, hands)
            await until(lambda: trains(stage))
            yield stage


def trains(stage: LogStage) -> bool:
    """Whether both ranks run."""
    term = stage.served.front.leader_term
    job = term.core.state.jobs.get(JOB) if term is not None else None
    ranks = [rank for rank in (0, 1) for hand in stage.hands if hand.member(rank)]
    return job is not None and job.phase is JobPhase.RUNNING and ranks == [0, 1]


async def _beats(hand: LoggingHand) -> None:
    while True:
        await hand.beat(*hand.members.values())
        await asyncio.sleep(0.5)
