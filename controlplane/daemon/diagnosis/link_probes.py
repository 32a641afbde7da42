"""Have the nodes of a job probe their links when its communication is suspicious, and keep what they measure.

When and which is up to `controlplane.analysis.links`. An answer counts once, from a node that was asked, in
the round that was asked for: late and foreign ones are left out. Nothing of it reaches the core, and the next
leader begins anew."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from controlplane.analysis.links import policy
from controlplane.analysis.links.measures import LinkMeasures
from controlplane.analysis.links.schedule import ProbePlan, Purpose, begins_s, peers_of, slot_s
from controlplane.core.records.diagnosis import ProbeLinks
from controlplane.core.records.model import PeerAddress

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.analysis.links.measures import LinkMatrix
    from controlplane.core.cluster import Cluster
    from controlplane.core.records.diagnosis import LinksProbed
    from controlplane.core.state.job import Job

_ROUNDS_PER_TERM = 1 << 32
KEPT_S = 30.0
"""A matrix is made anew after this time also without answers, since measurements become stale."""


@dataclass(slots=True)
class _OfJob:
    plan: ProbePlan = field(default_factory=ProbePlan)
    measures: LinkMeasures = field(default_factory=LinkMeasures)
    round: int = 0
    purpose: Purpose = Purpose.REFERENCE
    asked_s: float = 0.0
    waits: dict[str, tuple[str, ...]] = field(default_factory=dict)  # node -> whom it was asked to probe
    ring: tuple[str, ...] = ()
    known: LinkMatrix | None = None  # made from the measurements; None: to be made anew
    known_s: float = 0.0


class LinkProbes:
    """The probes of one leader term.

    `send` gives an order to a node's agent, and returns why that is impossible; "": it was given."""

    def __init__(self, core: Cluster, send: Callable[[ProbeLinks], str], term: int) -> None:
        self._core, self._send = core, send
        self._jobs: dict[str, _OfJob] = {}
        self._round = term * _ROUNDS_PER_TERM

    def look(self, job: Job, now_s: float, *, suspicious: bool) -> int:
        """Ask for a round of probes if one is due. Return how many nodes were asked; 0: none was due."""
        mine = self._jobs.setdefault(job.name, _OfJob())
        ring = self._ring(job)
        if ring != mine.ring:
            mine.ring, mine.known = ring, None
            mine.measures.keep_nodes(ring)
        suspected = mine.plan.suspected
        purpose = mine.plan.due(now_s, ring, suspicious=suspicious)
        if suspected and not mine.plan.suspected:
            mine.measures.forget_suspicion()
            mine.known = None
        if purpose is None:
            return 0
        self._round += 1
        mine.round, mine.purpose, mine.asked_s, mine.waits = self._round, purpose, now_s, {}
        nodes = self._core.state.nodes
        for index, node in enumerate(ring):
            peers = peers_of(ring, index)
            order = ProbeLinks(
                node=node,
                job=job.name,
                round=self._round,
                peers=tuple(PeerAddress(each, nodes[each].peer) for each in peers),
                slot_s=slot_s(len(ring)),
                bytes_max=policy.BURST_BYTES,
                burst_s=policy.BURST_S,
                begins_s=begins_s(len(ring), index),
            )
            if not self._send(order):
                mine.waits[node] = tuple(peers)
        mine.plan.asked(now_s, purpose)
        return len(mine.waits)

    def take(self, answer: LinksProbed, now_s: float) -> None:
        """Take what a node measured. An answer that nobody waits for is left out."""
        mine = self._jobs.get(answer.job)
        if mine is None or answer.round != mine.round or now_s - mine.asked_s > policy.ANSWER_S:
            return
        asked = mine.waits.pop(answer.node, ())
        probes = {each.node: each for each in answer.found if each.node in asked}
        suspected = mine.purpose is Purpose.SUSPICION
        mine.measures.take(answer.node, now_s, probes.values(), suspected=suspected)
        mine.known = None

    def matrix(self, job: Job, now_s: float) -> LinkMatrix | None:
        """What is known of a job's links; None while they are not suspected."""
        mine = self._jobs.get(job.name)
        if mine is None or not mine.plan.suspected:
            return None
        if mine.known is None or now_s - mine.known_s > KEPT_S:
            nodes, ring = self._core.state.nodes, self._ring(job)
            domains = {name: nodes[name].domain for name in ring}
            mine.known, mine.known_s = mine.measures.matrix(now_s, ring, domains), now_s
        return mine.known

    def forget(self, jobs: set[str]) -> None:
        """Forget all jobs but these."""
        for job in [name for name in self._jobs if name not in jobs]:
            del self._jobs[job]

    def _ring(self, job: Job) -> tuple[str, ...]:
        """The nodes of the job that can be probed, in the order of its ranks."""
        state = self._core.state
        return tuple(name for name in job.seat_nodes() if state.up(name) and state.nodes[name].peer)
