"""Measure how soon training goes on after a SIGKILL, against the limit and the peers.

`python -m benchmarks.recovery`: each round takes every contender in turn, so that a busy machine is busy for
all of them. README.md explains each number."""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import holdfast, peers
from benchmarks.load import LoadMeter
from benchmarks.report import median, spreads, table

if TYPE_CHECKING:
    from collections.abc import Callable

Measured = dict[str, float | None]
VICTIMS = (1, 2, 3)
"""The ranks that are killed, in turn. Never rank 0: the store of the limit's round is in it."""


def contenders(torchft: Path | None) -> dict[str, Callable[[int], Measured]]:
    """One round of each contender, by name. The argument is the rank to kill."""

    def torchft_round(victim: int) -> Measured:
        return {"torchft_s": None if torchft is None else peers.torchft(torchft, victim)}

    return {
        "limit": lambda victim: {"limit_s": peers.limit(victim), "limit_full_s": peers.limit_full(victim)},
        "holdfast": holdfast.recovery,
        "double": lambda victim: {"double_death_ratio": holdfast.double_death(victim)},
        "torchft": torchft_round,
        "unmodified": lambda victim: {"unmodified_s": holdfast.unmodified(victim)},
        "torchrun": lambda victim: {"torchrun_s": peers.torchrun(victim)},
        "overhead": lambda victim: {"overhead_ratio": holdfast.overhead()},
        "stall": lambda victim: {"stall_ratio": holdfast.stall()},
    }


def measure(rounds: int, chosen: dict[str, Callable[[int], Measured]]) -> dict[str, list[float | None]]:
    """All values of every round, by name. Progress goes to standard error."""
    values: dict[str, list[float | None]] = {}
    for number in range(rounds):
        for name, contender in chosen.items():
            for key, value in contender(VICTIMS[number % len(VICTIMS)]).items():
                values.setdefault(key, []).append(value)
                shown = "none" if value is None else f"{value:.4f}"
                print(f"round {number + 1} of {rounds}: {name}: {key} {shown}", file=sys.stderr, flush=True)
    return values


def medians(values: dict[str, list[float | None]]) -> dict[str, float | None]:
    """The median of each name. A round that did not end counts as the worst; None: too many of them."""
    found: dict[str, float | None] = {}
    for key, series in values.items():
        middle = median(series)
        found[key] = round(middle, 4) if math.isfinite(middle) else None
    return found


KEYS = (
    *("limit_s", "limit_full_s", "survivors_s", "full_world_s", "silent_peer_s", "torchrun_s", "torchft_s"),
    *("unmodified_s", "overhead_ratio", "stall_ratio", "double_death_ratio"),
)


def main() -> None:
    """Measure and print: a table, or with --json one object on the last line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recovery", description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=21, metavar="N", help="interleaved rounds (default: 21)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument(
        "--torchft-python", type=Path, metavar="PATH", help="python of a virtual environment with torchft"
    )
    parser.add_argument("--only", metavar="NAMES", help="some contenders only, comma separated")
    options = parser.parse_args()
    known = contenders(options.torchft_python)
    names = options.only.split(",") if options.only else list(known)
    if options.rounds < 1 or not set(names) <= set(known):
        parser.error(f"give 1 round or more, and names among {', '.join(known)}")
    if options.torchft_python and not options.torchft_python.with_name("torchft_lighthouse").exists():
        parser.error(f"no torchft beside {options.torchft_python}: see benchmarks/README.md")
    load = LoadMeter()
    values = measure(options.rounds, {name: known[name] for name in names})
    load.sample()
    found = medians(values)
    result = {key: found.get(key) for key in KEYS} | {"rounds": options.rounds, "load": load.result()}
    result["intervals"] = spreads(values)
    print(json.dumps(result) if options.json else table(result, values))


if __name__ == "__main__":
    main()
