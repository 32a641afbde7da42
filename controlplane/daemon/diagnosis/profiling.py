"""Have agents profile ranks, as people ask, and collect the answers.

Only ranks of the job's newest generation are asked, all of them or none. Agents answer for their ranks, in
any case that they can see; the leader answers for those whose agent cannot. A request lives as long as the
call of the person who made it, and with the leader: the next one knows nothing of it, and the person is to
ask again. Nothing of it reaches the core."""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from controlplane.core.records.diagnosis import ProfileRank, RankProfiled
from controlplane.core.records.model import JobPhase

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from controlplane.core.cluster import Cluster
    from controlplane.core.state.job import Job
    from controlplane.daemon.server.links import Links

TRACE_BYTES_MAX = 256 << 20
"""A larger trace is not kept: viewers of Chrome traces cannot open it, and it lies on the node's own disk."""
LATE_S = 10.0
"""How long after the end of a request's time its agents may answer."""
_LOOK_S = 1.0
_LOOKS_MAX = 4
"""Looks in a row that must find a rank lost before the leader answers for it: its agent may know more."""


class ProfileRefused(Exception):
    """The ranks cannot be profiled now; nothing was ordered. The message says why."""


class TermEnded(Exception):
    """This coordinator does not lead any more."""


@dataclass(slots=True)
class WantedProfile:
    """One request. `orders`: those that are not answered yet, by member; `seats`: node and rank of all, by
    member."""

    name: str
    job: str
    due_s: float
    orders: dict[str, ProfileRank]
    seats: dict[str, tuple[str, int]]
    answers: asyncio.Queue[RankProfiled | None] = field(default_factory=asyncio.Queue)
    lost: dict[str, int] = field(default_factory=dict)  # looks in a row that found this member lost


class ProfileRequests:
    """The requests of one leader term. `write(type, body)` writes a line of the journal; `judge(rank,
    answer)` takes each profile that a rank has given."""

    def __init__(
        self,
        core: Cluster,
        links: Links,
        term: int,
        write: Callable[[str, dict[str, Any]], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        judge: Callable[[int, RankProfiled], None] = lambda _rank, _answer: None,
    ) -> None:
        self._core, self._links, self._term, self._write, self._clock = core, links, term, write, clock
        self._judge = judge
        self._wanted: dict[str, WantedProfile] = {}  # by name
        self._numbers = itertools.count(1)

    def begin(
        self, job: str, ranks: Iterable[int], steps: int, timeout_s: float, reason: str
    ) -> WantedProfile:
        """Order a profile of these ranks of a job. Raises ProfileRefused, and orders nothing then."""
        found = self._core.state.jobs[job]
        name = f"{self._term}-{next(self._numbers)}"
        wanted = WantedProfile(name, job, self._clock() + timeout_s + LATE_S, {}, {})
        for rank in sorted(set(ranks)):
            order = self._order(found, rank, name, steps, timeout_s)
            wanted.orders[order.member], wanted.seats[order.member] = order, (order.node, rank)
        self._wanted[name] = wanted
        asked = ",".join(str(rank) for _, rank in wanted.seats.values())
        body = {"job": job, "ranks": asked, "steps": steps, "request": name, "reason": reason}
        self._write("ProfileAsked", body)
        for order in wanted.orders.values():
            self._links.send(order.node, order, self._term)
        return wanted

    async def answers(self, wanted: WantedProfile) -> AsyncIterator[tuple[str, int, RankProfiled]]:
        """The node, rank and answer of each, as they come. Raises TermEnded."""
        try:
            while wanted.orders or not wanted.answers.empty():
                try:
                    async with asyncio.timeout(_LOOK_S):
                        answer = await wanted.answers.get()
                except TimeoutError:
                    self._look(wanted)
                    continue
                if answer is None:
                    raise TermEnded("this coordinator does not lead any more: ask the next leader again")
                yield *wanted.seats[answer.member], answer
        finally:
            self._wanted.pop(wanted.name, None)

    def take(self, answer: RankProfiled) -> None:
        """Take an agent's answer. One that nobody waits for is left out."""
        wanted = self._wanted.get(answer.request)
        order = wanted.orders.get(answer.member) if wanted is not None else None
        if wanted is None or order is None or (order.node, order.job) != (answer.node, answer.job):
            return
        del wanted.orders[answer.member]
        wanted.answers.put_nowait(answer)
        rank = wanted.seats[answer.member][1]
        body = {"job": answer.job, "rank": rank, "node": answer.node}
        self._write("Profiled", body | {"path": answer.path, "bytes": answer.bytes, "reason": answer.reason})
        if not answer.reason:
            self._judge(rank, answer)

    def close(self) -> None:
        """End all requests: this term is over."""
        for wanted in self._wanted.values():
            wanted.answers.put_nowait(None)

    def _order(self, job: Job, rank: int, name: str, steps: int, timeout_s: float) -> ProfileRank:
        """The order for one rank. Raises ProfileRefused."""
        generation = job.generation
        if generation is None or job.phase is not JobPhase.RUNNING:
            remedy = f"`holdfast resume {job.name}`" if job.phase is JobPhase.PAUSED else "ask when it runs"
            raise ProfileRefused(f"it is {job.phase.value}, and only a running job can be profiled: {remedy}")
        seat = next((seat for seat in generation.seats if seat.rank == rank), None)
        if seat is None:
            raise ProfileRefused(
                f"there is no rank {rank}: it has the ranks 0 to {len(generation.seats) - 1}"
            )
        member = job.members.get(seat.member)
        if member is None or member.status is None or member.dead:
            raise ProfileRefused(f"rank {rank} does not run now: ask again when it does")
        if not member.status.elastic:
            raise ProfileRefused(
                f"rank {rank} runs a script without Holdfast's SDK, so nothing in it can be asked for a "
                "profile: see docs/porting.md"
            )
        order = ProfileRank(
            node=seat.node,
            job=job.name,
            member=seat.member,
            request=name,
            generation=generation.number,
            steps=steps,
            timeout_s=timeout_s,
            bytes_max=TRACE_BYTES_MAX,
        )
        if reason := self._links.obstacle(seat.node, order):
            raise ProfileRefused(f"rank {rank} cannot be asked: {reason}")
        return order

    def _look(self, wanted: WantedProfile) -> None:
        """Answer for ranks that are lost with their agents, and for all when the time is over."""
        late = self._clock() > wanted.due_s
        job = self._core.state.jobs.get(wanted.job)
        for order in list(wanted.orders.values()):
            reason = "its agent has not answered in time" if late else _lost(job, order.member)
            looks = wanted.lost[order.member] = wanted.lost.get(order.member, 0) + 1 if reason else 0
            if late or looks >= _LOOKS_MAX:
                names = order.job, order.member, order.request
                self.take(RankProfiled(order.node, 0, *names, order.generation, reason))


def _lost(job: Job | None, member: str) -> str:
    """Why a member is known not to answer any more; "": it may."""
    if job is None or job.ended:
        return "the job has ended"
    known = job.members.get(member)
    if known is None:
        return "its process is gone"
    return f"it was lost: {known.failure.message}" if known.failure is not None else ""
