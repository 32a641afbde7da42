"""Exclude a device on which ranks die again and again, if its rank has another place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.failures import devices, marks
from controlplane.core.placement import capacity
from controlplane.core.records.model import Cause
from controlplane.core.records.notes import NoteKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controlplane.core.records.evidence import Evidence
    from controlplane.core.state.cluster_state import ClusterState, Node
    from controlplane.core.state.job import Job


BLAMED = (Cause.SIGNALED, Cause.SILENT, Cause.STUCK, Cause.DEVICE)
"""Causes for which a device may be at fault. An exception or an exit is the script's."""


def count_deaths(m: ClusterState, job: Job, evidence: Sequence[Evidence]) -> None:
    """Record where ranks died, and exclude a device that stands out from all others of the job.

    It stands out when no other device saw more than one death: else the job or the cluster is the cause.
    Without another place for its rank it stays in use: a device that often fails is better than none."""
    for each in evidence:
        node, seat = m.nodes.get(each.node), _local_rank(job, each)
        if node is None or seat is None or each.failure.cause not in BLAMED:
            continue
        since = m.now - m.settings.device_window_s
        node.deaths[seat] = [at for at in node.deaths.get(seat, ()) if at > since] + [m.now]
        if len(node.deaths[seat]) >= m.settings.device_deaths and _stands_out(m, job, node, seat):
            _exclude(m, job, node, seat)


def _local_rank(job: Job, each: Evidence) -> int | None:
    """The local rank that this evidence is about; None when it is about no rank, or one that has moved
    since."""
    if not each.member or not 0 <= each.rank < len(job.seats) or job.seats[each.rank].node != each.node:
        return None
    return job.seats[each.rank].local_rank


def _stands_out(m: ClusterState, job: Job, node: Node, seat: int) -> bool:
    """Whether no other device of the job's nodes saw more than one death within the window."""
    since = m.now - m.settings.device_window_s
    for name in job.seat_nodes():
        other = m.nodes.get(name)
        for place, deaths in other.deaths.items() if other else ():
            if (name, place) != (node.name, seat) and sum(at > since for at in deaths) > 1:
                return False
    return True


def _exclude(m: ClusterState, job: Job, node: Node, seat: int) -> None:
    used = [placed.local_rank for placed in job.seating.on(node.name)]
    elsewhere = [p for p in devices.places(node) if p != seat and p not in used]
    idle = [room for room in capacity.others(m, job) if room.takes(job.spec.nproc_per_node)]
    why = f"ranks died on it {len(node.deaths[seat])} times in {m.settings.device_window_s:.0f} s"
    if not elsewhere and not idle:
        m.note(NoteKind.DEVICE_SUSPECTED, f"{node.name}/device{seat}", f"{why}; its rank has no other place")
        return
    node.excluded[f"device{seat}"] = why
    m.note(NoteKind.DEVICE_EXCLUDED, f"{node.name}/device{seat}", why)
    marks.record(m, node)
