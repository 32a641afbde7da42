"""Say what the fleet is: its nodes, their jobs and ranks, and what a former leader has left in etcd."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.core.records.events import NodeBeat, NodeJoined
from controlplane.core.records.model import (
    Cause,
    Failure,
    Generation,
    JobPhase,
    JobSpec,
    JobState,
    MemberPhase,
    MemberStatus,
    Placement,
    Resume,
    Tier,
)
from controlplane.core.records.stores import StoreJob, StoreNode
from controlplane.daemon.server.relay_table import SENDERS_MAX
from holdfast.snapshots.letting_go import REPORTS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterator

RANKS = 8
NODES_PER_JOB = 100
STEP_S = 0.1
"""How long a step takes."""
SNAPSHOT_EVERY = 10
OFFER_EVERY = round(NODES_PER_JOB * RANKS / REPORTS_PER_S / STEP_S)
"""Of the snapshots after every step, the coordinator is told of so few."""
ADDRESS, PORT = "127.0.0.1", 29500
_SIGKILL = 9


def name_of(node: int) -> str:
    """The name of a node, by its number."""
    return f"n{node:05}"


def job_of(node: int) -> str:
    """The job that has all of a node."""
    return f"train{node // NODES_PER_JOB:03}"


def training(job: str, first: int, nodes: int) -> tuple[JobSpec, JobState, Generation]:
    """What etcd has of a job in its first generation, on all ranks of so many nodes from `first` on."""
    seats = tuple(
        Placement(rank, f"{job}.{rank}", name_of(first + rank // RANKS), rank % RANKS)
        for rank in range(nodes * RANKS)
    )
    store, master, resume = f"{ADDRESS}:29400", f"{ADDRESS}:29401", Resume(Tier.FRESH, 0)
    generation = Generation(job, 1, 1, seats, store, master, resume, "the first launch")
    spec = JobSpec(
        job, ("t.py",), "/", (), nodes, nodes, RANKS, snapshot_every=SNAPSHOT_EVERY, snapshot_auto=True
    )
    return spec, JobState(job, JobPhase.RUNNING, ""), generation


def offered_in(node: int, step: int) -> int:
    """The newest step whose snapshot the node's ranks have offered when they are in this step. Jobs do so
    at moments of their own."""
    shift = node // NODES_PER_JOB * 7 * SNAPSHOT_EVERY % OFFER_EVERY
    return (step - 1 + shift) // OFFER_EVERY * OFFER_EVERY - shift


def members_of(node: int, step: int) -> tuple[MemberStatus, ...]:
    """The ranks of a node in this step. Each has made a snapshot after every step, and offered some."""
    job, first, offered = job_of(node), node % NODES_PER_JOB * RANKS, offered_in(node, step)
    return tuple(
        MemberStatus(
            *(f"{job}.{rank}", job, MemberPhase.RUNNING),
            elastic=True, generation=1, rank=rank, step=step, pid=1000 + rank,
            snapshot_step=offered, snapshot_generation=1, offers=True,
        )
        for rank in range(first, first + RANKS)
    )  # fmt: skip


def joined(node: int, incarnation: int, step: int, peer: str = "") -> NodeJoined:
    """What the node's agent says first. `peer`: where it takes heartbeats of others; "": nowhere."""
    return NodeJoined(
        name_of(node), incarnation, "launcher", ADDRESS, RANKS, PORT, members_of(node, step), peer=peer
    )


def beat(node: int, incarnation: int, seq: int, step: int, *, killed: bool = False) -> NodeBeat:
    """A heartbeat. `killed`: the node's first rank has got SIGKILL."""
    members = members_of(node, step)
    if killed:
        members = (_dead(members[0]), *members[1:])
    return NodeBeat(name_of(node), incarnation, seq, PORT, members)


def _dead(status: MemberStatus) -> MemberStatus:
    failure = Failure(Cause.SIGNALED, "killed by signal 9", signal=_SIGKILL, step=status.step)
    return dataclasses.replace(status, phase=MemberPhase.EXITED, pid=0, failure=failure)


@dataclass(frozen=True, slots=True)
class Fleet:
    """So many nodes, in jobs of NODES_PER_JOB that train on all of theirs."""

    nodes: int
    relays: bool = False  # some agents pass on the heartbeats of others

    @property
    def relay_numbers(self) -> range:
        """The nodes that can be relays: as few as are needed, so that their cost can be told apart."""
        return range(0, self.nodes if self.relays else 0, SENDERS_MAX)

    def __post_init__(self) -> None:
        if self.nodes <= 0 or self.nodes % NODES_PER_JOB:
            raise ValueError(f"--nodes must be a multiple of {NODES_PER_JOB}, not {self.nodes}")

    @property
    def jobs(self) -> int:
        """How many jobs there are."""
        return self.nodes // NODES_PER_JOB

    def records(self) -> Iterator[StoreJob | StoreNode]:
        """What the leader before has stored: every node is up, every job trains in its first generation."""
        for node in range(self.nodes):
            yield StoreNode(name_of(node), "up", "", ADDRESS, name_of(node))
        for number in range(self.jobs):
            yield self._job(number)

    def _job(self, number: int) -> StoreJob:
        first = number * NODES_PER_JOB
        spec, state, generation = training(job_of(first), first, NODES_PER_JOB)
        return StoreJob(spec.job, state, spec, generation)
