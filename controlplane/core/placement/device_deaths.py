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


def count_deaths(state: ClusterState, job: Job, evidence: Sequence[Evidence]) -> None:
    """Record where ranks died, and exclude a device that stands out from all others of the job.

    It stands out when no other device saw more than one death: else the job or the cluster is the cause.
    Without another place for its rank it stays in use: a device that often fails is better than none."""
    for each in evidence:
        node, seat = state.nodes.get(each.node), _local_rank(job, each)
        if node is None or seat is None or each.failure.cause not in BLAMED:
            continue
        since = state.now - state.settings.device_window_s
        node.deaths[seat] = [at for at in node.deaths.get(seat, ()) if at > since] + [state.now]
        if len(node.deaths[seat]) >= state.settings.device_deaths and _dies_more_often(
            state, job, node, seat
        ):
            times = f"{len(node.deaths[seat])} times in {state.settings.device_window_s:.0f} s"
            exclude(state, job, node.name, seat, f"ranks died on it {times}")


def _local_rank(job: Job, each: Evidence) -> int | None:
    """The local rank that this evidence is about; None when it is about no rank, or one that has moved
    since."""
    if not each.member or not 0 <= each.rank < len(job.seats) or job.seats[each.rank].node != each.node:
        return None
    return job.seats[each.rank].local_rank


def _dies_more_often(state: ClusterState, job: Job, node: Node, seat: int) -> bool:
    """Whether no other device of the job's nodes saw more than one death within the window."""
    since = state.now - state.settings.device_window_s
    for name in job.seat_nodes():
        other = state.nodes.get(name)
        for place, deaths in other.deaths.items() if other else ():
            if (name, place) != (node.name, seat) and sum(at > since for at in deaths) > 1:
                return False
    return True


def exclude(state: ClusterState, job: Job, name: str, seat: int, why: str) -> None:
    """Exclude the device of this local rank of a node, if its rank has another place; else journal it."""
    node = state.nodes.get(name)
    if node is None:
        return
    used = [placed.local_rank for placed in job.seating.on(node.name)]
    elsewhere = [p for p in devices.places(node) if p != seat and p not in used]
    idle = [room for room in capacity.idle(state, job) if room.takes(job.spec.nproc_per_node)]
    if not elsewhere and not idle:
        state.note(
            NoteKind.DEVICE_SUSPECTED, f"{node.name}/device{seat}", f"{why}; its rank has no other place"
        )
        return
    node.excluded[f"device{seat}"] = why
    state.note(NoteKind.DEVICE_EXCLUDED, f"{node.name}/device{seat}", why)
    marks.record(state, node)
