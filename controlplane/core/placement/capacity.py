"""Say which nodes could take ranks of a job, and what bars the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.failures import devices, eligibility
from controlplane.core.placement import formation
from controlplane.core.state.job import Job

if TYPE_CHECKING:
    from collections.abc import Iterable

    from controlplane.core.state.cluster_state import ClusterState, Node


def rooms(state: ClusterState, job: Job) -> list[formation.Capacity]:
    """Every connected node as this job finds it: its capacity, whether another live job uses it, what else
    bars it."""
    planned, version = _planned(state, job), _version(state, job)
    return [
        _room(state, job, node, name not in planned and not _used(state, job, name), version)
        for name, node in state.nodes.items()
        if node.up
    ]


def idle(state: ClusterState, job: Job) -> list[formation.Capacity]:
    """The same of those nodes alone that no live job uses, this one included."""
    planned = _planned(state, job)
    free = [
        node
        for name, node in state.nodes.items()
        if node.up and name not in planned and not job.seating.uses(name) and not _used(state, job, name)
    ]
    version = _version(state, job) if free else ""
    return [_room(state, job, node, True, version) for node in free]


def _room(state: ClusterState, job: Job, node: Node, idle: bool, version: str) -> formation.Capacity:
    other = not node.takes(job.name)
    return formation.Capacity(
        node.name,
        node.slots,
        idle,
        f"it takes ranks of {', '.join(node.jobs)} only" if other else barred(state, node, version),
        devices.places(node),
        eligibility.last_choice(state, node),
        node.up_since,
    )


def barred(state: ClusterState, node: Node, version: str = "") -> str:
    """Why a connected node takes no new ranks; "": it takes them.

    `version`: the version of Holdfast on the job's nodes; a node with another one is barred. "": any will
    do."""
    if node.drain is not None:
        return "drained" if node.drain.done else "is being drained"
    if node.cordoned:
        return f"cordoned: {node.cordoned}"
    if version and node.version and node.version != version:
        return f"its agent is holdfast {node.version}, the job's are {version}: install the same"
    return eligibility.barred(state, node) or devices.ailing(node)


def _version(state: ClusterState, job: Job) -> str:
    """The version of Holdfast on a job's nodes: on those with its seats, else the most common one."""
    sat_on = [
        state.nodes[name] for name in job.seat_nodes() if name in state.nodes and state.nodes[name].version
    ]
    found: dict[str, int] = {}
    for node in sat_on or state.nodes.values():
        if node.version and (node.up or sat_on):
            found[node.version] = found.get(node.version, 0) + 1
    return max(found, key=lambda version: (found[version], version), default="")


def _planned(state: ClusterState, job: Job) -> dict[str, None]:
    """The nodes that other live jobs will use after a planned change."""
    changes = [other.changes.resize for other in state.jobs.values() if other is not job and not other.ended]
    return {spot.node: None for resize in changes if resize is not None for spot in resize.spots}


def _used(state: ClusterState, job: Job, name: str) -> bool:
    """Whether another live job has seats on this node."""
    for host in state.hosts.get(name, ()):
        other = state.jobs.get(host)
        if other is not None and other is not job and not other.ended and other.seating.uses(name):
            return True
    return False


def taken(state: ClusterState, job: Job, name: str) -> bool:
    """Whether another live job uses this node, or will after a planned change."""
    return _used(state, job, name) or name in _planned(state, job)


def serves(state: ClusterState, job: Job, name: str, ranks: int = 1) -> bool:
    """Whether so many ranks of a job may be started on a node where it has seats already.

    A node that is being drained may still serve until its deadline: the job leaves it at a step boundary."""
    node = state.nodes.get(name)
    if node is None or not eligibility.takes(state, job, name) or len(devices.places(node)) < ranks:
        return False
    return node.drain is None or state.now < node.drain.by


def lacking_without(state: ClusterState, job: Job, name: str) -> str:
    """Why a job could not continue without this node, and what to do; "": it could."""
    left = [node for node in job.seat_nodes() if node != name and state.up(node)]
    spare = formation.fitting(job.spec, [room for room in idle(state, job) if room.node != name])
    if spare and len(left) + 1 >= formation.least(job.spec):
        return ""
    if not job.elastic:
        return f"would lose its ranks on {name}, and its script does not use the SDK: stop it instead"
    if formation.usable(job.spec, len(left)):
        return ""
    return (
        f"would have {len(left)} of at least {formation.least(job.spec)} nodes: "
        "add a node, or submit it with a smaller minimum (--nnodes MIN:MAX)"
    )


def domains(state: ClusterState, nodes: Iterable[str]) -> dict[str, str]:
    """The failure domain of each of these nodes."""
    return {name: state.nodes[name].domain or name for name in nodes}
