"""A job whose agents report over the wire how its steps are spent, to a coordinator that serves its page."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

from controlplane.analysis.live.readings import JobWindow, RankWindow
from controlplane.analysis.live.table import columns_of
from controlplane.analysis.live.watch import JobWatch
from controlplane.core.records.diagnosis import SlowSteps, StepTimes
from controlplane.core.records.events import JobSubmitted
from controlplane.core.records.model import JobPhase, JobSpec
from tests.daemon.hand import Hand
from tests.page.visiting import until
from tests.security.authority import CLUSTER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from controlplane.core.records.events import NodeJoined
    from controlplane.core.records.model import Placement
    from controlplane.daemon.leadership.leader_term import LeaderTerm
    from tests.page.visiting import Paged

EVERY_S = 0.2
"""How often the coordinator judges."""
WORK_S, LINKS_S = 0.04, 0.02
WINDOWS = 12
"""Enough for a finding to open."""


class Trainer(Hand):
    """An agent with so many slots."""

    def __init__(self, address: str, node: str, slots: int) -> None:
        super().__init__(address, node)
        self.slots = slots

    def joined(self, members: Any = (), launcher: str = "l1", slots: int = 0) -> NodeJoined:
        return super().joined(members, launcher, slots or self.slots)


class Training:
    """The job `j` while it trains. `slow`: by which factor a rank's forward takes longer."""

    def __init__(self, found: Paged, agents: list[Trainer], slow: Mapping[int, float]) -> None:
        self.found, self.agents, self.slow = found, agents, dict(slow)
        self._step = 0
        self.told: dict[str, Any] = {}  # columns of newer agents, one value for all ranks
        self.stumbles: dict[int, float] = {}  # by rank: s that it waits for data in the next step

    def report(self) -> dict[str, Any]:
        """What the coordinator knows about the job."""
        return self.found.leader_term.health_report("j", 10_000)

    async def until_found(self, count: int = 1) -> None:
        """Have all agents report until the coordinator has so many findings about the job."""
        async with asyncio.timeout(60):
            while len(self.report()["findings"]) != count:
                await self.steps()

    async def steps(self) -> None:
        """Have all agents report some steps, once."""
        self._step += 1
        generation = self.found.leader_term.core.state.jobs["j"].generation
        assert generation is not None
        work_s = [WORK_S * self.slow.get(seat.rank, 1.0) for seat in generation.seats]
        for agent in self.agents:
            seats = [seat for seat in generation.seats if seat.node == agent.node]
            await agent.beat(*agent.members.values())
            times = self._times(agent, seats, work_s, max(work_s) + LINKS_S, generation.number)
            slow = self._slow([seat.rank for seat in seats], max(work_s) + LINKS_S, generation.number)
            await agent.tell(dataclasses.replace(times, slow=slow))
        self.stumbles = {}
        await asyncio.sleep(EVERY_S / 2)

    def _slow(self, ranks: list[int], usual_s: float, generation: int) -> SlowSteps | None:
        """The step in which a rank stumbles, as all ranks see it: the others wait."""
        if not self.stumbles:
            return None
        waits_s = [self.stumbles.get(rank, 0.0) for rank in ranks]
        longest_s, none = max(self.stumbles.values()), tuple(0.0 for _ in ranks)
        work_s = tuple(WORK_S for _ in ranks)
        return SlowSteps(
            tuple(ranks),
            tuple(generation for _ in ranks),
            tuple(self._step for _ in ranks),
            tuple(usual_s for _ in ranks),
            tuple(WORK_S + longest_s for _ in ranks),
            tuple(waits_s),
            work_s,
            none,
            tuple(longest_s - wait_s for wait_s in waits_s),
            *(none, none, none),
        )

    def _times(
        self, agent: Trainer, seats: list[Placement], work_s: list[float], step_s: float, number: int
    ) -> StepTimes:
        own_s = tuple(work_s[seat.rank] for seat in seats)
        told: dict[str, Any] = {name: tuple(value for _ in seats) for name, value in self.told.items()}
        one, zero, none = tuple(1 for _ in seats), tuple(0 for _ in seats), tuple(0.0 for _ in seats)
        return StepTimes(
            node=agent.node,
            incarnation=agent.incarnation,
            job="j",
            span_s=EVERY_S,
            members=tuple(seat.member for seat in seats),
            ranks=tuple(seat.rank for seat in seats),
            generations=tuple(number for _ in seats),
            steps=one,
            last_steps=tuple(self._step for _ in seats),
            covered=one,
            wall_s=tuple(step_s for _ in seats),
            data_s=none,
            forward_s=own_s,
            backward_s=none,
            communication_s=tuple(step_s - mine_s for mine_s in own_s),
            optimizer_s=none,
            snapshot_s=none,
            other_s=none,
            cpu_s=none,
            longest_s=tuple(step_s for _ in seats),
            samples=zero,
            tokens=zero,
            flops=none,
            memory_bytes=zero,
            memory_peak_bytes=zero,
            **told,
        )


@contextlib.asynccontextmanager
async def training(
    found: Paged, slow: Mapping[int, float], nodes: int = 2, ranks: int = 2
) -> AsyncIterator[Training]:
    """Run the job `j` on so many nodes with so many ranks each. The page judges (`diagnose_every_s`)."""
    async with contextlib.AsyncExitStack() as stack:
        agents = [Trainer(found.served.address, f"n{number:02}", ranks) for number in range(nodes)]
        for agent in agents:
            await stack.enter_async_context(agent)
            await agent.work(CLUSTER)
        await found.leader_term.loop.ask(
            JobSubmitted(JobSpec("j", ("train.py",), "/", (), nodes, nodes, ranks))
        )
        jobs = found.leader_term.core.state.jobs
        await until(lambda: jobs["j"].phase is JobPhase.RUNNING, timeout_s=60)
        yield Training(found, agents, slow)


def judge(leader_term: LeaderTerm, count: int, slow: Mapping[int, float], node: str = "n") -> None:
    """Have the leader's diagnosis know of the job `j` what so many ranks on nodes of eight would report.

    `node`: how the names of nodes begin. No agent is behind it, so that thousands of ranks take seconds."""
    watch, diagnosis = JobWatch(), leader_term.diagnosis
    step_s = WORK_S * max(slow.values()) + LINKS_S
    for window in range(WINDOWS):
        rows = [_row(rank, f"{node}{rank // 8:04}", slow, window, step_s) for rank in range(count)]
        ended_s = 1e9 + 5.0 * window
        found = watch.observe(JobWindow("j", 1, ended_s - 5.0, ended_s, columns_of(rows), count))
        if found.judged:
            diagnosis.ledger.observe(ended_s, "j", found.findings, set())
        diagnosis._jobs["j"].newest = found


def _row(rank: int, node: str, slow: Mapping[int, float], window: int, step_s: float) -> RankWindow:
    work_s = WORK_S * slow.get(rank, 1.0)
    return RankWindow(
        rank=rank,
        member=f"j.{rank}",
        node=node,
        device=rank % 8,
        domain="",
        dp_rank=rank,
        stage=0,
        cp_rank=0,
        tp_rank=0,
        generation=1,
        steps=50,
        last_step=50 * (window + 1),
        covered=50,
        wall_s=50 * step_s,
        data_s=0.0,
        forward_s=20 * work_s,
        backward_s=25 * work_s,
        communication_s=50 * (step_s - work_s),
        optimizer_s=5 * work_s,
        snapshot_s=0.0,
        other_s=0.0,
        cpu_s=0.0,
        longest_s=step_s,
    )
