"""Read how the ranks of a job spent their steps, window by window: JSON lines, as they are or gzipped.

A line is one window: `job`, `generation`, `began_s`, `ended_s`, `ranks_expected`, and `columns`, an object
with a list for each field of `RankWindow`, one value per rank. Fields that may be unknown may be missing.
Lines are read one by one: a file may have many."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from controlplane.analysis.live import policy
from controlplane.analysis.live.readings import NUMBERS, SEAT_FIELDS, JobWindow, RankColumns, RankWindow
from controlplane.cli.doctor.readers.columns import check_file
from controlplane.cli.errors import UsageError, nearest

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from pathlib import Path

HEAD: dict[str, type | tuple[type, ...]] = {
    "job": str, "generation": int, "began_s": (int, float), "ended_s": (int, float), "ranks_expected": int,
}  # fmt: skip
TEXTS = ("member", "node", "domain")
NEEDED = tuple(name for name in RankWindow._fields if name not in RankWindow._field_defaults)
LINE_BYTES_MAX = 1 << 30
"""One window of a million ranks takes less."""
NUMBER_MAX = 1e18


def read(path: Path, _: argparse.Namespace | None = None) -> Iterator[JobWindow]:
    """The windows, in the order of the file. Raises UsageError, for a later line when that is reached."""
    check_file(path)
    with path.open("rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
    return _windows(path, zipped=zipped)


def _windows(path: Path, *, zipped: bool) -> Iterator[JobWindow]:
    number = 0
    try:
        with gzip.open(path, "rb") if zipped else path.open("rb") as file:
            while line := file.readline(LINE_BYTES_MAX):
                number += 1
                yield _window(json.loads(line), f"{path}, line {number}")
    except UsageError:
        raise
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:  # of gzip and of JSON
        raise UsageError(f"{path}, line {number}: it is no window: {error}") from error
    if not number:
        raise UsageError(f"{path} has no lines: give one JSON object per window")


def _window(found: Any, where: str) -> JobWindow:
    if not isinstance(found, dict) or not isinstance(found.get("columns"), dict):
        raise UsageError(f"{where}: give an object with {', '.join(HEAD)} and columns")
    for name in found:
        if name not in HEAD and name != "columns":
            raise UsageError(f"{where}: {name} is not known{nearest(name, HEAD)}")
    for name, kind in HEAD.items():
        value = found.get(name)
        if not isinstance(value, kind) or isinstance(value, bool) or not _finite(value):
            raise UsageError(f"{where}: {name} is {value!r}")
    if not 0 < found["ranks_expected"] <= policy.RANKS_MAX:
        raise UsageError(
            f"{where}: ranks_expected is {found['ranks_expected']}: give 1 to {policy.RANKS_MAX}"
        )
    head = {name: found[name] for name in HEAD}
    return JobWindow(**head, ranks=_ranks(found["columns"], where))


def _ranks(columns: dict[str, Any], where: str) -> RankColumns:
    for name in columns:
        if name not in RankWindow._fields:
            raise UsageError(f"{where}: column {name} is not known{nearest(name, RankWindow._fields)}")
    if missing := [name for name in NEEDED if name not in columns]:
        raise UsageError(f"{where}: these columns are missing: {', '.join(missing)}")
    count = len(columns["rank"]) if isinstance(columns["rank"], list) else -1
    for name, values in columns.items():
        if not isinstance(values, list) or len(values) != count:
            raise UsageError(f"{where}: column {name} is no list of as many values as there are ranks")
        kind = str if name in TEXTS else (int, float)
        for value in values:
            if not isinstance(value, kind) or isinstance(value, bool) or not _finite(value):
                raise UsageError(f"{where}: column {name} has {value!r}")
    numbers = np.empty((count, len(NUMBERS)))
    for at, name in enumerate(NUMBERS):
        numbers[:, at] = columns[name] if name in columns else RankWindow._field_defaults[name]
    seats = zip(*(columns[name] for name in SEAT_FIELDS), strict=True)
    return RankColumns(list(seats), numbers)


def _finite(value: Any) -> bool:
    return isinstance(value, str) or -NUMBER_MAX <= value <= NUMBER_MAX  # NaN is not
