"""Measure what a window of a large job costs the leader: `python -m benchmarks.diagnosis.live.cost`.

CPU seconds per window to judge it, all detectors included; the rows are made by whoever calls."""

from __future__ import annotations

import argparse
import statistics
import time

from benchmarks.diagnosis.live import windows
from benchmarks.diagnosis.live.draw import Shape, Truth
from controlplane.analysis.live.watch import JobWatch


def main() -> None:
    """Watch one job, and print the medians over the windows after the warm-up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=80_000, help="ranks, eight per node (default: 80000)")
    parser.add_argument("--windows", type=int, default=45, help="windows (default: 45)")
    parser.add_argument("--slow", type=int, default=3, help="a slow rank; -1: none (default: 3)")
    values = parser.parse_args()
    shape = Shape(
        seed=1, nodes=values.ranks // 8, per_node=8, pp=1, tp=8, windows=values.windows, steps=2, step_s=5.0,
        devices=True, tokens=True, noise="gaussian", sigma=0.02, lasting=0.01, length_sigma=0.1,
        evaluate=True, snapshot_every=2,
    )  # fmt: skip
    truth = Truth("slow_rank", rank=values.slow, factor=1.5, onset=20) if values.slow >= 0 else Truth()
    watch, spent, found = JobWatch(), [], 0
    for window in windows.played(shape, truth):
        begun = time.process_time()
        found = len(watch.observe(window).findings)
        spent.append(time.process_time() - begun)
    warm = spent[12:]
    typical = statistics.median(warm)
    print(f"{values.ranks} ranks: {typical:.3f} s of CPU per window ({max(warm):.3f} at most)")
    print(f"{typical / 10:.4f} of a core with a window every 10 s; {found} findings at the end")


if __name__ == "__main__":
    main()
