"""Measure how soon a dead process, a hung rank and a new size are dealt with, in real clusters."""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from benchmarks import holdfast, log
from benchmarks.peers import START_S, WORKERS, free_port, strike
from benchmarks.processes import RANKS, Field, steady

if TYPE_CHECKING:
    from collections.abc import Callable

HANG_FLOOR_S = 4.0
LIMIT_S = 120.0
LARGE, SMALL = 3, 2
RESIZE = ("--grow-after-s", "1", "--resize-every-s", "1", "--join-grace-s", "60")


def process_verdicts(rounds: int) -> list[float]:
    """The time from each SIGKILL of a rank until the leader has judged it, in s.

    Four ranks train meanwhile, and the processes that replace the dead ones start: that is the load."""
    found = []
    with Field("verdict", grace_s=20) as field:
        holdfast.start(field, *holdfast.four_ranks(), script="elastic.py")
        for number in range(rounds):
            field.expect("steady state", lambda: steady(field, 5), START_S)
            before, killed = strike(field, number % (RANKS - 1) + 1)
            field.expect("a verdict", lambda at=killed: bool(_judged(field, at)), LIMIT_S)  # type: ignore[misc]
            found.append(float(_judged(field, killed)[0]["monotonic_s"]) - killed)
            field.expect("recovery", lambda old=before: _all_on(field, old), LIMIT_S)  # type: ignore[misc]
    return found


def hang() -> float:
    """The time from the moment a rank hangs until the leader names it, in s. Its deadline is HANG_FLOOR_S."""
    pace = ("--hang-floor-s", f"{HANG_FLOOR_S:g}", "--hang-factor", "1")
    with Field("hang", grace_s=20) as field:
        holdfast.start(field, *holdfast.four_ranks(), *pace, script="hanging.py")
        field.expect("steady state", lambda: steady(field, 40), START_S)
        (field.logs / "hang").touch()
        field.expect("the hang", lambda: bool(_rows(field, "hangs")), LIMIT_S)
        began = float(_rows(field, "hangs")[0]["t"])
        field.expect("its verdict", lambda: bool(_judged(field, began)), LIMIT_S)
        first = _judged(field, began)[0]
        verdict = first["body"]["verdict"]
        if verdict["cause"] != "hung" or verdict["ranks"] != [1]:
            raise RuntimeError(f"rank 1 hung, and the verdict is {verdict}")
        return float(first["monotonic_s"]) - began


def resizes(rounds: int) -> list[float]:
    """How long training pauses when a job of three nodes becomes one of two, and back, in s.

    From a rank's last step in the old group to the end of its first one in the new; the slowest rank
    counts."""
    pauses = []
    with Field("resize", grace_s=20) as field:
        size = ("--nnodes", f"{SMALL}:{LARGE}", "--nproc-per-node", "1")
        holdfast.start(field, *size, *RESIZE, script="elastic.py")
        _expect_world(field, LARGE)
        for _ in range(rounds):
            for words, world in ((("drain", "n2"), SMALL), (("uncordon", "n2"), LARGE)):
                before = log.newest(field.rows())
                _command(field, *words)
                _expect_world(field, world)
                pauses.append(_pause(field, {row["pid"]: row["entry"] for row in before.values()}, world))
    return pauses


def bare_resizes(rounds: int) -> list[float]:
    """The same for bare torch: the longest pause of the ranks in each change, in s."""
    with Field("regroup") as field:
        port, turns = free_port(), 2 * rounds + 1
        for rank in range(LARGE):
            words = (str(field.logs), str(rank), str(port), str(turns))
            field.start(sys.executable, str(WORKERS / "regroup.py"), *words)
        field.expect("every change", lambda: len(_rows(field, "done")) == LARGE, LIMIT_S)
        by_turn: dict[int, float] = {}
        for row in _rows(field, "pause"):
            by_turn[row["turn"]] = max(row["s"], by_turn.get(row["turn"], 0.0))
        return list(by_turn.values())


def resize_vs_limit(rounds: int) -> float:
    """The median pause of Holdfast, divided by that of bare torch."""
    limit_s = statistics.median(bare_resizes(rounds))
    return statistics.median(resizes(rounds)) / limit_s


def p99(values: list[float]) -> float:
    """The 99th percentile by rank; of fewer than a hundred values it is the largest."""
    return sorted(values)[math.ceil(0.99 * len(values)) - 1]


def _judged(field: Field, after: float) -> list[log.Row]:
    return [line for line in holdfast.journal(field, "Judged") if line["monotonic_s"] > after]


def _rows(field: Field, event: str) -> list[log.Row]:
    return [row for row in field.rows() if row["event"] == event]


def _all_on(field: Field, before: dict[int, log.Row]) -> bool:
    """Whether every rank has entered its elastic function again since `before`, and taken a step in a full
    world."""
    old = {row["pid"]: row["entry"] for row in before.values()}
    last = log.newest(field.rows())
    return len(last) == RANKS and all(
        row["entry"] > old.get(row["pid"], 0) and row["world"] == RANKS for row in last.values()
    )


def _expect_world(field: Field, world: int) -> None:
    def there() -> bool:
        last = [row for row in log.newest(field.rows()).values() if field.owns(row["pid"])]
        return len([row for row in last if row["world"] == world and row["step"] >= 5]) >= world

    field.expect(f"a step of {world} ranks", there, START_S)


def _pause(field: Field, entries: dict[int, int], world: int) -> float:
    """The longest pause of the ranks that stayed."""
    field.expect("a step of everyone", lambda: bool(_pauses(field, entries, world)), LIMIT_S)
    return max(_pauses(field, entries, world))


def _pauses(field: Field, entries: dict[int, int], world: int) -> list[float]:
    steps: dict[int, list[log.Row]] = {}
    for row in _rows(field, "step"):
        if row["pid"] in entries:
            steps.setdefault(row["pid"], []).append(row)
    found = []
    for pid, rows in steps.items():
        last = [row["t"] for row in rows if row["entry"] == entries[pid]]
        first = [row["t"] for row in rows if row["entry"] > entries[pid] and row["world"] == world]
        if last and first:
            found.append(float(first[0] - last[-1]))
    return found if len(found) >= SMALL else []


def _command(field: Field, *words: str) -> None:
    card: dict[str, Any] = json.loads((holdfast.state(field) / "cluster.json").read_text())
    argv = [sys.executable, "-m", "controlplane", *words, "--coordinator", str(card["coordinator"])]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        raise RuntimeError(f"holdfast {' '.join(words)}: {done.stderr}")


PARTS: dict[str, Callable[[int], float]] = {
    "process_verdict_p99_s": lambda rounds: p99(process_verdicts(rounds)),
    "hang_named_s": lambda rounds: hang(),
    "resize_vs_limit": lambda rounds: resize_vs_limit(max(rounds // 5, 1)),
}
"""The function that measures each key. Its argument is the number of deaths."""
