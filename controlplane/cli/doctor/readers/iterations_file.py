"""Read how long each worker's iterations took, from CSV."""

from __future__ import annotations

import csv
import itertools
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.iterations.pace import Iterations
from controlplane.cli.doctor.readers.columns import Column, check_file, csv_columns
from controlplane.cli.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

DURATIONS = ("seconds", "batch_time_norm")
"""The columns that hold durations, when --column names none."""
WORKERS_MAX = 20_000
LEAST = 1e-9
"""The shortest duration that is taken: durations are divided by each other, so none may be 0."""


def read(path: Path, values: argparse.Namespace) -> list[Iterations]:
    """The iterations of each worker, in order of time. Raises UsageError."""
    check_file(path)
    name = values.column or _duration(path)
    found = csv_columns(
        path,
        {
            "worker": Column(names=()),
            "time": Column(low=-1e15, high=1e15, whole=False),
            name: Column(low=LEAST, high=1e15, whole=False),
        },
    )
    labels, worker = np.unique(found["worker"], return_inverse=True)
    if len(labels) > WORKERS_MAX:
        raise UsageError(f"{path} has {len(labels)} workers, {WORKERS_MAX} at most: give some of them")
    if (empty := np.flatnonzero(found["worker"] == "")).size:
        raise UsageError(f"{path}, column worker, row {empty[0] + 1}: it is empty: name the worker")
    order = np.lexsort((found["time"], worker))
    edges = np.searchsorted(worker[order], np.arange(len(labels) + 1))
    rows = [order[begin:end] for begin, end in itertools.pairwise(edges)]
    names = _names([str(label) for label in labels])
    workers = [
        Iterations(label, found["time"][mine], found[name][mine])
        for label, mine in zip(names, rows, strict=True)
    ]
    return sorted(workers, key=lambda each: (isinstance(each.worker, str), each.worker))


def _duration(path: Path) -> str:
    """The one column of DURATIONS that the file has."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            header = [name.strip() for name in next(csv.reader(file), [])]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path} is no CSV in UTF-8: {error}") from error
    there = [name for name in DURATIONS if name in header]
    if len(there) != 1:
        found = "neither" if not there else "both"
        raise UsageError(
            f"{path} has {found} of the columns {', '.join(DURATIONS)}: name one with --column NAME"
        )
    return there[0]


def _names(labels: list[str]) -> list[int | str]:
    """The workers' names: as numbers when every name is a number without leading zeros."""
    if all(label.isdecimal() and str(int(label[:18])) == label for label in labels):
        return [int(label) for label in labels]
    return list(labels)
