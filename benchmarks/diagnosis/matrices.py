"""Make up matrices of probes in which somebody is slow or busy on purpose, and score what the judge names.

`python -m benchmarks.diagnosis.matrices --seeds 300 --first 4000` prints one row per kind of trouble."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from random import Random

from controlplane.analysis.links import policy
from controlplane.analysis.links.judging import judge
from controlplane.analysis.links.measures import LinkMatrix, LinkMeasures
from controlplane.analysis.links.schedule import peers_of
from controlplane.core.records.diagnosis import LinkProbe

Named = frozenset[tuple[str, tuple[str, ...]]]
KINDS = (
    *("nothing", "noise", "busy_node", "racks", "slow_link", "one_way", "slow_node", "slow_network"),
    *("two_nodes", "unreachable", "slow_node_unreachable"),
    *("busy_turns", "all_busy", "no_loopback", "busy_of_four", "slow_link_some_busy", "slow_node_some_busy"),
)
"""What is planted. `noise`: probes differ by half; `racks`: links between racks carry a third.

`busy_node`: a node's processors are busy, so all of its probes are slow; `no_loopback`: the same, and it has
not probed itself; `busy_turns`: some nodes are busy, but not when they probe themselves; `all_busy`: all are,
now and then; `busy_of_four`: of four nodes one is busy, and the others now and then; `some_busy`: beside what
is planted some other nodes are busy, but not when they probe themselves."""
BUSY_SHARE = 0.25
"""Nodes that are busy, where some are."""
BUSY_TURNS, NOW_AND_THEN = 0.9, 0.6
"""The share of its probes in which a busy node is busy."""
BUSY_FACTOR = (1.5, 8.0)
"""How many times longer a probe takes then."""


@dataclass(frozen=True, slots=True)
class Planted:
    """A made-up job: its matrix, and what is to be named."""

    matrix: LinkMatrix
    expected: Named


def planted(kind: str, seed: int) -> Planted:
    """A job of 4 to 40 nodes with this trouble, probed twice before the suspicion, and as often as needed
    in it."""
    return _Job(kind, seed).played()


class _Job:
    """One made-up job. All chance is that of its seed."""

    def __init__(self, kind: str, seed: int) -> None:
        self.kind = kind
        self.chance = chance = Random(f"{kind} {seed}")
        count = {"two_nodes": 2, "busy_of_four": 4}.get(kind) or chance.randint(4, 40)
        self.nodes = [f"n{index:02d}" for index in range(count)]
        self.factor, self.speed = chance.uniform(2.5, 12.0), 10 ** chance.uniform(7.0, 9.0)
        self.sigma = 0.35 if kind == "noise" else chance.uniform(0.02, 0.12)
        index = chance.randrange(count)
        self.victim = self.nodes[index]
        self.other = chance.choice(peers_of(self.nodes, index)[1:])
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
            "all_busy": lambda: dict.fromkeys(self.nodes, NOW_AND_THEN),
            "busy_of_four": lambda: dict.fromkeys(others, NOW_AND_THEN) | {self.other: NOW_AND_THEN},
            "slow_link_some_busy": lambda: dict.fromkeys(others[:some], BUSY_TURNS),
            "slow_node_some_busy": lambda: dict.fromkeys(others[:some], BUSY_TURNS),
        }.get(self.kind, dict)()

    def played(self) -> Planted:
        """Probe it, and say what is to be named."""
        measures = LinkMeasures()
        for times, suspected in ((1, False), (policy.MEASURES_LEAST, True)):
            for turn in range(times):
                for at, one in enumerate(self.nodes):
                    probes = [self._probe(one, far, suspected=suspected) for far in peers_of(self.nodes, at)]
                    measures.take(one, 20.0 * turn + 100.0 * suspected, probes, suspected=suspected)
        return Planted(measures.matrix(180.0, self.nodes, self.domains), self._expected())

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
        slower = self._slower(one, far, suspected) * self._held_up(one, far, suspected)
        return LinkProbe(
            far, 0.0005 * noise(0.0, self.sigma), self.speed / slower * noise(0.0, self.sigma)
        )

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
        if one == far and self.kind != "all_busy":
            return 1.0
        found = 1.0
        for node in sorted({one, far}):
            if self.chance.random() < self.busy.get(node, 0.0):
                found = max(found, self.chance.uniform(*BUSY_FACTOR))
        return found


@dataclass(slots=True)
class Score:
    """How often what was planted was named, over some jobs."""

    jobs: int = 0
    planted: int = 0
    named: int = 0
    wrong: int = 0

    def add(self, job: Planted) -> None:
        """Judge one job."""
        found = {(each.kind, each.nodes) for each in judge(job.matrix).verdicts}
        self.jobs += 1
        self.planted += len(job.expected)
        self.named += len(found & job.expected)
        self.wrong += len(found - job.expected)


def score(kind: str, first: int, seeds: int) -> Score:
    """The score over these seeds."""
    found = Score()
    for seed in range(first, first + seeds):
        found.add(planted(kind, seed))
    return found


def main() -> None:
    """Print a table, and precision and recall over all kinds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=300)
    parser.add_argument("--first", type=int, default=4000)
    wish = parser.parse_args()
    print(f"{'planted':24s} {'jobs':>5s} {'to name':>8s} {'named':>6s} {'wrong':>6s}")
    total = Score()
    for kind in KINDS:
        found = score(kind, wish.first, wish.seeds)
        print(f"{kind:24s} {found.jobs:5d} {found.planted:8d} {found.named:6d} {found.wrong:6d}")
        for name in ("jobs", "planted", "named", "wrong"):
            setattr(total, name, getattr(total, name) + getattr(found, name))
    precision = total.named / max(1, total.named + total.wrong)
    print(f"precision {precision:.4f}, recall {total.named / max(1, total.planted):.4f}")
    print(f"limits: {policy.SLOW_RATIO:g} times, {policy.SPREADS:g} spreads")


if __name__ == "__main__":
    main()
