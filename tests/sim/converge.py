"""Check that, once faults stop, the job ends, or reports what it lacks and ends once it has that."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from controlplane.core.records.model import JobPhase
from controlplane.core.state.job import ENDED
from tests.sim.meddling import STOPPED

if TYPE_CHECKING:
    from tests.sim.world import World

LOOK_EVERY_S = 60.0
LOOKS_MAX = 12
WAITS = (JobPhase.PARKED, JobPhase.PENDING)
LACKS = re.compile(r"\d+ of (at least )?\d+|\d+ nodes are there; waits a little for up to \d+")


class Stuck(AssertionError):
    """Faults have stopped, and the job neither ends nor reports what it lacks."""


def see_to_the_end(world: World) -> None:
    """Let time pass until the job has finished. A job that lacks nodes must say so, and then gets them
    back."""
    for _ in range(LOOKS_MAX):
        world.clock.run(world.clock.now + LOOK_EVERY_S, lambda: _over(world))
        if _over(world):
            break
        if _waits(world):
            assert _names_what_is_missing(world), f"it waits, and does not say for what: {_where(world)}"
            world.say("mend", _where(world))
            world.parked += 1
            for agent in world.agents:
                agent.mend()
    if not _over(world):
        raise Stuck(_where(world))
    state = world.etcd.states["j"]
    assert state.phase is JobPhase.FINISHED, f"the job ended {state.phase}: {state.reason}"


def _over(world: World) -> bool:
    state = world.etcd.states.get("j")
    if world.faults_on or state is None or state.phase not in ENDED:
        return False
    if state.phase is JobPhase.STOPPED and state.reason == STOPPED:
        return False
    return all(not rank.alive for agent in world.agents for rank in agent.ranks.values())


def _waits(world: World) -> bool:
    """Whether the job waits; one that has lost a node also does if no verdict is given because too many nodes
    are lost. One that trains on without the lost nodes does not."""
    job = world.cluster.state.jobs.get("j") if world.cluster else None
    gone = {agent.name for agent in world.agents if agent.gone}
    if not gone or job is None:
        return False
    held = bool(world.cluster and world.cluster.state.paused)
    return job.phase in WAITS or (held and not gone.isdisjoint(job.seat_nodes()))


def _names_what_is_missing(world: World) -> bool:
    job = world.cluster.state.jobs["j"] if world.cluster else None
    reason = job.reason if job is not None else ""
    gone = [agent.name for agent in world.agents if agent.gone]
    return any(re.search(rf"\b{name}\b", reason) for name in gone) or LACKS.search(reason) is not None


def _where(world: World) -> str:
    job = world.cluster.state.jobs.get("j") if world.cluster else None
    if job is None:
        return "no leader knows the job"
    seats = [f"{m.rank}:{m.name}@{m.node} {m.phase}" for m in job.seated()]
    return f"{job.phase} ({job.reason}) with {seats}"
