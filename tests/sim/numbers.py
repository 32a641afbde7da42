"""Simulate wrong numbers: ranks that find a NaN, replicas that differ, and the states that must not be used
after that."""

from __future__ import annotations

import dataclasses
import random
from typing import TYPE_CHECKING, Any

from controlplane.core.records import events as ev
from controlplane.core.records.model import Fault, JobPhase, MemberPhase

if TYPE_CHECKING:
    from collections.abc import Collection

    from controlplane.core.records.model import JobSpec
    from tests.sim.ranks import Rank
    from tests.sim.world import World

ACT = "act"
OF = " of generation "
CHECK_EVERY = 3
"""Steps between two comparisons of replicas: those between two snapshots."""
REPORTING = 0.25
"""The share of the jobs that only report replicas that differ, and go on."""


def nan(world: World) -> None:
    """Have a rank report a NaN. Each step does so once at most, or the job would rightly end."""
    ranks = [r for agent in world.agents for r in agent.ranks.values() if r.alive and not r.stopped]
    running = [r for r in ranks if r.phase is MemberPhase.RUNNING and r.elastic and r.held not in world.wrong]
    if running:
        victim = world.rng.choice(running)
        world.say("nan", f"{victim.name} in step {victim.held}")
        world.wrong.add(victim.held)
        where = {"generation": victim.generation, "step": victim.held}
        victim.say("fault", keep=True, kind="nan", reason="loss is nan", rollback=False, **where)


def checked(faults: Collection[str], spec: JobSpec, seed: int) -> JobSpec:
    """The job as it has to be for these faults: one that compares replicas, if bits flip.

    Most act on replicas that differ, and some only report it. The seed alone says which: nothing is drawn
    from the world's own chance, so whatever else happens in it is the same."""
    if "bitflip" not in faults:
        return spec
    reports = random.Random(f"on_corrupt_state {seed}").random() < REPORTING
    policy = "" if reports else ACT
    return dataclasses.replace(spec, check_replicas_every=CHECK_EVERY, on_corrupt_state=policy)


def bitflip(world: World) -> None:
    """Have a rank report that replicas differ since the newest multiple of CHECK_EVERY steps."""
    ranks = [r for agent in world.agents for r in agent.ranks.values() if r.alive and not r.stopped]
    running = [
        r for r in ranks if r.phase is MemberPhase.RUNNING and r.elastic and r.generation in world.groups
    ]
    if running:
        speaker, victim = world.rng.choice(running), world.rng.choice(running)
        first = world.groups[speaker.generation].generation.resume.step
        step = max(speaker.held, first)
        world.say("bitflip", f"rank {victim.rank} before step {step}")
        where = {"generation": speaker.generation, "step": step}
        everybody = list(range(speaker.world_size))
        odd = [victim.rank] if len(everybody) > 2 and victim.generation == speaker.generation else []
        agreed = max(first, step - step % CHECK_EVERY)
        fields = {"ranks": everybody, "odd": odd, "agreed_step": agreed, "more": 0, "buffers": False, **where}
        if world.rng.random() < 0.5:
            speaker.say("replicas", keep=True, **fields)
        else:
            _replay(world, speaker, fields)


def _replay(world: World, speaker: Rank, fields: dict[str, Any]) -> None:
    """Have the steps run again for a while, after which the speaker says what that gave, if it lives."""
    count, odd = len(fields["ranks"]), fields["odd"]
    differs = {"shift": 0, "common": "a", "ranks": odd, "digests": ["b"] * len(odd)}
    again = {"kind": "again", "shift": 0, "common": world.rng.choice("ac"), "ranks": [], "digests": []}
    passes = [{"kind": "seen", **differs}, again, again] if count > 1 else []

    def over() -> None:
        if speaker.generation == fields["generation"] and speaker.phase is MemberPhase.RUNNING:
            world.say("replayed", f"{speaker.name} {again['common']}")
            world.struck["replayed"] = world.struck.get("replayed", 0) + 1
            speaker.say("replicas", keep=True, replay="done", passes=passes, **fields)

    speaker.say("replicas", keep=True, replay="running", **fields)
    speaker.agent.later(world.rng.uniform(0.05, 0.6), speaker, over)


def taken(world: World, event: ev.Event) -> Fault | None:
    """The anomaly that this event tells of, if the leader must act on it: states that are never used again.

    Both a NaN and replicas that differ count for every generation that etcd holds, however late that is
    heard, until the ranks may return from their function."""
    if not isinstance(event, ev.UserFault | ev.ReplicasReported):
        return None
    job = world.cluster.state.jobs.get(event.job) if world.cluster else None
    if job is None or job.ended or job.ending is not None or job.generation is None:
        return None
    counts = event.generation in job.generations.known and job.phase is not JobPhase.LEAVING
    if isinstance(event, ev.UserFault):
        return Fault(max(event.step, 1), event.generation) if counts else None
    acts = bool(event.ranks) and world.spec.on_corrupt_state == ACT
    return Fault(event.agreed_step + 1, event.generation, corrupt=True) if acts and counts else None


def born(line: str) -> int:
    """The generation that computed the states of a lineage."""
    return int(line.rpartition(OF)[2]) if OF in line else 0


def hit(fault: Fault, step: int, line: str) -> bool:
    """Whether an anomaly makes this state untrusted."""
    return step >= fault.step and born(line) <= fault.generation
