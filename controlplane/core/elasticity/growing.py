"""Plan the next change of a training job's places; `resizing` carries it out.

One plan at a time, in this order: leave nodes that are drained, move ranks off bad devices, grow onto nodes
that have been up for a while. Plans only read the cluster state; besides a plan they may set a deadline, and
note what a drain waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.failures import devices, marks
from controlplane.core.placement import capacity, formation, replicas
from controlplane.core.records.model import Strategy
from controlplane.core.records.notes import NoteKind
from controlplane.core.records.words import some_of
from controlplane.core.restore import sharding
from controlplane.core.state.resize import Resize, Spot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controlplane.core.placement.formation import Capacity
    from controlplane.core.state.cluster_state import ClusterState, Node
    from controlplane.core.state.job import Job


def plan(state: ClusterState, job: Job) -> Resize | None:
    """Return the change to make now; None when there is none, or it has to wait."""
    if state.paused:
        return None
    return _leave(state, job) or _move(state, job) or grow(state, job)


def _nodes(state: ClusterState, job: Job) -> Iterator[Node]:
    """Yield the known nodes that have seats of the job. All nodes may be a hundred times as many."""
    return (state.nodes[name] for name in job.seat_nodes() if name in state.nodes)


def _now(job: Job) -> dict[str, list[Spot]]:
    """Return the present places by node, in rank order."""
    found: dict[str, list[Spot]] = {}
    for seat in job.seats:
        found.setdefault(seat.node, []).append(Spot(seat.node, seat.local_rank))
    return found


def _idle(state: ClusterState, job: Job) -> list[Capacity]:
    """Return the nodes that could take ranks of the job and have none, by name; those of last choice last."""
    rooms = {room.node: room for room in capacity.idle(state, job)}
    return [rooms[name] for name in formation.fitting(job.spec, list(rooms.values()))]


def _made(state: ClusterState, strategy: Strategy, reason: str, rows: dict[str, list[Spot]]) -> Resize:
    spots = tuple(spot for row in rows.values() for spot in row)
    return Resize(strategy, reason, spots, state.now)


def _leave(state: ClusterState, job: Job) -> Resize | None:
    """Plan to leave the nodes that are drained: other nodes take their ranks, or the job shrinks.

    A drain that diagnosis has begun shrinks no job, and comes after those that people ask for."""
    going = {node.name for node in _nodes(state, job) if node.drain is not None}
    if not going:
        return None
    asked = {name for name in going if not marks.by_diagnosis(state.nodes[name].drain)}
    going = asked or going
    if state.now < job.changes.leave_at:
        state.wake(job, job.changes.leave_at)
        return None
    words = some_of([f"{n} ({state.nodes[n].drain.reason})" for n in sorted(going)])  # type: ignore[union-attr]
    return _without(state, job, going, f"drained: {words}", must=bool(asked))


def _without(state: ClusterState, job: Job, going: set[str], reason: str, *, must: bool) -> Resize | None:
    rows, idle = _now(job), _idle(state, job)
    kept: dict[str, list[Spot]] = {}
    holes: list[str] = []
    for name, row in rows.items():
        if name not in going:
            kept[name] = row
        elif idle:
            room = idle.pop(0)
            kept[room.node] = formation.spread(room.node, room.free, len(row))
        else:
            holes.append(name)
            kept[name] = row
    if not holes:
        return _made(state, Strategy.MOVE, f"{reason}; its ranks go to other nodes", kept)
    left = formation.whole_replicas(list(kept), job.spec.replica_nodes, holes)
    if sharding.forces_reshard(job, len(left)) and not job.spec.storage:
        _note_delay(state, job, going, "its state is in shards, and there is no storage to cut it anew from")
        return None
    if not formation.usable(job.spec, len(left)):
        _note_delay(
            state, job, going, f"{len(left)} of at least {formation.least(job.spec)} nodes would be left"
        )
        return None
    if not must:
        return None
    rest = {name: kept[name] for name in left}
    aside = [name for name in rows if name not in rest and name not in going]
    layout = replicas.shrunk(job.spec, len(rows), len(left), aside)
    return _made(state, Strategy.SHRINK, f"{reason}; the job goes on with {len(left)} nodes; {layout}", rest)


def _note_delay(state: ClusterState, job: Job, going: set[str], why: str) -> None:
    for name in sorted(going):
        drain = state.nodes[name].drain
        if drain is not None and drain.delay_noted != why:
            drain.delay_noted = why
            state.note(NoteKind.DRAIN_WAITS, name, f"job {job.name}: {why}")


def _move(state: ClusterState, job: Job) -> Resize | None:
    """Plan to move living ranks off bad devices: to other devices of the node, or else to another node."""
    if not any(node.excluded or node.bad_devices for node in _nodes(state, job)):
        return None
    rows = _now(job)
    hit = {spot: why for row in rows.values() for spot in row if (why := _trouble(state, spot))}
    if not hit or state.now < job.changes.resize_at:
        return None
    reason = "; ".join(f"{spot.node} {why}" for spot, why in hit.items())
    going = set()
    for spot in hit:
        used = [other.local_rank for other in rows[spot.node]]
        free = [place for place in devices.places(state.nodes[spot.node]) if place not in used]
        if free:
            rows[spot.node][rows[spot.node].index(spot)] = Spot(spot.node, free[0])
        else:
            going.add(spot.node)
    if going:
        return _without(state, job, going, reason, must=False)
    return _made(state, Strategy.MOVE, reason, rows)


def _trouble(state: ClusterState, spot: Spot) -> str:
    node = state.nodes.get(spot.node)
    return devices.trouble(node, spot.local_rank) if node is not None else ""


def grow(state: ClusterState, job: Job) -> Resize | None:
    """Plan to grow onto nodes that have been up for `grow_after_s`, by whole replicas; None: not now."""
    if state.paused:
        return None
    now = len(job.seat_nodes())
    if now >= job.spec.nnodes_max:
        return None
    idle = _idle(state, job)
    steady = [room for room in idle if state.now >= room.up_since + state.settings.grow_after_s]
    size = formation.usable(job.spec, now + len(steady))
    due = [room.up_since + state.settings.grow_after_s for room in idle]
    if state.now < job.changes.resize_at or size <= now:
        later = [max(at, job.changes.resize_at) for at in due if max(at, job.changes.resize_at) > state.now]
        if later:
            state.wake(job, min(later))
        return None
    if sharding.forces_reshard(job, size) and not job.spec.storage:
        return None
    rows, joining = _now(job), {room.node: room for room in steady[: size - now]}
    for name in replicas.arrange(list(joining), job.spec.replica_nodes, capacity.domains(state, joining)):
        rows[name] = formation.spread(name, joining[name].free, job.spec.nproc_per_node)
    layout = replicas.layout_text(job.spec, size)
    words = f"{size} nodes" + (f" ({layout})" if layout else "")
    return _made(state, Strategy.GROW, f"{some_of(joining)} joined: the job grows to {words}", rows)
