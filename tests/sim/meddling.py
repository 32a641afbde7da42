"""Simulate what people do at the worst moment: commands given twice, too late, or to what does not exist."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from controlplane.core.records import events as ev
from controlplane.core.records.model import JobPhase

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sim.world import World

STOPPED = "a person wants it so"


def operator(world: World) -> None:
    """Give a command that is out of date, or twice, or to nobody."""
    name = world.rng.choice(list(COMMANDS))
    world.say("operator", name)
    COMMANDS[name](world)


def _node(world: World) -> str:
    return world.rng.choice(world.agents).name


def _twice(world: World, event: ev.Event) -> None:
    world.feed(event)
    world.clock.after(world.rng.choice((0.0, 0.3, 5.0)), lambda: world.feed(event))


def _drain_twice(world: World) -> None:
    agent = world.rng.choice(world.agents)
    _twice(world, ev.DrainRequested(agent.name, "a test", 5.0, world.rng.random() < 0.3))


def _uncordon_twice(world: World) -> None:
    _twice(world, ev.CordonRequested(_node(world), False, ""))


def _submit_again(world: World) -> None:
    spec = dataclasses.replace(world.spec, snapshot_every=world.rng.choice((3, 5)))
    if "j" in world.etcd.specs and world.cluster is not None and "j" in world.cluster.state.jobs:
        job = world.cluster.state.jobs["j"]
        if job.phase not in (JobPhase.FAILED, JobPhase.STOPPED) and job.ending is None:
            _twice(world, ev.JobSubmitted(spec))


def _to_nobody(world: World) -> None:
    world.feed(ev.DrainRequested("n99", "a test", 5.0, True))
    world.feed(ev.CordonRequested("n99", True, "a test"))
    world.feed(ev.QuarantineReleased("n99", "a test"))
    world.feed(ev.JobStopRequested("nobody", "a test"))


def _release(world: World) -> None:
    _twice(world, ev.QuarantineReleased(_node(world), "a test"))


def _dcs(world: World) -> None:
    world.clock.after(0.0, lambda: _twice_at_once(world, ev.DcsChanged(False, "no answer")))
    world.clock.after(world.rng.uniform(0.1, 6.0), lambda: _answers(world))


def _answers(world: World) -> None:
    """Repeat it as a daemon does, until the current leader has heard it."""
    _twice_at_once(world, ev.DcsChanged(True))
    if world.cluster is None or world.cluster.state.dcs_trouble:
        world.clock.after(1.0, lambda: _answers(world))


def _twice_at_once(world: World, event: ev.Event) -> None:
    world.feed(event)
    world.feed(event)


COMMANDS: dict[str, Callable[[World], None]] = {
    "drain twice": _drain_twice,
    "uncordon twice": _uncordon_twice,
    "submit again": _submit_again,
    "to nobody": _to_nobody,
    "release twice": _release,
    "etcd away and back": _dcs,
}


def drain_midway(world: World) -> None:
    """Have a rank die, and a person drain a node during the recovery."""
    living = [r for agent in world.agents for r in agent.ranks.values() if r.alive and not r.stopped]
    if not living:
        return
    victim = world.rng.choice(living)
    agent = victim.agent if world.rng.random() < 0.5 else world.rng.choice(world.agents)
    world.say("drain_midway", f"{victim.name} dies, then {agent.name} is drained")
    victim.agent.exit(victim)
    event = ev.DrainRequested(agent.name, "a test", world.rng.choice((2.0, 20.0)), world.rng.random() < 0.3)
    world.clock.after(world.rng.uniform(0.0, 1.5), lambda: world.feed(event))


def pause(world: World) -> None:
    """Have a person pause the job, often while a checkpoint is under way, and ask for one; later resume
    it."""
    world.say("pause", "")
    world.feed(ev.PauseRequested("j", True, "a test"))
    if world.rng.random() < 0.5:
        _twice(world, ev.CheckpointWanted("j", "a test"))
    if world.rng.random() < 0.3:
        world.clock.after(world.rng.uniform(0.0, 3.0), lambda: _again(world))
    world.clock.after(world.rng.uniform(0.2, 8.0), lambda: resume(world))


def _again(world: World) -> None:
    """Have a second person pause it, perhaps after the first has resumed it."""
    world.feed(ev.PauseRequested("j", True, "again"))
    world.clock.after(world.rng.uniform(0.2, 8.0), lambda: resume(world))


def resume(world: World) -> None:
    """Resume as a patient person does: until the job is known to be no longer paused."""
    world.feed(ev.PauseRequested("j", False, "a test"))
    job = world.cluster.state.jobs.get("j") if world.cluster else None
    stored = world.etcd.states.get("j")
    if job is None or job.changes.pause or stored is None or stored.pause:
        world.clock.after(2.0, lambda: resume(world))


def stop_job(world: World) -> None:
    """Have a person stop the job, perhaps twice, and submit it again once it has ended."""
    world.say("stop_job", "")
    world.stops = True
    _twice(world, ev.JobStopRequested("j", STOPPED))
    world.clock.after(world.rng.uniform(0.5, 5.0), lambda: resubmit(world))


def resubmit(world: World) -> None:
    """Submit as a patient person does: until the job has begun again."""
    state = world.etcd.states.get("j")
    if state is not None and state.phase is JobPhase.STOPPED and state.reason == STOPPED:
        world.feed(ev.JobSubmitted(world.spec))
    world.clock.after(2.0, lambda: resubmit(world))
