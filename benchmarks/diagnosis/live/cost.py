"""Measure what a window of a large job costs the leader: `python -m benchmarks.diagnosis.live.cost`.

CPU seconds per window: to keep the reports of all nodes (in the leader's loop), to add them up, and to judge
the window with all detectors (both in a thread). Reading the messages from the wire is not counted."""

from __future__ import annotations

import argparse
import statistics
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from benchmarks.diagnosis.live import windows
from benchmarks.diagnosis.live.draw import Shape, Truth
from controlplane.analysis.live.readings import NUMBERS
from controlplane.analysis.live.watch import JobWatch
from controlplane.core.records.diagnosis import StepTimes
from controlplane.core.records.model import Generation, JobSpec, Placement, Resume
from controlplane.core.records.words import Tier
from controlplane.daemon.diagnosis.feed import StepFeed, window_s
from controlplane.daemon.diagnosis.step_rows import NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controlplane.analysis.live.readings import JobWindow
    from controlplane.core.state.job import Job

PER_NODE = 8
TOLD = {
    "token_flops": (6e9,) * PER_NODE,
    "peak_flops": (1e15,) * PER_NODE,
    "compute_notes": ("counted",) * PER_NODE,
    "end_steps": (100_000,) * PER_NODE,
    "end_kinds": ("loop",) * PER_NODE,
}
PARTS = ("keep", "add up", "judge")


def main() -> None:
    """Watch one job, and print the medians over the windows after the warm-up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=80_000, help="ranks, eight per node (default: 80000)")
    parser.add_argument("--windows", type=int, default=45, help="windows (default: 45)")
    parser.add_argument("--slow", type=int, default=3, help="a slow rank; -1: none (default: 3)")
    values = parser.parse_args()
    shape = Shape(
        seed=1, nodes=values.ranks // PER_NODE, per_node=PER_NODE, pp=1, tp=8, windows=values.windows,
        steps=2, step_s=5.0, devices=True, tokens=True, noise="gaussian", sigma=0.02, lasting=0.01,
        length_sigma=0.1, evaluate=True, snapshot_every=2,
    )  # fmt: skip
    truth = Truth("slow_rank", rank=values.slow, factor=1.5, onset=20) if values.slow >= 0 else Truth()
    spent: dict[str, list[float]] = {part: [] for part in PARTS}
    watch, feed, job, found = JobWatch(), StepFeed(), _job(values.ranks), 0
    for window in windows.played(shape, truth):
        found = _leader(window, watch, feed, job, spent)
    warm = {part: statistics.median(each[12:]) for part, each in spent.items()}
    total, every_s = sum(warm.values()), window_s(shape.nodes, 5.0)
    parts = ", ".join(f"{part} {each:.3f} s" for part, each in warm.items())
    print(f"{values.ranks} ranks: {total:.3f} s of CPU per window: {parts}")
    print(f"{total / every_s:.4f} of a core with a window every {every_s:g} s; {found} findings at the end")


def _leader(
    window: JobWindow, watch: JobWatch, feed: StepFeed, job: Job, spent: dict[str, list[float]]
) -> int:
    """Take a window as a leader does. Return how many findings it shows."""
    reports = list(_reports(window))
    times = [time.process_time()]
    for report in reports:
        feed.take(report)
    collected = feed.collect(job, {}, window.began_s, window.ended_s)
    times.append(time.process_time())
    assert collected is not None
    made = collected.window()
    times.append(time.process_time())
    found = len(watch.observe(made).findings)
    times.append(time.process_time())
    for part, began, ended in zip(PARTS, times, times[1:], strict=False):
        spent[part].append(ended - began)
    return found


def _reports(window: JobWindow) -> Iterator[StepTimes]:
    """What the agents of a window would have sent."""
    ranks = len(window.ranks.seats)
    whole = ("generation", "steps", "last_step", "covered")
    columns = {
        NAMES.get(name, name): (column.astype(int) if name in whole else column).tolist()
        for name, column in zip(NUMBERS, window.ranks.numbers.T, strict=True)
    }
    for first in range(0, ranks, PER_NODE):
        numbers = {name: tuple(column[first : first + PER_NODE]) for name, column in columns.items()}
        members = tuple(f"m{rank}" for rank in range(first, first + PER_NODE))
        known: dict[str, Any] = {**numbers, **TOLD}
        yield StepTimes(
            f"n{first // PER_NODE}", 1, "j", 5.0, members, tuple(range(first, first + PER_NODE)), **known
        )


def _job(ranks: int) -> Job:
    """As much of a job of so many ranks as the windows are made with."""
    seats = tuple(
        Placement(rank, f"m{rank}", f"n{rank // PER_NODE}", rank % PER_NODE) for rank in range(ranks)
    )
    nodes = ranks // PER_NODE
    spec = JobSpec("j", ("train.py",), "/", (), nodes, nodes, PER_NODE, tensor_parallel=8)
    costs = SimpleNamespace(uploads=0, newest_upload_s=0.0)
    generation = Generation("j", 1, 1, seats, "", "", Resume(Tier.FRESH, 0), "")
    checkpoints = SimpleNamespace(costs=costs, choice=None)
    return cast("Job", SimpleNamespace(name="j", spec=spec, generation=generation, checkpoints=checkpoints))


if __name__ == "__main__":
    main()
