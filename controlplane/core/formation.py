"""Who sits where: pure functions from a spec and the nodes at hand to seats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.core.model import JobSpec, Placement

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Room:
    """A connected node as a job may find it. `idle`: no other live job sits on it."""

    node: str
    slots: int
    idle: bool


def impossible(spec: JobSpec) -> str:
    """Why no cluster could run this spec, with the mend; "" when one could."""
    checks = (
        (not spec.argv, "no script is named: give one"),
        (spec.nproc_per_node < 1, f"--nproc-per-node {spec.nproc_per_node} is not possible: give 1 or more"),
        (spec.nnodes_min < 1, f"--nnodes {spec.nnodes_min} is not possible: give 1 or more"),
        (
            spec.nnodes_max < spec.nnodes_min,
            f"--nnodes {spec.nnodes_min}:{spec.nnodes_max} is not possible: the most is below the least",
        ),
        (spec.spares_per_node < 0, f"--spares {spec.spares_per_node} is not possible: give 0 or more"),
        (spec.max_restarts < 0, f"--max-restarts {spec.max_restarts} is not possible: give 0 or more"),
        (spec.snapshot_every < 1, f"--snapshot-every {spec.snapshot_every} is not possible: give 1 or more"),
        (
            spec.checkpoint_every < 1,
            f"--checkpoint-every {spec.checkpoint_every} is not possible: give 1 or more",
        ),
        (spec.full_every < 1, f"--full-every {spec.full_every} is not possible: give 1 or more"),
    )
    return next((reason for wrong, reason in checks if wrong), "")


def fitting(spec: JobSpec, rooms: Sequence[Room]) -> list[str]:
    """The nodes that could take a share of the job now, by name."""
    return sorted(room.node for room in rooms if room.idle and room.slots >= spec.nproc_per_node)


def shortage(spec: JobSpec, rooms: Sequence[Room], wanted: int) -> str:
    """Why the job cannot be placed yet, in a sentence with the mend."""
    fit = len(fitting(spec, rooms))
    small = sorted(f"{r.node} ({r.slots})" for r in rooms if r.slots < spec.nproc_per_node)
    busy = sorted(r.node for r in rooms if r.slots >= spec.nproc_per_node and not r.idle)
    reason = f"waits for nodes: {fit} of {wanted} with {spec.nproc_per_node} free slots"
    if small:
        reason += f"; too few slots on {', '.join(small)}: start the agent with --slots {spec.nproc_per_node}"
    if busy:
        reason += f"; another job holds {', '.join(busy)}"
    return reason


def layout(spec: JobSpec, nodes: Sequence[str], members: Sequence[str]) -> tuple[Placement, ...]:
    """Seats in the order of `nodes`: rank = node index * nproc + local rank. One name per seat."""
    per = spec.nproc_per_node
    if len(members) != len(nodes) * per:
        raise ValueError(f"{len(members)} members for {len(nodes)} nodes of {per}")
    return tuple(
        Placement(rank, member, nodes[rank // per], rank % per) for rank, member in enumerate(members)
    )
