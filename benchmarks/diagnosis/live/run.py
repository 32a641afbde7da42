"""Score the live diagnosis over the seeds of a spec, plain and under harder conditions."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import yaml

from benchmarks.diagnosis.live import windows
from benchmarks.diagnosis.live.draw import Spec, draw
from benchmarks.diagnosis.live.score import Outcome, Tally, judge
from controlplane.core.records.diagnosis import Thresholds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def spec_of(path: Path) -> Spec:
    """Read a spec. Raises ValueError for one that says something else."""
    found = yaml.safe_load(path.read_text())
    if not isinstance(found, dict):
        raise ValueError(f"{path} is no mapping")
    return Spec.of(found)


def moved(times: float) -> Thresholds:
    """All limits moved by a factor: of ratios, the part above 1."""
    plain = Thresholds()
    values = {each.name: getattr(plain, each.name) for each in fields(Thresholds)}
    return Thresholds(
        **{
            name: math.exp(times * math.log(value)) if name.endswith("_ratio") else value * times
            for name, value in values.items()
        }
    )


def outcomes(
    spec: Spec, seed_base: int, thresholds: Thresholds | None = None, export: Path | None = None
) -> Iterator[Outcome]:
    """Watch all jobs of a spec. `export`: a folder; what is judged is then read back from its files."""
    for seed in range(seed_base, seed_base + spec.jobs):
        shape, truth = draw(spec, seed)
        found = windows.played(shape, truth)
        if export is not None:
            windows.write(export, seed, found, truth)
            found = windows.read(export / "inputs" / f"{seed}.jsonl.gz")
            truth = windows.read_truth(export, seed)
        yield judge(seed, found, truth, shape.per_node, thresholds)


def report(
    spec: Spec, seed_base: int, export: Path | None = None, *, variants: bool = True
) -> dict[str, Any]:
    """All scores: plain, with noise doubled, and with limits a quarter lower and higher."""
    cases: dict[str, tuple[Spec, Thresholds | None]] = {"plain": (spec, None)}
    if variants:
        cases["noise_doubled"] = (replace(spec, noise_scale=2.0 * spec.noise_scale), None)
        cases["thresholds_lower"] = (spec, moved(0.75))
        cases["thresholds_higher"] = (spec, moved(1.25))
    found: dict[str, Any] = {"seed_base": seed_base}
    for name, (drawn, thresholds) in cases.items():
        tally = Tally()
        for outcome in outcomes(drawn, seed_base, thresholds, export if name == "plain" else None):
            tally.add(outcome)
        found[name] = tally.as_data()
    return found
