"""Choose seats: pure functions from a job's spec and the nodes at hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.core.placement import replicas
from controlplane.core.records.model import JobSpec, Placement
from controlplane.core.records.words import ON_CORRUPT_STATE, ON_NAN, some_of
from controlplane.core.state.resize import Spot

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


@dataclass(frozen=True, slots=True)
class Capacity:
    """A connected node as one job finds it."""

    node: str
    slots: int
    idle: bool  # no other live job uses it
    barred: str = ""  # why it takes no ranks though it is connected; "": it takes them
    places: tuple[int, ...] | None = None  # local ranks that can be used; None: all
    last: bool = False  # last choice: used only when no other is left
    up_since: float = 0.0  # since when (s) its stream is up

    @property
    def free(self) -> tuple[int, ...]:
        """The local ranks that can be used."""
        return tuple(range(self.slots)) if self.places is None else self.places

    def takes(self, ranks: int) -> bool:
        """Whether so many ranks of the job can be put here now."""
        return self.idle and not self.barred and len(self.free) >= ranks


def impossible(spec: JobSpec) -> str:
    """Why no cluster could run this spec, and what to change; "": one could."""
    checks = (
        (not spec.argv, "no script is named: give one"),
        (spec.nproc_per_node < 1, f"--nproc-per-node {spec.nproc_per_node} is not possible: give 1 or more"),
        (spec.nnodes_min < 1, f"--nnodes {spec.nnodes_min} is not possible: give 1 or more"),
        (
            spec.nnodes_max < spec.nnodes_min,
            f"--nnodes {spec.nnodes_min}:{spec.nnodes_max} is not possible: the most is below the least",
        ),
        (
            spec.on_nan not in ON_NAN,
            f"--on-nan {spec.on_nan} is not possible: give one of {', '.join(ON_NAN)}",
        ),
        (
            spec.nan_skip_window < 0,
            f"--nan-skip-window {spec.nan_skip_window} is not possible: give 0 or more",
        ),
        (
            spec.check_replicas_every < 0,
            f"--check-replicas-every {spec.check_replicas_every} is not possible: give 0 (never) or more",
        ),
        (
            spec.on_corrupt_state not in ON_CORRUPT_STATE,
            f"--on-corrupt-state {spec.on_corrupt_state} is not possible: give report or act",
        ),
        (
            spec.on_corrupt_state == "act"
            and (spec.check_replicas_every < 1 or spec.snapshot_every % max(spec.check_replicas_every, 1)),
            f"--on-corrupt-state act with --check-replicas-every {spec.check_replicas_every} and "
            f"--snapshot-every {spec.snapshot_every} is not possible: every snapshot must follow a check, so "
            "give a --check-replicas-every that divides --snapshot-every",
        ),
        (spec.spares_per_node < 0, f"--spares {spec.spares_per_node} is not possible: give 0 or more"),
        (spec.max_restarts < 0, f"--max-restarts {spec.max_restarts} is not possible: give 0 or more"),
        (spec.snapshot_every < 1, f"--snapshot-every {spec.snapshot_every} is not possible: give 1 or more"),
        (
            spec.checkpoint_every < 1,
            f"--checkpoint-every {spec.checkpoint_every} is not possible: give 1 or more",
        ),
        (
            spec.replica_nodes < 1,
            f"--replica-nodes {spec.replica_nodes} is not possible: give 1 or more",
        ),
        (
            spec.replica_nodes >= 1 and not usable(spec, spec.nnodes_max),
            f"--nnodes {spec.nnodes_min}:{spec.nnodes_max} holds no multiple of --replica-nodes "
            f"{spec.replica_nodes}: give whole replicas",
        ),
        (spec.full_every < 1, f"--full-every {spec.full_every} is not possible: give 1 or more"),
    )
    return next((reason for wrong, reason in checks if wrong), "") or replicas.impossible(spec)


def usable(spec: JobSpec, nodes: int) -> int:
    """The most of `nodes` nodes that the job can use: whole replicas of the model, within its range; 0:
    too few."""
    whole = min(nodes, spec.nnodes_max) // spec.replica_nodes * spec.replica_nodes
    return whole if whole >= spec.nnodes_min else 0


def least(spec: JobSpec) -> int:
    """The fewest nodes that the job can use: its minimum, rounded up to whole replicas of the model."""
    return -(-spec.nnodes_min // spec.replica_nodes) * spec.replica_nodes


def fitting(spec: JobSpec, rooms: Sequence[Capacity]) -> list[str]:
    """The nodes that could take a node's share of the job now, by name; those of last choice last."""
    found = [room for room in rooms if room.takes(spec.nproc_per_node)]
    return [room.node for room in sorted(found, key=lambda room: (room.last, room.node))]


def shortage(spec: JobSpec, rooms: Sequence[Capacity], wanted: int) -> str:
    """Why the job cannot be placed yet, in a sentence that says what to do."""
    fit = len(fitting(spec, rooms))
    small = sorted(f"{r.node} ({len(r.free)})" for r in rooms if len(r.free) < spec.nproc_per_node)
    able = [r for r in rooms if len(r.free) >= spec.nproc_per_node]
    busy = sorted(r.node for r in able if not r.idle)
    barred = sorted(f"{r.node} ({r.barred})" for r in able if r.idle and r.barred)
    reason = f"waits for nodes: {fit} of {wanted} with {spec.nproc_per_node} free slots"
    if small:
        reason += f"; too few slots on {some_of(small)}: start the agent with --slots {spec.nproc_per_node}"
    if busy:
        reason += f"; another job holds {some_of(busy)}"
    if barred:
        reason += f"; not to be used: {some_of(barred)}"
    return reason


def layout(
    spec: JobSpec, nodes: Sequence[str], members: Sequence[str], rooms: Sequence[Capacity] = ()
) -> tuple[Placement, ...]:
    """Seats in the order of `nodes`: rank = node index * nproc + index on its node.

    `members` has one name per seat. `rooms` says which local ranks of a node can be used; without it, the
    first ones are. ValueError when the number of members is not that of the seats."""
    per = spec.nproc_per_node
    if len(members) != len(nodes) * per:
        raise ValueError(f"{len(members)} members for {len(nodes)} nodes of {per}")
    free = {room.node: room.free for room in rooms}
    spots = [spot for node in nodes for spot in spread(node, free.get(node, range(per)), per)]
    return tuple(
        Placement(rank, member, spot.node, spot.local_rank)
        for rank, (member, spot) in enumerate(zip(members, spots, strict=True))
    )


def spread(node: str, free: Sequence[int], ranks: int) -> list[Spot]:
    """The first `ranks` usable places of a node."""
    return [Spot(node, place) for place in list(free)[:ranks]]


def whole_replicas(nodes: Sequence[str], replica_nodes: int, gone: Collection[str]) -> list[str]:
    """The nodes of the replicas of the model that remain without those that are gone, in their order.

    A gap in one broken replica is filled with the node at the same position of another broken one, later
    in the order: equal positions hold equal shards. So as many replicas as possible stay whole."""
    gone = frozenset(gone)
    rows = [list(nodes[at : at + replica_nodes]) for at in range(0, len(nodes), replica_nodes)]
    broken = [row for row in rows if not gone.isdisjoint(row)]
    donors = [
        [index for index, row in enumerate(broken) if at < len(row) and row[at] not in gone]
        for at in range(replica_nodes)
    ]
    for index, row in enumerate(broken):
        for place, node in enumerate(row):
            if node not in gone:
                continue
            if not donors[place] or donors[place][-1] <= index:
                row.clear()
                break
            donor = broken[donors[place].pop()]
            row[place], donor[place] = donor[place], node
    return [node for row in rows for node in row]
