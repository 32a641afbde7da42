"""Make up matrices of probes in which somebody is slow on purpose, and score what the judge names.

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
)
"""What is planted. `noise`: probes differ by half; `racks`: links between racks carry a third;
`busy_node`: a node's processors are busy, so all of its probes are slow."""


@dataclass(frozen=True, slots=True)
class Planted:
    """A made-up job: its matrix, and what is to be named."""

    matrix: LinkMatrix
    expected: Named


def planted(kind: str, seed: int) -> Planted:
    """A job of 4 to 40 nodes with this trouble, probed twice before the suspicion and twice in it."""
    chance = Random(f"{kind} {seed}")
    count = 2 if kind == "two_nodes" else chance.randint(4, 40)
    nodes = [f"n{index:02d}" for index in range(count)]
    factor, speed = chance.uniform(2.5, 12.0), 10 ** chance.uniform(7.0, 9.0)
    sigma = 0.35 if kind == "noise" else chance.uniform(0.02, 0.12)
    index = chance.randrange(count)
    victim = nodes[index]
    other = chance.choice(peers_of(nodes, index)[1:])
    domains = {node: f"rack{at * 2 // count}" for at, node in enumerate(nodes)} if kind == "racks" else {}
    measures = LinkMeasures()

    def ratio(one: str, far: str, suspected: bool) -> float:
        found = 3.0 if domains and domains[one] != domains[far] and one != far else 1.0
        if not suspected:
            return found
        if kind == "busy_node":
            return factor if victim in (one, far) else 1.0
        if one == far:
            return 1.0
        hit = {
            "slow_link": {one, far} == {victim, other},
            "two_nodes": True,
            "one_way": (one, far) == (victim, other),
            "slow_node": victim in (one, far),
            "slow_node_unreachable": victim in (one, far),
            "slow_network": True,
        }
        return found * (factor if hit.get(kind, False) else 1.0)

    lost = nodes[(index + 1) % count] if "unreachable" in kind else ""
    for times, suspected in ((1, False), (2, True)):
        for turn in range(times):
            for at, one in enumerate(nodes):
                probes = [
                    LinkProbe(far, reason="no answer within 2 s")
                    if suspected and lost in (one, far) and one != far
                    else LinkProbe(
                        far,
                        0.0005 * chance.lognormvariate(0.0, sigma),
                        speed / ratio(one, far, suspected) * chance.lognormvariate(0.0, sigma),
                    )
                    for far in peers_of(nodes, at)
                ]
                measures.take(one, 20.0 * turn + 100.0 * suspected, probes, suspected=suspected)
    expected: dict[str, Named] = {
        "slow_link": frozenset({("slow_link", (min(victim, other), max(victim, other)))}),
        "slow_node": frozenset({("slow_node_network", (victim,))}),
        "slow_network": frozenset({("slow_network", ())}),
        "two_nodes": frozenset({("slow_link", tuple(nodes))}),
    }
    expected |= {"one_way": expected["slow_link"], "slow_node_unreachable": expected["slow_node"]}
    return Planted(measures.matrix(130.0, nodes, domains), expected.get(kind, frozenset()))


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
