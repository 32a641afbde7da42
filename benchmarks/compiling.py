"""Measure how soon a compiled model trains on after a SIGKILL, against the same model uncompiled.

`python -m benchmarks.compiling`: two nodes of one rank and a spare each; each round takes every form in turn.
README.md explains each number."""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import time
from pathlib import Path

from benchmarks import holdfast, log, peers
from benchmarks.load import LoadMeter
from benchmarks.processes import Field
from benchmarks.report import show
from benchmarks.scale import process

FORMS = ("plain", "bare", "wrapped")
WORLD, START_S, LIMIT_S, STEADY_STEPS, STEPS_MEASURED = 2, 400.0, 120.0, 30, 200
QUIET_S, QUIET_CPU_S = 3.0, 0.1  # a spare that uses less than this in that time has ended its rehearsal


def one(form: str) -> dict[str, float]:
    """Kill rank 1 of a job with this form. Seconds to the first step, and what was compiled for it."""
    with Field("compiling", grace_s=20) as field:
        flags = ("--nnodes", "2", "--nproc-per-node", "1", "--spares", "1")
        holdfast.start(field, *flags, script="compiled.py", words=(form, "1000000"))
        field.expect("steady state", lambda: len(_spares(field)) == WORLD and _steady(field), START_S)
        field.expect("spares that wait", lambda: all(map(_quiet, _spares(field))), START_S)
        before = log.newest(field.rows())
        rows = [row for row in field.rows() if row["event"] == "step" and row["rank"] == 0]
        took = [after["t"] - row["t"] for row, after in itertools.pairwise(rows)][-STEPS_MEASURED:]
        _, killed = peers.strike(field, 1)
        old = {row["pid"] for row in before.values()}

        def again() -> dict[int, log.Row]:
            rows = [row for row in field.rows() if row["t"] > killed and row["pid"] != before[1]["pid"]]
            return log.first(rows, "step", lambda row: row["pid"] not in old or row["entry"] > 1)

        field.expect("a step in a new generation", lambda: len(again()) == WORLD, LIMIT_S)
        survivor, spare = again()[0], again()[1]
        return {
            "step_s": statistics.median(took),
            "survivor_s": survivor["t"] - killed,
            "spare_s": spare["t"] - killed,
            "survivor_graphs": survivor["graphs"] - before[0]["graphs"],
        }


def _steady(field: Field) -> bool:
    last = log.newest(field.rows())
    return len(last) == WORLD and all(row["step"] >= STEADY_STEPS for row in last.values())


def _spares(field: Field) -> list[int]:
    rows = field.rows()
    ready, entered = ({row["pid"] for row in rows if row["event"] == event} for event in ("ready", "entered"))
    return [pid for pid in ready - entered if field.owns(pid)]


def _quiet(pid: int) -> bool:
    """Whether a process runs nothing now, nor for a while from now."""
    begun_s = process.cpu_s(pid, children=True)
    time.sleep(QUIET_S)
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return not children and process.cpu_s(pid, children=True) - begun_s < QUIET_CPU_S


def main() -> None:
    """Measure and print: a line for each value, or with --json one object on the last line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compiling", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="interleaved rounds (default: 3)")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    options = parser.parse_args()
    load, values = LoadMeter(), dict[str, list[float]]()
    for number in range(options.rounds):
        for form in FORMS:
            found = one(form)
            print(f"round {number + 1}: {form}: {json.dumps(found)}", file=sys.stderr, flush=True)
            for key, value in found.items():
                values.setdefault(f"{form}_{key}", []).append(value)
        load.sample()
    result: dict[str, object] = {name: round(statistics.median(each), 4) for name, each in values.items()}
    for form in FORMS[1:]:
        for who in ("survivor", "spare"):
            pairs = zip(values[f"{form}_{who}_s"], values[f"plain_{who}_s"], strict=True)
            result[f"{form}_{who}_ratio"] = round(statistics.median(ours / plain for ours, plain in pairs), 2)
    show(result | {"rounds": options.rounds, "load": load.result()}, as_json=options.json)


if __name__ == "__main__":
    main()
