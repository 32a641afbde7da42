"""Turn what is played into the windows of the live diagnosis, and write them as `holdfast doctor --windows`
reads them."""

from __future__ import annotations

import gzip
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.diagnosis.live.draw import Truth
from benchmarks.diagnosis.live.play import Play
from controlplane.analysis.live.readings import NUMBERS, JobWindow, RankColumns, RankWindow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from benchmarks.diagnosis.live.draw import Shape
    from benchmarks.diagnosis.live.play import Played

PHASES = ("data", "forward", "backward", "communication", "optimizer", "snapshot", "other")


def played(shape: Shape, truth: Truth) -> Iterator[JobWindow]:
    """The windows of a job, in order."""
    ranks = range(shape.ranks)
    nodes = [rank // shape.per_node for rank in ranks]
    stage, dp_rank = shape.stage.tolist(), shape.dp_rank.tolist()
    seats: list[tuple[Any, ...]] = [
        (rank, f"m{rank}", f"n{node}", rank % shape.per_node, "", dp, st, 0, rank % shape.tp)
        for rank, node, dp, st in zip(ranks, nodes, dp_rank, stage, strict=True)
    ]
    for window in Play(shape, truth).windows():
        yield _window(shape, window, seats)


def _window(shape: Shape, window: Played, seats: list[tuple[Any, ...]]) -> JobWindow:
    columns = window.columns
    known: dict[str, Any] = {
        "generation": 1,
        **{name: columns[name] for name in ("steps", "last_step", "tokens")},
        "covered": columns["steps"],
        **{f"{name}_s": columns[name] for name in ("wall", *PHASES, "cpu", "longest")},
        "memory_bytes": columns["memory"],
        "memory_peak_bytes": columns["memory"],
        "memory_limit_bytes": columns["limit"],
    }
    numbers = np.empty((shape.ranks, len(NUMBERS)))
    for at, name in enumerate(NUMBERS):
        numbers[:, at] = known[name] if name in known else RankWindow._field_defaults[name]
    ranks = RankColumns(seats, numbers)
    return JobWindow(f"job{shape.seed}", 1, window.began_s, window.ended_s, ranks, shape.ranks)


def write(folder: Path, seed: int, windows: Iterable[JobWindow], truth: Truth) -> None:
    """Write a job's windows to `inputs`, one JSON object per line, and what is wrong to `truth`, apart."""
    (folder / "inputs").mkdir(parents=True, exist_ok=True)
    (folder / "truth").mkdir(exist_ok=True)
    with gzip.open(folder / "inputs" / f"{seed}.jsonl.gz", "wt", compresslevel=3) as file:
        for window in windows:
            file.write(
                json.dumps(
                    {
                        **_head(window),
                        "columns": _columns(window.ranks),
                    }
                )
            )
            file.write("\n")
    (folder / "truth" / f"{seed}.json").write_text(json.dumps(asdict(truth)))


def _columns(ranks: RankColumns) -> dict[str, list[Any]]:
    seats = map(list, zip(*ranks.seats, strict=True))
    return dict(zip(RankWindow._fields, (*seats, *ranks.numbers.T.tolist()), strict=True))


def _head(window: JobWindow) -> dict[str, object]:
    return {
        "job": window.job,
        "generation": window.generation,
        "began_s": window.began_s,
        "ended_s": window.ended_s,
        "ranks_expected": window.ranks_expected,
    }


def read_truth(folder: Path, seed: int) -> Truth:
    """What is wrong with the job of this seed."""
    return Truth(**json.loads((folder / "truth" / f"{seed}.json").read_text()))
