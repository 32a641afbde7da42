"""Measure the core at size, by itself: one event, one recovery decision, a node that joins a new leader.

Prints JSON. This is the one benchmark that imports the decision core: through a command line, that would be
measured too."""

from __future__ import annotations

import gc
import json
import statistics
import sys
from time import process_time

from controlplane.core.cluster import Cluster
from controlplane.core.records import events as ev
from controlplane.core.records.effects import Launch, Store
from controlplane.core.records.model import Cause, Failure, JobPhase, JobSpec, MemberPhase, MemberStatus

RANKS_PER_NODE = 8


def cluster(nodes: int) -> tuple[Cluster, dict[str, list[MemberStatus]]]:
    """A cluster in which one job with one rank per slot runs on every node."""
    made = Cluster()
    made.step(0.0, ev.Elected(1))
    for number in range(nodes):
        made.step(0.0, ev.NodeJoined(f"n{number}", 1, f"l{number}", f"n{number}", RANKS_PER_NODE, 1))
    spec = JobSpec("j", ("t.py",), "/", nnodes_min=nodes, nnodes_max=nodes, nproc_per_node=RANKS_PER_NODE)
    effects = made.step(0.1, ev.JobSubmitted(spec))
    members: dict[str, list[MemberStatus]] = {}
    while effects:
        stores = [each.ticket for each in effects if isinstance(each, Store)]
        for each in effects:
            if isinstance(each, Launch):
                status = MemberStatus(
                    each.member, "j", MemberPhase.RUNNING, elastic=True, generation=1, rank=each.rank,
                    step=1, store=f"{each.node}:1",
                )  # fmt: skip
                members.setdefault(each.node, []).append(status)
        effects = [found for ticket in stores for found in made.step(0.1, ev.Stored(ticket))]
    for phase in (MemberPhase.READY, MemberPhase.RUNNING):
        for number in range(nodes):
            beat(made, members, number, phase, 1.0)
    return made, members


def beat(
    made: Cluster, members: dict[str, list[MemberStatus]], number: int, phase: MemberPhase, now: float
) -> None:
    """One node's beat with all its statuses. Writes are answered at once."""
    name = f"n{number}"
    seq = made.state.nodes[name].seq + 1
    statuses = tuple(_as(status, phase) for status in members.get(name, []))
    effects = made.step(now, ev.NodeBeat(name, 1, seq, 1, statuses))
    for each in effects:
        if isinstance(each, Store):
            made.step(now, ev.Stored(each.ticket))


def _as(status: MemberStatus, phase: MemberPhase) -> MemberStatus:
    held = 1 if phase is MemberPhase.READY else -1
    return MemberStatus(
        status.member, "j", phase, elastic=True, generation=1, rank=status.rank, step=1, held_step=held,
        store=status.store,
    )  # fmt: skip


def rejoining(made: Cluster, members: dict[str, list[MemberStatus]]) -> float:
    """The mean cost (us) of a node that trains on and joins a new leader."""
    job = made.state.jobs["j"]
    assert job.generation is not None
    successor = Cluster()
    known = ev.Elected(
        2, nodes=tuple(members), specs=(job.spec,), states=(job.state(),), generations=(job.generation,)
    )
    successor.step(0.0, known)
    begun = process_time()
    for number, (name, statuses) in enumerate(members.items()):
        trains = tuple(_as(status, MemberPhase.RUNNING) for status in statuses)
        successor.step(0.0, ev.NodeJoined(name, 1, f"l{number}", name, RANKS_PER_NODE, 1, trains))
    assert successor.state.jobs["j"].phase is JobPhase.RUNNING, "the new leader does not see it train"
    return (process_time() - begun) / len(members) * 1e6


def measure(nodes: int) -> dict[str, float]:
    """The median cost of a steady beat and of a node that joins a new leader (us), and of a decision (ms).

    The decision is about a dead rank. Processor time is measured, because the core waits for nothing and a
    busy machine would spoil wall time."""
    made, members = cluster(nodes)
    gc.collect()
    gc.disable()
    costs = []
    for round_ in range(3):
        for number in range(min(nodes, 400)):
            begun = process_time()
            beat(made, members, number, MemberPhase.RUNNING, 2.0 + round_)
            costs.append(process_time() - begun)
    rejoin_us = rejoining(made, members)
    victim = members["n1"][0]
    dead = MemberStatus(
        victim.member, "j", MemberPhase.EXITED, elastic=True, generation=1, rank=victim.rank, step=1,
        failure=Failure(Cause.SIGNALED, "killed by signal 9", signal=9),
    )  # fmt: skip
    begun = process_time()
    made.step(6.0, ev.MemberReport("n1", 1, 10_000, dead))
    decision_s = process_time() - begun
    gc.enable()
    return {
        "event_us": statistics.median(costs) * 1e6,
        "rejoin_us": rejoin_us,
        "decision_ms": decision_s * 1e3,
    }


if __name__ == "__main__":
    print(json.dumps({size: measure(int(size)) for size in sys.argv[1:]}))
