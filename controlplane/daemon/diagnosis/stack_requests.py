"""Collect the stacks of a running job's ranks, as people ask.

The order is the one with which the core looks into a hang. Its rounds are numbered from FIRST_ROUND on here,
far above those of the core, so an answer is for one of them only. Nothing of it reaches the core, so no rank
is judged by what a person wanted to see."""

from __future__ import annotations

import asyncio
import itertools
import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from controlplane.core.failures.hangs import room
from controlplane.core.records.effects import CollectStacks
from controlplane.core.records.model import JobPhase

if TYPE_CHECKING:
    from collections.abc import Iterable

    from controlplane.analysis.proposals.reductions import RepeatedReductions
    from controlplane.core.cluster import Cluster
    from controlplane.core.records.events import StacksCollected
    from controlplane.core.records.model import Generation, Placement, Standing
    from controlplane.core.state.job import Job
    from controlplane.daemon.server.links import Links

log = logging.getLogger(__name__)

FIRST_ROUND = 1 << 60
ANSWER_S = 5.0
"""An agent gives its ranks less than a second."""
NODES_MAX = 256
"""Nodes that one request asks."""


class StacksRefused(Exception):
    """No stacks can be collected now; nothing was ordered. The message says why."""


@dataclass(frozen=True, slots=True)
class RankStacks:
    """The stacks of one rank. `reason`: why there are none; "": there are."""

    node: str
    rank: int
    reason: str
    report: Standing | None = None


@dataclass(slots=True)
class _WantedStacks:
    """One request: the nodes that have not answered yet, and the reports so far."""

    job: str
    nodes: set[str]
    reports: dict[str, Standing] = field(default_factory=dict)  # by member
    complete: asyncio.Event = field(default_factory=asyncio.Event)


class StackRequests:
    """The requests of one leader term. `answer_s`: how long a node may take."""

    def __init__(self, core: Cluster, links: Links, term: int, answer_s: float = ANSWER_S) -> None:
        self._core, self._links, self._term, self._answer_s = core, links, term, answer_s
        self._wanted: dict[int, _WantedStacks] = {}  # by round
        self._rounds = itertools.count(FIRST_ROUND)
        self.reductions: dict[str, RepeatedReductions] = {}  # of the ranks that were asked last, by job

    async def collect(self, job: str, ranks: Iterable[int]) -> list[RankStacks]:
        """The stacks of these ranks of a job (none: of all), by rank. Raises StacksRefused."""
        found = self._core.state.jobs[job]
        generation, seats = self._seats(found, set(ranks))
        nodes = {seat.node for seat in seats}
        orders = self._orders(job, generation, nodes)
        refused = {node: why for node in nodes if (why := self._links.obstacle(node, orders[node]))}
        wanted = _WantedStacks(job, nodes - set(refused))
        round_number = next(self._rounds)
        self._wanted[round_number] = wanted
        try:
            for node in sorted(wanted.nodes):
                self._links.send(node, replace(orders[node], round=round_number), self._term)
            if wanted.nodes:
                await _within(wanted.complete, self._answer_s)
        finally:
            del self._wanted[round_number]
        self._learn(job, generation, wanted)
        return [self._row(found, seat, wanted, refused) for seat in seats]

    def _learn(self, job: str, generation: Generation, wanted: _WantedStacks) -> None:
        """Keep what a rank reduces in each step, by the first flight record that can be read."""
        from controlplane.analysis.flight_records.fields import DumpError
        from controlplane.analysis.flight_records.packed import unpack
        from controlplane.analysis.proposals.reductions import of_record

        for name in [name for name in self.reductions if name not in self._core.state.jobs]:
            del self.reductions[name]
        for report in sorted(wanted.reports.values(), key=lambda each: each.rank):
            if not report.flight_record:
                continue
            try:
                record = unpack(report.rank, report.flight_record)
            except DumpError as error:
                log.warning("job %s: the flight record of rank %d: %s", job, report.rank, error)
                continue
            self.reductions[job] = of_record(report.rank, generation.number, record)
            return

    def take(self, event: StacksCollected) -> bool:
        """Take an agent's answer, if it is one to a person's request. Return whether it is."""
        if event.round < FIRST_ROUND:
            return False
        wanted = self._wanted.get(event.round)
        if wanted is not None and event.job == wanted.job and event.node in wanted.nodes:
            wanted.reports |= {report.member: report for report in event.ranks}
            wanted.nodes.discard(event.node)
            if not wanted.nodes:
                wanted.complete.set()
        return True

    def _seats(self, job: Job, ranks: set[int]) -> tuple[Generation, list[Placement]]:
        """The generation that runs, and the seats of these ranks in it. Raises StacksRefused."""
        generation = job.generation
        if generation is None or job.phase is not JobPhase.RUNNING:
            raise StacksRefused(f"it is {job.phase.value}: only ranks of a running job are asked")
        if odd := ranks - {seat.rank for seat in generation.seats}:
            raise StacksRefused(
                f"there is no rank {min(odd)}: it has the ranks 0 to {len(generation.seats) - 1}"
            )
        seats = [seat for seat in generation.seats if not ranks or seat.rank in ranks]
        if len({seat.node for seat in seats}) > NODES_MAX:
            raise StacksRefused(f"its ranks are on more than {NODES_MAX} nodes: name some of them")
        return generation, seats

    def _orders(self, job: str, generation: Generation, nodes: set[str]) -> dict[str, CollectStacks]:
        bytes_max = room(len(nodes))
        return {node: CollectStacks(node, job, generation.number, FIRST_ROUND, bytes_max) for node in nodes}

    def _row(self, job: Job, seat: Placement, wanted: _WantedStacks, refused: dict[str, str]) -> RankStacks:
        report = wanted.reports.get(seat.member)
        if report is not None:
            return RankStacks(seat.node, seat.rank, "", report)
        if seat.node in refused:
            return RankStacks(seat.node, seat.rank, refused[seat.node])
        if seat.node in wanted.nodes:
            return RankStacks(seat.node, seat.rank, f"the agent of node {seat.node} has not answered in time")
        member = job.members.get(seat.member)
        if member is not None and member.status is not None and not member.status.elastic:
            why = "it runs a script without Holdfast's SDK, which nothing can ask: see docs/porting.md"
            return RankStacks(seat.node, seat.rank, why)
        phase = member.status.phase.value if member is not None and member.status is not None else "gone"
        return RankStacks(seat.node, seat.rank, f"it does not train now: its process is {phase}")


async def _within(complete: asyncio.Event, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await complete.wait()
    except TimeoutError:
        return  # each rank that has not answered is named
