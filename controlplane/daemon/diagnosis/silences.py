"""Notice nodes whose agents beat, while reports about the steps of their ranks have stopped. Pure.

Silence counts from the newest report of the generation that trains now: who has never reported in it may be
of an earlier version, or still load. It is measured against the other nodes of the job: where none of them
reports either, the job stands still, or the coordinator was away, and nobody is silent."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from controlplane.core.records.model import MemberPhase

if TYPE_CHECKING:
    from controlplane.core.records.diagnosis import StepTimes
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job


class _Heard(NamedTuple):
    """The newest report of a node about a job. `at_s`: on the clock of the diagnosis."""

    at_s: float
    generation: int


class TelemetrySilence:
    """When each node has last reported steps, by job."""

    def __init__(self) -> None:
        self._heard: dict[str, dict[str, _Heard]] = {}

    def take(self, report: StepTimes, now_s: float) -> None:
        """Note that a node has reported."""
        if report.generations:
            heard = _Heard(now_s, max(report.generations))
            self._heard.setdefault(report.job, {})[report.node] = heard

    def silent(self, state: ClusterState, job: Job, now_s: float) -> dict[str, float]:
        """For how long (s) each node of a job is silent, compared with the node that has reported last.

        Nodes that are not up are left out: that they are away is known."""
        if job.generation is None:
            return {}
        number, heard = job.generation.number, self._heard.get(job.name, {})
        mine = {n: heard[n].at_s for n in job.seat_nodes() if n in heard and heard[n].generation == number}
        newest_s = max(mine.values(), default=now_s)
        return {
            node: newest_s - at_s
            for node, at_s in mine.items()
            if newest_s > at_s and state.up(node) and _trains(job, node)
        }

    def forget(self, jobs: set[str]) -> None:
        """Forget all jobs but these."""
        for job in [name for name in self._heard if name not in jobs]:
            del self._heard[job]


def _trains(job: Job, node: str) -> bool:
    """Whether every rank on a node trains, as far as its agent's beats say: a rank that has died or loads
    reports no steps."""
    seated = [job.members[seat.member] for seat in job.seating.on(node)]
    return bool(seated) and all(mb.phase is MemberPhase.RUNNING and not mb.dead for mb in seated)
