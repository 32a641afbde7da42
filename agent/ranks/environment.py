"""Make the environment of a rank's process: torchrun's variables and Holdfast's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.core.records.model import NO_RANK, Role
from holdfast.coordinates import Coordinates

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controlplane.core.records.effects import Launch
    from controlplane.core.records.model import Generation, JobSpec


_OURS = frozenset(
    f"HOLDFAST_{name}"
    for name in (
        "TOKEN",
        "TOKEN_FILE",
        "TLS_CERT",
        "TLS_KEY",
        "TLS_CA",
        "TLS_NAME",
        "TLS_PEER_NAME",
        "INSECURE",
    )
)
"""The agent's own credentials, which its ranks must not see."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What every process of a node learns about its node."""

    node: str
    address: str  # the host at which other nodes reach this one
    rank_socket: str  # path of the rank server's socket
    ledger: str  # folder of the sample ledger; "": none


def inherited(base: Mapping[str, str]) -> dict[str, str]:
    """The agent's environment as the processes of its node get it: without its credentials."""
    return {name: value for name, value in base.items() if name not in _OURS}


def environment(base: Mapping[str, str], launch: Launch, facts: NodeFacts, page: str) -> dict[str, str]:
    """The full environment of one process: the agent's own, then the job's, then that of this launch."""
    spec = launch.spec
    env = inherited(base) | dict(spec.env)
    nproc = launch.spec.nproc_per_node
    if nproc > 1:
        env.setdefault("OMP_NUM_THREADS", "1")
    env.update(_seat(launch, facts.node))
    env.update(
        TORCHELASTIC_MAX_RESTARTS=str(spec.max_restarts),
        TORCHELASTIC_RUN_ID=spec.job,
        TORCHELASTIC_USE_AGENT_STORE="False",
        HOLDFAST_GATE=facts.rank_socket,  # as the SDK of an earlier version calls it
        HOLDFAST_MEMBER=launch.member,
        HOLDFAST_BOARD=page,  # likewise
        HOLDFAST_JOB=spec.job,
        HOLDFAST_NODE=facts.node,
        HOLDFAST_ADDRESS=facts.address,
        HOLDFAST_ROLE=launch.role.value,
        HOLDFAST_SNAPSHOT_EVERY=str(spec.snapshot_every),
        **_snapshots(spec),
        HOLDFAST_CHECK_REPLICAS_EVERY=str(spec.check_replicas_every),
        HOLDFAST_ON_CORRUPT_STATE=spec.on_corrupt_state or "report",
    )
    if facts.ledger:
        env["HOLDFAST_LEDGER"] = facts.ledger
    return env


def _snapshots(spec: JobSpec) -> dict[str, str]:
    """Who decides how often snapshots are taken, and what the next one overwrites: the ranks.

    The SDK of an earlier version would not keep the step of which other nodes have copies (`ANCHOR`): where
    there are such, the two other variables leave it to the coordinator."""
    auto, copied = "on" if spec.snapshot_auto else "off", spec.copied_away
    return {
        "HOLDFAST_SNAPSHOT_AUTO": "off" if copied else auto,
        "HOLDFAST_SNAPSHOT_RELEASE": "coordinator" if copied else "ranks",
        "HOLDFAST_SNAPSHOT_ANCHOR": ("auto" if spec.snapshot_auto else "on") if copied else "off",
    }


def _seat(launch: Launch, node: str) -> dict[str, str]:
    """torchrun's variables. A spare has no rank yet: it gets -1, and the SDK sets them when it gets a
    rank."""
    spec, generation = launch.spec, launch.generation
    nodes = _nodes(generation)
    world = generation.world_size if generation else spec.nnodes_max * spec.nproc_per_node
    here = nodes.count(node) if generation else spec.nproc_per_node
    groups = list(dict.fromkeys(nodes)) or [node]
    spare = launch.role == Role.SPARE or launch.rank == NO_RANK
    rank = NO_RANK if spare else launch.rank
    host, _, port = (generation.master if generation else "").rpartition(":")
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(launch.local_rank),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(here),
        "GROUP_RANK": str(groups.index(node) if node in groups else NO_RANK),
        "GROUP_WORLD_SIZE": str(len(groups) if generation else spec.nnodes_max),
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(world),
        "ROLE_NAME": dict(spec.env).get("ROLE_NAME", "default"),
        "MASTER_ADDR": host.strip("[]"),
        "MASTER_PORT": port,
        "TORCHELASTIC_RESTART_COUNT": str(generation.restarts if generation else 0),
        **_layout(spec, rank, world),
    }


def _layout(spec: JobSpec, rank: int, world: int) -> dict[str, str]:
    sizes = spec.tensor_parallel, spec.pipeline_parallel, spec.context_parallel
    return Coordinates(rank, world, *sizes).variables()


def _nodes(generation: Generation | None) -> list[str]:
    return [seat.node for seat in generation.seats] if generation else []
