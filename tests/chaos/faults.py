"""List what can go wrong: how a fault is made, how it is undone, what the journals must report of it."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.chaos import wires
from tests.chaos.cluster import COORDINATORS, ETCDS, LEADING, NODES, WATCHING, until

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tests.chaos.drive import Job
    from tests.chaos.wires import Fault

SILENT_S = LEADING["node_timeout_s"]


@dataclass(frozen=True, slots=True)
class Kind:
    """One row of the table. `judged`: a verdict must follow, whatever evidence came first.

    `told`: types or notes of journal lines, one of which must follow."""

    make: Callable[[Job, random.Random, Fault], None]
    judged: bool = False
    told: tuple[str, ...] = ()
    elastic_only: bool = False


# ------------------------------------------------------------------ ranks


def _rank(job: Job, chance: random.Random) -> int:
    return chance.randrange(job.size)


def killed(job: Job, chance: random.Random, fault: Fault) -> None:
    """SIGKILL, as from the kernel when memory is short."""
    rank = _rank(job, chance)
    fault.whom = f"rank {rank}"
    time.sleep(chance.uniform(0, 0.2))
    job.kill(rank)


def ordered(what: str) -> Callable[[Job, random.Random, Fault], None]:
    """Have the script do it by itself, in its next step."""

    def make(job: Job, chance: random.Random, fault: Fault) -> None:
        rank = _rank(job, chance)
        fault.whom = f"rank {rank}"
        fault.undo.append(job.withdraw)
        job.order(rank, what)
        until(lambda: job.obeyed(rank, what), lambda: f"rank {rank} obeys {what}", wires.OBEY_S)

    return make


def stopped(job: Job, chance: random.Random, fault: Fault) -> None:
    """SIGSTOP: the rank lives, and is silent."""
    rank = _rank(job, chance)
    fault.whom = f"rank {rank}"
    job.kill(rank, signal.SIGSTOP)


def two_ranks(job: Job, chance: random.Random, fault: Fault) -> None:
    """Kill two ranks on two nodes at once."""
    places = [job.place(rank) for rank in chance.sample(range(job.size), min(2, job.size))]
    fault.whom = " and ".join(node for node, _ in places)
    for node, pid in places:
        job.cluster[node].signal(pid, signal.SIGKILL)


def while_forming(job: Job, chance: random.Random, fault: Fault) -> None:
    """Kill a rank, and another while the group forms without the first: no other rank may get stuck in
    that."""
    places = [job.place(rank) for rank in chance.sample(range(job.size), min(2, job.size))]
    fault.whom = " and then ".join(node for node, _ in places)
    for node, pid in places:
        job.cluster[node].signal(pid, signal.SIGKILL)
        time.sleep(chance.uniform(0, 0.3))


def all_sorts(job: Job, chance: random.Random, fault: Fault) -> None:
    """Kill a rank, an agent elsewhere and the leader within half a second, during the first recovery."""
    rank = _rank(job, chance)
    node = chance.choice([each for each in NODES if job.cluster.running(each)])
    leader = job.leader()
    fault.whom = f"rank {rank}, the agent of {node}, {leader}"
    fault.undo += [_started(job, node), _started(job, leader)]
    job.kill(rank)
    time.sleep(chance.uniform(0, 0.25))
    job.cluster.signal(node, signal.SIGKILL)
    time.sleep(chance.uniform(0, 0.25))
    job.cluster.signal(leader, signal.SIGKILL)
    time.sleep(chance.uniform(0, 2))


# ------------------------------------------------------------------ devices and nodes


def device(job: Job, chance: random.Random, fault: Fault) -> None:
    """Break a device of a node that trains: the device of its rank, or an idle one."""
    node = chance.choice(job.nodes())
    number = chance.randrange(2)
    fault.whom = f"device {number} of {node}"
    path = job.cluster.devices(node)
    path.write_text(f"{number}\n")
    fault.undo.append(lambda: _void(path.write_text("")))
    time.sleep(WATCHING["device_timeout_s"] + 4)


def _started(job: Job, name: str) -> Callable[[], None]:
    """How to start a daemon, or its host, again."""

    def start() -> None:
        if not job.cluster[name].on:
            job.cluster.boot(name)
        elif not job.cluster.running(name):
            job.cluster.start(name)

    return start


def node_lost(job: Job, chance: random.Random, fault: Fault) -> None:
    """Switch a machine off, its memory too; it comes back before it is given up for lost, or after."""
    node = chance.choice(job.nodes())
    fault.whom = node
    fault.undo.append(_started(job, node))
    job.cluster.crash(node)
    time.sleep(chance.choice([chance.uniform(0, 3), SILENT_S + chance.uniform(1, 5)]))


def drained(job: Job, chance: random.Random, fault: Fault) -> None:
    """Have a person drain a node, and give it back."""
    node = chance.choice(job.nodes())
    fault.whom = node
    fault.undo.append(lambda: _must(job, "uncordon", node))
    _must(job, "drain", node, "--wait", "--deadline-s", "30")


def preempted(job: Job, chance: random.Random, fault: Fault) -> None:
    """SIGTERM to the agent, as when a machine is taken away; another one comes."""
    node = chance.choice(job.nodes())
    fault.whom = node
    job.cluster.signal(node, signal.SIGTERM)
    fault.undo.append(_started(job, node))
    limit_s = WATCHING["drain_grace_s"] + 25
    until(lambda: not job.cluster.running(node), lambda: f"the agent of {node} ends", limit_s)


def no_spare(job: Job, chance: random.Random, fault: Fault) -> None:
    """Take the idle node away, then one of the job's: the job must continue with fewer, and grow back."""
    idle, node = job.idle(), chance.choice(job.nodes())
    fault.whom = ", ".join([*idle, node])
    before = job.steps.look().generation
    for each in idle:
        fault.undo.append(_started(job, each))
        job.cluster.crash(each)
    time.sleep(SILENT_S + 2)
    fault.undo.append(_started(job, node))
    job.cluster.crash(node)

    def smaller() -> bool:
        _, ranks = job.steps.look().reached()
        return job.steps.generation > before and ranks < job.most

    until(smaller, lambda: f"it goes on with fewer than {job.most} nodes", 60)


def agent_killed(job: Job, chance: random.Random, fault: Fault) -> None:
    """SIGKILL of the agent alone: its ranks train on, and the next agent adopts them."""
    node = chance.choice(job.nodes())
    fault.whom = node
    fault.undo.append(_started(job, node))
    job.cluster.signal(node, signal.SIGKILL)
    time.sleep(chance.uniform(0, 3))


def mass_loss(job: Job, chance: random.Random, fault: Fault) -> None:
    """Switch half of the machines off at once, one of the job's among them."""
    hit = chance.choice(job.nodes())
    gone = [hit, chance.choice([name for name in NODES if name != hit])]
    fault.whom = " and ".join(gone)
    for each in gone:
        fault.undo.append(_started(job, each))
        job.cluster.crash(each)
    time.sleep(chance.uniform(1, SILENT_S + 5))


# ------------------------------------------------------------------ the coordinators and etcd


def leader_killed(job: Job, chance: random.Random, fault: Fault) -> None:
    """SIGKILL of the leader; another coordinator is started on its host."""
    fault.whom = leader = job.leader()
    fault.undo.append(_started(job, leader))
    job.cluster.signal(leader, signal.SIGKILL)
    time.sleep(chance.uniform(0, LEADING["lease_ttl_s"] + 2))


def leader_stopped(job: Job, chance: random.Random, fault: Fault) -> None:
    """SIGSTOP of the leader for longer than its lease; then it continues as if nothing had happened."""
    fault.whom = leader = job.leader()
    fault.undo.append(lambda: _void(job.cluster.signal(leader, signal.SIGCONT)))
    job.cluster.signal(leader, signal.SIGSTOP)
    time.sleep(LEADING["lease_ttl_s"] + chance.uniform(1, 6))


def leader_cut(job: Job, chance: random.Random, fault: Fault) -> None:
    """Cut the leader's host off from everything."""
    fault.whom = leader = job.leader()
    wires.cut(job, fault, leader, (*ETCDS, *NODES, *(each for each in COORDINATORS if each != leader)))
    time.sleep(LEADING["lease_ttl_s"] + chance.uniform(1, 6))


def control_cut(job: Job, chance: random.Random, fault: Fault) -> None:
    """Cut all nodes off from the coordinators: the nodes have done nothing wrong."""
    fault.whom = "all nodes"
    for each in COORDINATORS:
        wires.cut(job, fault, each, NODES)
    time.sleep(SILENT_S + chance.uniform(0, 3))


def etcd_member(job: Job, chance: random.Random, fault: Fault) -> None:
    """Kill one of three etcd members."""
    fault.whom = name = chance.choice(ETCDS)
    fault.undo.append(_started(job, name))
    job.cluster.signal(name, signal.SIGKILL)
    time.sleep(chance.uniform(1, 5))


def etcd_quorum(job: Job, chance: random.Random, fault: Fault) -> None:
    """Kill two of three etcd members, and a rank meanwhile, which waits for the decision."""
    gone = chance.sample(ETCDS, 2)
    fault.whom = " and ".join(gone)
    for name in gone:
        fault.undo.append(_started(job, name))
        job.cluster.signal(name, signal.SIGKILL)
    time.sleep(chance.uniform(0, 2))
    if chance.random() < 0.5:
        job.kill(_rank(job, chance))
    time.sleep(chance.uniform(2, 10))


def _void(_: object) -> None:
    """Ignore what an action returns."""


def _must(job: Job, *words: str) -> None:
    done = job.cluster.holdfast(*words)
    assert done.returncode == 0, f"holdfast {' '.join(words)}: {done.stderr or done.stdout}"


NEW_TERM = ("Elected",)
KINDS: dict[str, Kind] = {
    "rank.killed": Kind(killed, judged=True),
    "rank.exited": Kind(ordered("exit"), judged=True),
    "rank.raised": Kind(ordered("raise"), judged=True),
    "hang.sleeps": Kind(ordered("sleep"), judged=True),
    "hang.sends": Kind(ordered("send"), judged=True),
    "hang.holds_lock": Kind(ordered("lock"), judged=True),
    "hang.stopped": Kind(stopped, judged=True),
    "device.lost": Kind(device, told=("device_unhealthy",)),
    "node.lost": Kind(node_lost, judged=True),
    "node.drained": Kind(drained, judged=True),
    "node.preempted": Kind(preempted, judged=True),
    "network.cut_between": Kind(wires.cut_between, judged=True),
    "network.cut_coordinator": Kind(wires.cut_coordinator, judged=True),
    "network.one_way": Kind(wires.one_way, judged=True),
    "network.lossy": Kind(wires.lossy),
    "network.slow": Kind(wires.slow),
    "network.flapping": Kind(wires.flapping, told=("node_held",)),
    "several.ranks": Kind(two_ranks, judged=True),
    "several.while_forming": Kind(while_forming, judged=True),
    "several.all_sorts": Kind(all_sorts, told=NEW_TERM),
    "no_spare.shrinks": Kind(no_spare, judged=True, elastic_only=True),
    "numbers.nan": Kind(ordered("nan"), judged=True),
    "numbers.fault": Kind(ordered("fault"), judged=True),
    "coordinator.killed": Kind(leader_killed, told=NEW_TERM),
    "coordinator.stopped": Kind(leader_stopped, told=NEW_TERM),
    "coordinator.cut": Kind(leader_cut, told=NEW_TERM),
    "etcd.member": Kind(etcd_member),
    "etcd.quorum": Kind(etcd_quorum),
    "agent.killed": Kind(agent_killed, told=("NodeJoined",)),
    "mass_loss.nodes": Kind(mass_loss, judged=True),
    "mass_loss.control": Kind(control_cut, told=("mass_loss", "LeadershipEnded", "node_suspected")),
}
"""Every fault by its name: the row of docs/failures that it belongs to, a dot, and what is done."""


def causes(lines: list[dict[str, Any]]) -> list[str]:
    """The causes of the verdicts in these lines of the journals."""
    found = [line["body"]["verdict"]["cause"] for line in lines if line["type"] == "Judged"]
    return list(dict.fromkeys(found))


def explained(kind: Kind, lines: list[dict[str, Any]]) -> bool:
    """Whether these lines of the journals report a fault of this kind."""
    told = {line["type"] for line in lines} | {
        line["body"]["kind"] for line in lines if line["type"] == "Note"
    }
    return bool(not kind.judged or causes(lines)) and bool(not kind.told or told & set(kind.told))
