"""Score the live diagnosis over the seeds of a spec, plain and under harder conditions."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.diagnosis.live import windows
from benchmarks.diagnosis.live.draw import draw
from benchmarks.diagnosis.live.score import Outcome, Tally, judge
from controlplane.cli.doctor.readers import windows_file
from controlplane.core.records.diagnosis import Thresholds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.diagnosis.live.draw import Spec


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
            found = windows_file.read(export / "inputs" / f"{seed}.jsonl.gz")
            truth = windows.read_truth(export, seed)
        yield judge(seed, found, truth, shape.per_node, thresholds)


def drawn_of(spec: Spec, seed_base: int) -> dict[str, Any]:
    """What was drawn, in short: how often each value came, and between which ends numbers lie."""
    jobs = [draw(spec, seed) for seed in range(seed_base, seed_base + spec.jobs)]
    faulty = [(shape, truth) for shape, truth in jobs if truth.kind != "none"]
    late = [truth.onset / shape.windows for shape, truth in faulty if truth.onset]
    return {
        "healthy": len(jobs) - len(faulty),
        "nodes": _ends([shape.nodes for shape, _ in jobs]),
        "ranks": _ends([shape.ranks for shape, _ in jobs]),
        "sigma": _ends([shape.sigma for shape, _ in jobs]),
        "factor": _ends([truth.factor for _, truth in faulty]),
        "onset_share": _ends(late),
        "late": len(late),
        "noises": dict(Counter(shape.noise for shape, _ in jobs)),
        "layouts": dict(Counter(f"pp {shape.pp}, tp {shape.tp}" for shape, _ in jobs)),
    }


def _ends(values: list[float]) -> list[float]:
    return [round(float(end), 4) for end in np.quantile(values, (0.0, 0.5, 1.0))] if values else []


def report(
    spec: Spec, seed_base: int, export: Path | None = None, *, variants: bool = True
) -> dict[str, Any]:
    """All scores: plain, with noise doubled, and with limits a quarter lower and higher."""
    cases: dict[str, tuple[Spec, Thresholds | None]] = {"plain": (spec, None)}
    if variants:
        cases["noise_doubled"] = (replace(spec, noise_scale=2.0 * spec.noise_scale), None)
        cases["thresholds_lower"] = (spec, moved(0.75))
        cases["thresholds_higher"] = (spec, moved(1.25))
    found: dict[str, Any] = {"seed_base": seed_base, "spec": asdict(spec), "drawn": drawn_of(spec, seed_base)}
    for name, (drawn, thresholds) in cases.items():
        tally = Tally()
        for outcome in outcomes(drawn, seed_base, thresholds, export if name == "plain" else None):
            tally.add(outcome)
        found[name] = tally.as_data()
    return found
