"""Make up probes of links in which somebody is slow or busy on purpose.

It knows nothing of the judge, so that no limit of his decides what is planted; `matrix_scores` asks him."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from controlplane.core.failures.network import distances
from controlplane.core.records.diagnosis import LinkProbe, ProbeEnd

Named = frozenset[tuple[str, tuple[str, ...]]]
KINDS = (
    *("nothing", "noise", "busy_node", "racks", "slow_link", "one_way", "slow_node", "slow_network"),
    *("two_nodes", "unreachable", "slow_node_unreachable"),
    *("busy_turns", "all_busy", "no_loopback", "busy_of_four", "slow_link_some_busy", "slow_node_some_busy"),
    *("older_agents", "slow_agent"),
)
"""What is planted. `noise`: probes differ by half; `racks`: links between racks carry a third.

`busy_node`: a node's processors are busy, so all of its probes are slow; `no_loopback`: the same, and it has
not probed itself; `busy_turns`: some nodes are busy, but not when they probe themselves; `all_busy`: all are,
now and then; `busy_of_four`: of four nodes one is busy, and the others now and then; `some_busy`: beside what
is planted some other nodes are busy, but not when they probe themselves; `older_agents`: as `busy_turns`, and
no agent says how long it waited; `slow_agent`: an agent computes long for each block of its links."""
BUSY_SHARE = 0.25
"""Nodes that are busy, where some are."""
BUSY_TURNS, NOW_AND_THEN = 0.9, 0.6
"""The share of its probes in which a busy node is busy."""
BUSY_FACTOR = (1.5, 8.0)
"""How many times longer a probe takes then."""
COUNTED = (0.6, 1.3)
"""How much of that the kernel counts as waiting of the agent: some of it is the kernel's own work, and of
several threads each is counted."""
CALM_SHARE = (0.01, 0.12)
"""The share of a block's time that an agent waits for a CPU on a calm machine, measured on two CPUs by agents
with a real-time priority."""
RAN_SHARE = (0.2, 0.65)
"""The share in which it runs, when the link carries as much as the agents can send."""
BLOCK_BYTES = 2 << 20
PAIRS_UP_TO = 8
"""In jobs of so many nodes each probes all others; in larger ones those at distances of a power of two."""
ROUNDS_BEFORE, ROUNDS = 1, 3
"""How often the links are probed before the suspicion, and in it."""
ROUND_S, SUSPECTED_S, ASKED_S = 20.0, 100.0, 180.0
"""The time between two rounds, that of the suspicion, and when somebody is to be named."""


@dataclass(frozen=True, slots=True)
class NodeProbes:
    """What one node measured in one round."""

    node: str
    at_s: float
    suspected: bool
    probes: tuple[LinkProbe, ...]


@dataclass(frozen=True, slots=True)
class Planted:
    """A made-up job: what its nodes measured, in order, and what is to be named at ASKED_S. `domains`: the
    rack of each node; empty: nobody knows."""

    nodes: tuple[str, ...]
    domains: dict[str, str]
    rounds: tuple[NodeProbes, ...]
    expected: Named


def planted(kind: str, seed: int, noise: float = 1.0) -> Planted:
    """A job of 4 to 40 nodes with this trouble, probed once before the suspicion, and as often as needed in
    it. `noise`: how many times wider than usual its probes scatter."""
    return _Job(kind, seed, noise).played()


def probed_by(nodes: list[str], index: int) -> list[str]:
    """Whom the node at `index` probes, in order, itself first."""
    size = len(nodes)
    steps = range(1, size) if size <= PAIRS_UP_TO else distances(size)
    return [nodes[index], *(nodes[(index + step) % size] for step in steps)]


class _Job:
    """One made-up job. All chance is that of its seed."""

    def __init__(self, kind: str, seed: int, noise: float) -> None:
        self.kind = kind
        self.chance = chance = Random(f"{kind} {seed}")
        count = {"two_nodes": 2, "busy_of_four": 4}.get(kind) or chance.randint(4, 40)
        self.nodes = [f"n{index:02d}" for index in range(count)]
        self.factor, self.speed = chance.uniform(2.5, 12.0), 10 ** chance.uniform(7.0, 9.0)
        self.sigma = noise * (0.35 if kind == "noise" else chance.uniform(0.02, 0.12))
        index = chance.randrange(count)
        self.victim = self.nodes[index]
        self.other = chance.choice(probed_by(self.nodes, index)[1:])
        self.lost = self.nodes[(index + 1) % count] if "unreachable" in kind else ""
        racks = kind == "racks"
        self.domains = {node: f"rack{at * 2 // count}" for at, node in enumerate(self.nodes)} if racks else {}
        self.busy = self._busy()

    def _busy(self) -> dict[str, float]:
        """The nodes that are busy, and in which share of their turns on a link."""
        others = [node for node in self.nodes if node not in (self.victim, self.other)]
        some = max(1, round(BUSY_SHARE * len(self.nodes)))
        return {
            "busy_turns": lambda: dict.fromkeys(self.chance.sample(self.nodes, some), BUSY_TURNS),
            "older_agents": lambda: dict.fromkeys(self.chance.sample(self.nodes, some), BUSY_TURNS),
            "all_busy": lambda: dict.fromkeys(self.nodes, NOW_AND_THEN),
            "busy_of_four": lambda: dict.fromkeys(others, NOW_AND_THEN) | {self.other: NOW_AND_THEN},
            "slow_link_some_busy": lambda: dict.fromkeys(others[:some], BUSY_TURNS),
            "slow_node_some_busy": lambda: dict.fromkeys(others[:some], BUSY_TURNS),
        }.get(self.kind, dict)()

    def played(self) -> Planted:
        """Probe it, and say what is to be named."""
        rounds = [
            self._probes(at, turn, suspected=suspected)
            for times, suspected in ((ROUNDS_BEFORE, False), (ROUNDS, True))
            for turn in range(times)
            for at in range(len(self.nodes))
        ]
        return Planted(tuple(self.nodes), self.domains, tuple(rounds), self._expected())

    def _probes(self, at: int, turn: int, *, suspected: bool) -> NodeProbes:
        """What the node at this place measures in its turn."""
        one, at_s = self.nodes[at], ROUND_S * turn + SUSPECTED_S * suspected
        found = (self._probe(one, far, suspected=suspected) for far in probed_by(self.nodes, at))
        return NodeProbes(one, at_s, suspected, tuple(found))

    def _expected(self) -> Named:
        pair = (min(self.victim, self.other), max(self.victim, self.other))
        link, node = frozenset({("slow_link", pair)}), frozenset({("slow_node_network", (self.victim,))})
        found: dict[str, Named] = {
            "slow_link": link,
            "one_way": link,
            "slow_link_some_busy": link,
            "slow_node": node,
            "slow_node_unreachable": node,
            "slow_node_some_busy": node,
            "slow_network": frozenset({("slow_network", ())}),
            "two_nodes": frozenset({("slow_link", tuple(self.nodes))}),
        }
        return found.get(self.kind, frozenset())

    def _probe(self, one: str, far: str, *, suspected: bool) -> LinkProbe:
        noise = self.chance.lognormvariate
        if suspected and one != far and self.lost in (one, far):
            return LinkProbe(far, reason="no answer within 2 s")
        if self.kind == "no_loopback" and one == far == self.victim:
            return LinkProbe(far, reason="no answer within 2 s")
        held_up = self._held_up(one, far, suspected)
        slower = self._slower(one, far, suspected) * held_up
        speed = self.speed / slower * noise(0.0, self.sigma)
        block_s, rtt_s = BLOCK_BYTES / speed, 0.0005 * noise(0.0, self.sigma)
        here, there = self._ends(one, far, block_s, slower, held_up)
        return LinkProbe(far, rtt_s, speed, BLOCK_BYTES, "", block_s, here, there)

    def _ends(
        self, one: str, far: str, block_s: float, slower: float, held_up: float
    ) -> tuple[ProbeEnd | None, ProbeEnd | None]:
        """What the kernels count at both ends. One of them is to blame for what held the block up."""
        if self.kind == "older_agents":
            return None, None
        guilty = max((one, far), key=lambda node: (self.busy.get(node, 0.0), node == self.victim))
        excess = 1.0 - 1.0 / held_up

        def end(node: str) -> ProbeEnd:
            waited = self.chance.uniform(*CALM_SHARE)
            ran = self.chance.uniform(*RAN_SHARE) / slower
            if self.kind == "slow_agent" and node == self.victim:
                ran = max(ran, self.chance.uniform(0.7, 1.0))
            elif node == guilty:
                waited += excess * self.chance.uniform(*COUNTED)
            return ProbeEnd(block_s * waited, block_s * ran, 5e-5)

        return end(one), end(far)

    def _slower(self, one: str, far: str, suspected: bool) -> float:
        """How many times slower the way is."""
        apart = self.domains and self.domains[one] != self.domains[far]
        found = 3.0 if apart else 1.0
        hit = {
            "slow_link": {one, far} == {self.victim, self.other},
            "one_way": (one, far) == (self.victim, self.other),
            "slow_node": self.victim in (one, far),
            "slow_network": True,
            "two_nodes": True,
        }
        kind = self.kind.removesuffix("_some_busy").removesuffix("_unreachable")
        return found * (self.factor if suspected and one != far and hit.get(kind, False) else 1.0)

    def _held_up(self, one: str, far: str, suspected: bool) -> float:
        """How many times longer the probe takes because a node at one of its ends is busy."""
        if not suspected:
            return 1.0
        if self.kind in ("busy_node", "no_loopback", "busy_of_four") and self.victim in (one, far):
            return self.factor
        if self.kind == "slow_agent" and self.victim in (one, far) and one != far:
            return self.factor
        if one == far and self.kind != "all_busy":
            return 1.0
        found = 1.0
        for node in sorted({one, far}):
            if self.chance.random() < self.busy.get(node, 0.0):
                found = max(found, self.chance.uniform(*BUSY_FACTOR))
        return found
