"""Score whom the judge of links names, on made-up probes of `matrices`.

`python -m benchmarks.diagnosis.matrix_scores --seeds 300 --first 4000` prints one row per kind of trouble.
`--calm 1.25` multiplies the limits of what counts as calm, `--slow 0.75` those of what counts as slow, and
`--noise 2` the spread of the probes: what is named should not depend on them."""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.diagnosis.matrices import ASKED_S, KINDS, planted
from controlplane.analysis.links import policy
from controlplane.analysis.links.judging import judge
from controlplane.analysis.links.measures import LinkMatrix, LinkMeasures

if TYPE_CHECKING:
    from benchmarks.diagnosis.matrices import Planted

CALM_LIMITS = ("WAITED_MAX", "OCCUPIED_MAX", "RTT_WAITED_S_MAX", "PRESSURE_MAX")
SLOW_LIMITS = ("SLOW_RATIO", "SPREADS", "BUSY_RATIO")


def matrix(job: Planted) -> LinkMatrix:
    """What the coordinator makes of the probes of a job."""
    measures = LinkMeasures()
    for each in job.rounds:
        measures.take(each.node, each.at_s, list(each.probes), suspected=each.suspected)
    return measures.matrix(ASKED_S, list(job.nodes), job.domains)


@dataclass(slots=True)
class Score:
    """How often what was planted was named, over some jobs."""

    jobs: int = 0
    planted: int = 0
    named: int = 0
    wrong: int = 0
    codes: Counter[str] = field(default_factory=Counter)  # why nobody is named; "": somebody is

    def add(self, job: Planted) -> None:
        """Judge one job."""
        judgement = judge(matrix(job))
        found = {(each.kind, each.nodes) for each in judgement.verdicts}
        self.codes[judgement.code.value] += 1
        self.jobs += 1
        self.planted += len(job.expected)
        self.named += len(found & job.expected)
        self.wrong += len(found - job.expected)


def score(kind: str, first: int, seeds: int, noise: float = 1.0) -> Score:
    """The score over these seeds."""
    found = Score()
    for seed in range(first, first + seeds):
        found.add(planted(kind, seed, noise))
    return found


def main() -> None:
    """Print a table, and precision and recall over all kinds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=300)
    parser.add_argument("--first", type=int, default=4000)
    parser.add_argument("--calm", type=float, default=1.0)
    parser.add_argument("--slow", type=float, default=1.0)
    parser.add_argument("--noise", type=float, default=1.0)
    wish = parser.parse_args()
    for names, factor in ((CALM_LIMITS, wish.calm), (SLOW_LIMITS, wish.slow)):
        for name in names:
            setattr(policy, name, factor * getattr(policy, name))
    print(f"{'planted':24s} {'jobs':>5s} {'to name':>8s} {'named':>6s} {'wrong':>6s}")
    total = Score()
    for kind in KINDS:
        found = score(kind, wish.first, wish.seeds, wish.noise)
        row = f"{kind:24s} {found.jobs:5d} {found.planted:8d} {found.named:6d} {found.wrong:6d}"
        print(row, *(f" {code} {count}" for code, count in found.codes.most_common() if code), flush=True)
        for name in ("jobs", "planted", "named", "wrong"):
            setattr(total, name, getattr(total, name) + getattr(found, name))
    precision = total.named / max(1, total.named + total.wrong)
    print(f"precision {precision:.4f}, recall {total.named / max(1, total.planted):.4f}")
    print(f"limits: {policy.SLOW_RATIO:g} times, {policy.SPREADS:g} spreads")


if __name__ == "__main__":
    main()
