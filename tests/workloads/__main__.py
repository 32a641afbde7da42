"""Kill every workload in each phase and report the results.

    python -m tests.workloads --kills 5 --seed 1 --json

Each workload takes one kill in every phase that applies to it, and more of them up to --kills. The last line
is one JSON object; the exit code is 1 when a row is not as the table has it, or one of its phases had no
kill."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.e2e.standing import standing
from tests.workloads.blows import PHASES
from tests.workloads.running import Row, strike
from tests.workloads.table import SNAPSHOT_EVERY, WORKLOADS, Workload

if TYPE_CHECKING:
    from collections.abc import Sequence

GPUS = len(list(Path("/dev").glob("nvidia[0-9]*")))


def chosen(only: Sequence[str]) -> tuple[list[Workload], list[dict[str, str]]]:
    """The rows of the table that are asked for and can run here; and those that cannot, with the reason."""
    names = {workload.name for workload in WORKLOADS}
    if unknown := sorted(set(only) - names):
        sys.exit(f"no workload {', '.join(unknown)}: there are {', '.join(sorted(names))}")
    wanted = [workload for workload in WORKLOADS if not only or workload.name in only]
    runs = [workload for workload in wanted if not workload.gpu or workload.ranks <= GPUS]
    why = "needs {} GPUs, there are {}"
    left = [
        {"workload": each.name, "why": why.format(each.ranks, GPUS)} for each in wanted if each not in runs
    ]
    return runs, left


def judged(workload: Workload, row: Row) -> list[str]:
    """What is wrong in a row, in words."""
    found = list(row.wrong)
    if not workload.refused:
        found += [f"no kill in the phase {phase}" for phase, count in row.phases.items() if not count]
        found += ["it was refused"] * row.refused
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.workloads", description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=5, help="of each workload, at least")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="this workload; repeatable"
    )
    parser.add_argument("--steps", type=int, default=0, help="of each workload; 0: as the table has it")
    parser.add_argument(
        "--snapshot-every",
        default=str(SNAPSHOT_EVERY),
        metavar="STEPS|auto",
    )
    parser.add_argument("--replicas", default="", metavar="N", help="nodes that keep copies of each snapshot")
    parser.add_argument("--jobs", type=int, default=1, help="workloads at a time")
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    args = parser.parse_args()
    runs, left = chosen(args.only)
    for each in left:
        print(f"{each['workload']}: skipped: it {each['why']}", flush=True)

    def run(workload: Workload) -> tuple[Row, list[str]]:
        workload = dataclasses.replace(
            workload,
            steps=args.steps or workload.steps,
            snapshot_every=args.snapshot_every,
            flags=(*workload.flags, *(("--replicas", args.replicas) if args.replicas else ())),
        )
        row = strike(workload, max(args.kills, len(workload.phases)), args.seed)
        wrong = judged(workload, row)
        verdict = "refused, by name" if row.refused and not wrong else "; ".join(wrong) or "exact"
        print(
            f"{row.workload}: {row.kills} kills, {row.steps_lost} steps lost, {row.seconds} s: {verdict}; "
            f"recoveries by steps lost: {row.lost_by_recovery}, by phase: {row.lost_by_phase}",
            flush=True,
        )
        return row, wrong

    standing()  # begun here, because its daemons end with the thread that began it
    with ThreadPoolExecutor(args.jobs) as pool:
        results = list(pool.map(run, runs))
    struck = {phase: sum(row.phases.get(phase, 0) for row, _ in results) for phase in PHASES}
    told: dict[str, Any] = {
        "workloads": [row.as_json() for row, _ in results],
        "skipped": left,
        "struck": struck,
    }
    if args.json:
        print(json.dumps(told))
    sys.exit(any(wrong for _, wrong in results))


if __name__ == "__main__":
    main()
