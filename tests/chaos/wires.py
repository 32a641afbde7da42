"""Disturb the network between hosts: cut it, one way or both, make it lossy, slow, flapping; and heal it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from controlplane.cli.local import network_spaces
from tests.chaos import hosts
from tests.chaos.cluster import COORDINATORS, NODES, WATCHING, until

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tests.chaos.drive import Job

FENCED_S = WATCHING["fence_after_s"]
OBEY_S = 30.0


@dataclass(slots=True)
class Fault:
    """One fault that is present. `undo`: what takes it back, newest first."""

    kind: str
    whom: str = ""
    undo: list[Callable[[], None]] = field(default_factory=list)

    def heal(self) -> None:
        """Undo all of it."""
        while self.undo:
            self.undo.pop()()


def _drop(job: Job, fault: Fault, host: str, chain: str, other: str, *match: str) -> None:
    one = job.cluster[host]
    rule = hosts.drop(one, chain, job.cluster[other], *match)
    life = one.pid
    fault.undo.append(lambda: hosts.allow(one, rule) if one.pid == life else None)


def cut(job: Job, fault: Fault, host: str, others: tuple[str, ...]) -> None:
    """Let a host and these others not hear each other, until the fault is healed."""
    for other in others:
        _drop(job, fault, host, "INPUT", other)
        _drop(job, fault, host, "OUTPUT", other)


def cut_between(job: Job, chance: random.Random, fault: Fault) -> None:
    """Cut two nodes of the job from each other; both reach the coordinator."""
    one, other = chance.sample(job.nodes(), 2)
    fault.whom = f"{one} and {other}"
    cut(job, fault, one, (other,))
    time.sleep(chance.uniform(8, 16))


def one_way(job: Job, chance: random.Random, fault: Fault) -> None:
    """Lose what one node sends to another."""
    one, other = chance.sample(job.nodes(), 2)
    fault.whom = f"{one} to {other}"
    _drop(job, fault, other, "INPUT", one)
    time.sleep(chance.uniform(8, 16))


def cut_coordinator(job: Job, chance: random.Random, fault: Fault) -> None:
    """Cut a node from every coordinator but not from its peers, until it is given up and has stopped its
    ranks."""
    node = chance.choice(job.nodes())
    fault.whom = node
    cut(job, fault, node, COORDINATORS)
    time.sleep(FENCED_S + chance.uniform(2, 5))


def lossy(job: Job, chance: random.Random, fault: Fault) -> None:
    """Lose a part of what reaches a node."""
    node, share = chance.choice(job.nodes()), chance.choice(["0.02", "0.10", "0.25"])
    fault.whom = f"{share} of what {node} is sent"
    for other in (*NODES, *COORDINATORS):
        if other != node:
            _drop(
                job,
                fault,
                node,
                "INPUT",
                other,
                "-m",
                "statistic",
                "--mode",
                "random",
                "--probability",
                share,
            )
    time.sleep(chance.uniform(5, 10))


def slow(job: Job, chance: random.Random, fault: Fault) -> None:
    """Limit what a node's cable carries."""
    node = chance.choice(job.nodes())
    host = job.cluster[node]
    fault.whom = node
    network_spaces.slow(host, chance.choice(["128kbit", "512kbit", "2mbit"]))
    fault.undo.append(lambda: network_spaces.quick(host))
    time.sleep(chance.uniform(5, 10))


def flapping(job: Job, chance: random.Random, fault: Fault) -> None:
    """Break a node's line to the coordinators and restore it, again and again."""
    node = chance.choice(job.nodes())
    fault.whom = node
    for _ in range(5):
        flap(job, node)
        time.sleep(chance.uniform(0.2, 1))


def flap(job: Job, node: str) -> None:
    """Break a node's stream. Returns when it has another."""
    before = job.joined(node)
    hosts.reset(job.cluster[node], 7070)
    until(lambda: job.joined(node) > before, lambda: f"the agent of {node} joins again", OBEY_S)
