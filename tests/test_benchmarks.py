"""The benchmarks' own arithmetic, their log, and one real round of the limit. No time is judged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks import log, peers
from benchmarks.load import LoadMeter
from benchmarks.processes import Field
from benchmarks.recovery import KEYS, contenders, measure, medians
from benchmarks.report import AIMS, spread, spreads, table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ISSUED = [
    *("limit_s", "limit_full_s", "survivors_s", "full_world_s", "silent_peer_s", "torchrun_s", "torchft_s"),
    *("unmodified_s", "overhead_ratio", "stall_ratio", "double_death_ratio"),
]


def result(**values: float | None) -> dict[str, Any]:
    return {key: values.get(key) for key in KEYS} | {"rounds": 1, "load": LoadMeter().result()}


def test_a_round_without_an_end_counts_as_the_worst() -> None:
    values: dict[str, list[float | None]] = {
        "a": [1.0, None, 2.0],
        "b": [None, None, 1.0],
        "c": [None],
        "d": [1.0, 2.0],
    }
    assert medians(values) == {"a": 2.0, "b": None, "c": None, "d": 1.5}


def test_the_keys_are_those_that_readers_expect() -> None:
    assert list(KEYS) == ISSUED


def test_the_table_says_what_was_missed_and_what_was_not_measured() -> None:
    found = result(limit_s=0.05, survivors_s=0.075, limit_full_s=0.1, full_world_s=0.4)
    shown = table(found, {"survivors_s": [0.1, None]})
    assert "met           survivors within 1.6x of the limit: 1.5x" in shown
    assert "MISSED        full world within 1.8x of its own limit: 4x" in shown
    assert "not measured  survivors 30x ahead of torchrun" in shown
    assert shown.splitlines()[1].split() == ["survivors_s", "0.0750", "0.1000", "0.1000", "1"]


def test_an_aim_with_a_lower_bound() -> None:
    assert "met           survivors 30x ahead" in table(result(survivors_s=0.1, torchrun_s=3.5), {})
    assert "MISSED        survivors 30x ahead" in table(result(survivors_s=0.1, torchrun_s=2.5), {})


def test_an_interval_draws_rounds_whole() -> None:
    limits: list[float | None] = [0.05 * each for each in range(1, 22)]
    doubled: list[float | None] = [0.1 * each for each in range(1, 22)]
    exact = {"limit_s": limits, "survivors_s": doubled}
    assert spreads(exact) == {"survivors_s/limit_s": (2.0, 2.0)}, "each round has the same ratio"
    shown = table(result(limit_s=0.55, survivors_s=1.1), exact)
    assert "survivors within 1.6x of the limit: 2x (95 %: 2 to 2)" in shown
    low, high = spread(AIMS[0], {"limit_s": limits, "survivors_s": doubled[::-1]}) or (0.0, 0.0)
    assert 0.5 < low < 2.0 < high < 8.0


def test_no_interval_of_one_round_or_of_rounds_without_an_end() -> None:
    assert spreads({"limit_s": [1.0], "survivors_s": [2.0]}) == {}
    assert spreads({"limit_s": [1.0, 1.0, 1.0], "survivors_s": [2.0, None, None]}) == {}
    assert spreads({"stall_ratio": [1.0, 1.0, 3.0]}) == {"stall_ratio": (1.0, 3.0)}


def test_rounds_interleave() -> None:
    order: list[str] = []

    def contender(name: str, value: float | None) -> Any:
        def take(victim: int) -> dict[str, float | None]:
            order.append(f"{name}{victim}")
            return {name: value}

        return take

    values = measure(2, {"a": contender("a", 1.0), "b": contender("b", None)})
    assert order == ["a1", "b1", "a2", "b2"]
    assert values == {"a": [1.0, 1.0], "b": [None, None]}


def test_without_torchft_there_is_no_value_and_no_failure() -> None:
    assert contenders(None)["torchft"](1) == {"torchft_s": None}


def test_a_torn_line_is_left_out(tmp_path: Path) -> None:
    written = log.EventLog(tmp_path, rank=3)
    written("step", step=1)
    written("step", step=2)
    with (tmp_path / "torn.jsonl").open("w") as torn:
        torn.write('{"t": 1.0, "event": "st')
    rows = log.read(tmp_path)
    assert [(row["rank"], row["step"], row["pid"]) for row in rows] == [
        (3, 1, os.getpid()),
        (3, 2, os.getpid()),
    ]
    assert log.newest(rows)[3]["step"] == 2
    assert log.first(rows, "step", lambda row: row["step"] > 0)[3]["step"] == 1


def test_what_fails_to_start_is_told_with_its_output() -> None:
    with pytest.raises(RuntimeError, match="no such thing"), Field("test") as field:
        field.start(sys.executable, "-c", "import sys; sys.exit('no such thing')")
        field.expect("line", lambda: False, 30)
    assert not field.logs.exists()


def test_processes_end_with_the_field() -> None:
    with Field("test") as field:
        process = field.start(sys.executable, "-c", "import time; time.sleep(600)")
        assert process.poll() is None
    assert process.poll() is not None
    assert not field.logs.exists()


@pytest.mark.parametrize("round_of", [peers.limit, peers.limit_full])
def test_one_round_of_a_limit(round_of: Callable[[int], float]) -> None:
    begun = time.monotonic()
    took_s = round_of(2)
    assert 0 < took_s < time.monotonic() - begun


def survivors(*rows: tuple[int, float, float]) -> list[log.Row]:
    return [{"rank": rank, "total": total, "t": at} for rank, total, at in rows]


def test_the_limit_is_that_of_the_last_survivor() -> None:
    rows = survivors((0, 3.0, 11.0), (1, 3.0, 14.0), (3, 3.0, 12.0))
    assert peers.regrouped_s(rows, [0, 1, 3], 10.0) == 4.0


@pytest.mark.parametrize(
    "rows",
    [
        [(0, 3.0, 11.0), (1, 3.0, 14.0)],
        [(0, 3.0, 11.0), (1, 3.0, 14.0), (2, 3.0, 12.0)],
        [(0, 3.0, 11.0), (1, 4.0, 14.0), (3, 3.0, 12.0)],
        [(0, 3.0, 9.0), (1, 3.0, 14.0), (3, 3.0, 12.0)],
    ],
    ids=["one is missing", "the victim", "another sum", "before the kill"],
)
def test_what_is_no_new_group_of_the_survivors_has_no_limit(rows: list[tuple[int, float, float]]) -> None:
    with pytest.raises(RuntimeError, match=r"\[0, 1, 3\] after a kill"):
        peers.regrouped_s(survivors(*rows), [0, 1, 3], 10.0)


def test_bad_flags_are_named() -> None:
    for flags in (["--rounds", "0"], ["--only", "nothing"], ["--torchft-python", "/nowhere/python"]):
        run = subprocess.run(
            [sys.executable, "-m", "benchmarks.recovery", *flags], capture_output=True, text=True, check=False
        )
        assert run.returncode == 2
        assert flags[1] in run.stderr or "among limit" in run.stderr


def test_json_is_one_object_on_the_last_line() -> None:
    argv = [sys.executable, "-m", "benchmarks.recovery", "--rounds", "1", "--only", "torchft", "--json"]
    run = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert list(json.loads(run.stdout.splitlines()[-1])) == [*ISSUED, "rounds", "load", "intervals"]
