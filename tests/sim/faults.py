"""List what goes wrong: a table of faults, each a function of the world that draws from its seed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.records import events as ev
from controlplane.core.records.model import MemberPhase
from tests.sim.frozen import freeze
from tests.sim.hanging import hang
from tests.sim.meddling import drain_midway, operator, pause, stop_job
from tests.sim.numbers import bitflip, nan
from tests.sim.parting import mute, part
from tests.sim.streams import agent_pause, one_way

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sim.agents import Agent
    from tests.sim.ranks import Rank
    from tests.sim.world import World


def _living(world: World) -> list[Rank]:
    return [r for agent in world.agents for r in agent.ranks.values() if r.alive and not r.stopped]


def _agent(world: World) -> Agent:
    return world.rng.choice(world.agents)


def kill(world: World) -> None:
    """Kill one process (SIGKILL), in whatever phase it is."""
    if living := _living(world):
        victim = world.rng.choice(living)
        world.say("kill", f"{victim.name} ({victim.phase}) on {victim.agent.name}")
        victim.agent.exit(victim)


def kill_node(world: World) -> None:
    """Kill every rank process of one node at once; the agent lives."""
    agent = _agent(world)
    world.say("kill_node", agent.name)
    for rank in [r for r in agent.ranks.values() if r.alive]:
        agent.exit(rank)


def stop(world: World) -> None:
    """Stop a process (SIGSTOP): the agent takes it for dead after its timeout."""
    if living := [r for r in _living(world) if r.phase in (MemberPhase.RUNNING, MemberPhase.FORMING)]:
        victim = world.rng.choice(living)
        world.say("stop", victim.name)
        victim.stopped = True


def wedge(world: World) -> None:
    """Have a process beat but not stop when it is ordered to."""
    if living := _living(world):
        victim = world.rng.choice(living)
        world.say("wedge", victim.name)
        victim.wedged = True


def agent_restart(world: World) -> None:
    """Kill an agent (kill -9): it is back soon, or after its node was given up. Its ranks train on."""
    agent = _agent(world)
    if not agent.up:
        return
    world.say("agent_restart", agent.name)
    agent.die()
    world.broken(agent)

    def back() -> None:
        agent.up = True
        agent.restart()

    world.clock.after(world.rng.choice((world.rng.uniform(0.2, 4.0), world.rng.uniform(4.0, 25.0))), back)


def node_restart(world: World) -> None:
    """Have a machine go down and come back empty."""
    agent = _agent(world)
    if not agent.up:
        return
    world.say("node_restart", agent.name)
    agent.down()
    world.broken(agent)
    world.clock.after(world.rng.uniform(1.0, 12.0), agent.reboot)


def cut(world: World) -> None:
    """Cut one agent off the leader for a while: no packet passes."""
    agent = _agent(world)
    for_s = world.rng.choice((0.5, 3.0, 8.0, 15.0))
    world.say("cut", f"{agent.name} for {for_s} s")
    agent.cut_until = world.clock.now + for_s
    if world.rng.random() < 0.5:
        world.broken(agent)


def flap(world: World) -> None:
    """Break one stream; it is back at the next beat."""
    agent = _agent(world)
    world.say("flap", agent.name)
    world.broken(agent)


def coordinator(world: World) -> None:
    """Kill the leader (kill -9); another is elected from what etcd holds."""
    if world.cluster is not None:
        world.say("coordinator", f"term {world.term} ends")
        world.crash()


def etcd_outage(world: World) -> None:
    """Have etcd answer only errors for a while."""
    for_s = world.rng.choice((world.rng.uniform(0.5, 6.0), world.rng.uniform(6.0, 30.0)))
    world.say("etcd_outage", f"{for_s:.1f} s")
    world.etcd_away_until = world.clock.now + for_s


def rot(world: World) -> None:
    """Damage the newest checkpoint on the storage."""
    if world.storage.lines:
        name = list(world.storage.lines)[-1]
        world.say("rot", name)
        world.storage.rotten.add(name)


def node_away(world: World) -> None:
    """Have a machine go down for long."""
    agent = _agent(world)
    if agent.up:
        for_s = world.rng.uniform(15.0, 40.0)
        world.say("node_away", f"{agent.name} for {for_s:.1f} s")
        agent.down()
        world.broken(agent)
        world.clock.after(for_s, agent.reboot)


def node_gone(world: World) -> None:
    """Have a machine go down, and stay down until the job reports that it lacks it."""
    agent = _agent(world)
    if agent.up and not agent.leaving:
        world.say("node_gone", agent.name)
        agent.gone = True
        agent.down()
        world.broken(agent)


def drain(world: World) -> None:
    """Have a person drain a node, perhaps by force, and sometimes change their mind."""
    agent, rng = _agent(world), world.rng
    deadline_s, force = rng.choice((2.0, 20.0)), rng.random() < 0.3
    world.say("drain", f"{agent.name} within {deadline_s} s, force={force}")
    world.feed(ev.DrainRequested(agent.name, "a test", deadline_s, force))
    if rng.random() < 0.5:
        undo = ev.CordonRequested(agent.name, False, "")
        world.clock.after(rng.uniform(0.1, 15.0), lambda: world.feed(undo))


def cordon(world: World) -> None:
    """Have a person cordon a node, or uncordon it."""
    agent = _agent(world)
    on = world.rng.random() < 0.5
    world.say("cordon", f"{agent.name} {on}")
    world.feed(ev.CordonRequested(agent.name, on, "a test"))


def sigterm(world: World) -> None:
    """Have a machine be taken away: its agent announces that, and has a while."""
    agent = _agent(world)
    if agent.up and not agent.leaving:
        grace_s = world.rng.choice((1.0, 8.0))
        world.say("sigterm", f"{agent.name}, {grace_s} s")
        agent.sigterm(grace_s)


def device(world: World) -> None:
    """Have a device become bad, or well again."""
    agent = _agent(world)
    name, healthy = f"gpu{world.rng.randrange(agent.slots)}", world.rng.random() < 0.4
    world.say("device", f"{name} of {agent.name} {healthy}")
    agent.readings[name] = healthy


FAULTS: dict[str, Callable[[World], None]] = {
    "kill": kill,
    "kill_node": kill_node,
    "stop": stop,
    "hang": hang,
    "wedge": wedge,
    "agent_restart": agent_restart,
    "node_restart": node_restart,
    "cut": cut,
    "flap": flap,
    "coordinator": coordinator,
    "etcd_outage": etcd_outage,
    "rot": rot,
    "part": part,
    "mute": mute,
    "freeze": freeze,
    "one_way": one_way,
    "agent_pause": agent_pause,
    "nan": nan,
    "operator": operator,
    "pause": pause,
    "stop_job": stop_job,
}
"""Faults that every job may meet, by name."""

RESIZES: dict[str, Callable[[World], None]] = {
    "node_away": node_away,
    "drain": drain,
    "cordon": cordon,
    "sigterm": sigterm,
    "device": device,
    "drain_midway": drain_midway,
    "node_gone": node_gone,
}
"""Faults that change which places a job may have."""

EVERY = FAULTS | RESIZES
BY_NAME = {"bitflip": bitflip}
"""Faults that happen only where they are named: they need a job with a policy of its own."""

WEIGHTS = {"kill": 6, "kill_node": 2, "coordinator": 2}
"""How often each is drawn; 1 unless named."""
