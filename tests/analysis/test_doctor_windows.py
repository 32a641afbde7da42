"""`holdfast doctor --windows`: recorded windows are judged as while a job runs, or refused by name."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.diagnosis.live.draw import draw
from benchmarks.diagnosis.live.run import outcomes
from benchmarks.diagnosis.live.spec_file import spec
from benchmarks.diagnosis.live.windows import played, read_truth, write
from controlplane.core.state.findings import Finding, Level

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SPEC = {"jobs": 4, "nodes": [2, 4], "windows": [50, 60], "healthy_share": 0.25, "kinds": ["slow_rank"]}


def named(found: dict[str, Any]) -> tuple[str, int, int, int]:
    from benchmarks.diagnosis.live.score import named as of

    return of(Finding(found["kind"], Level.DEGRADED, "", "", place=tuple(found["subject"].items())))


def test_the_score_of_what_was_exported_is_that_of_the_benchmark(
    tmp_path: Path, said: Callable[..., str]
) -> None:
    count = 0
    for outcome in outcomes(spec(SPEC), 40, export=tmp_path):
        file = tmp_path / "inputs" / f"{outcome.seed}.jsonl.gz"
        found = json.loads(said("--windows", file, "--json"))
        opened: dict[tuple[str, int, int, int], int] = {}
        for each in found["findings"]:
            opened.setdefault(named(each), each["window"])
        assert opened == outcome.opened and found["windows"] == outcome.windows
        assert found["failed_detectors"] == []
        assert read_truth(tmp_path, outcome.seed) == outcome.truth
        count += bool(opened)
    assert count  # of four jobs some have a fault
    assert {each.name for each in tmp_path.iterdir()} == {"inputs", "truth"}


@pytest.fixture
def lines(tmp_path: Path) -> list[dict[str, Any]]:
    """The first windows of a small job, as data."""
    shape, truth = draw(spec(SPEC | {"nodes": [1, 1], "ranks_per_node": [2]}), 3)
    write(tmp_path, 3, list(played(shape, truth))[:6], truth)
    with gzip.open(tmp_path / "inputs" / "3.jsonl.gz", "rt") as file:
        return [json.loads(line) for line in file]


def plain(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_lines_need_not_be_zipped_and_people_are_told(
    tmp_path: Path, lines: list[dict[str, Any]], said: Callable[..., str]
) -> None:
    shown = said("--windows", plain(tmp_path / "windows.jsonl", lines))
    assert shown.startswith("6 windows, 1 judged") and "nobody is to blame" in shown


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda line: line.pop("began_s"), "began_s is None"),
        (lambda line: line.update(beganS=1), "beganS is not known; did you mean began_s?"),
        (lambda line: line.update(ranks_expected=0), "ranks_expected is 0"),
        (lambda line: line.update(ended_s=10**400), "ended_s is 1000"),
        (lambda line: line["columns"].pop("wall_s"), "these columns are missing: wall_s"),
        (lambda line: line["columns"].update(wal_s=[1, 2]), "column wal_s is not known"),
        (lambda line: line["columns"]["wall_s"].append(1.0), "column wall_s is no list"),
        (lambda line: line["columns"]["wall_s"].__setitem__(0, float("nan")), "column wall_s has nan"),
        (lambda line: line["columns"]["node"].__setitem__(0, 5), "column node has 5"),
        (lambda line: line.update(ended_s=line["began_s"] - 1.0), "a window of job"),
    ],
)
def test_a_line_that_is_no_window_is_refused(
    tmp_path: Path,
    lines: list[dict[str, Any]],
    refused: Callable[..., str],
    change: Callable[[dict[str, Any]], object],
    why: str,
) -> None:
    change(lines[3])
    said = refused("--windows", plain(tmp_path / "windows.jsonl", lines))
    assert "line 4" in said and why in said


@pytest.mark.parametrize("content", [b"\x1f\x8b broken", b"[" * 100_000, b"nonsense\n", b"[]\n", b"\xff\n"])
def test_a_file_that_holds_no_windows_is_refused(
    tmp_path: Path, refused: Callable[..., str], content: bytes
) -> None:
    path = tmp_path / "windows.jsonl"
    path.write_bytes(content)
    assert "windows.jsonl" in refused("--windows", path)
