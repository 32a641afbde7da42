"""Files as people give them to `holdfast doctor`."""

from __future__ import annotations

import csv
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow
from pyarrow import parquet

from benchmarks.diagnosis.pipelines import Faults, Job, record
from controlplane.analysis.steps.records import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from benchmarks.diagnosis.pipelines import Row


JOB = Job(replicas=3, stages=2, micro_batches=3, steps=4)
SLOW = Faults(compute=lambda *where: 2.0 if where[:2] == (1, 0) else 1.0)
LAYOUT = "trial_name: mine  # of March\ndp_size: 3\npp_size: 2\nvpp_size: 1\ntp_size: 4\nworld_size: 24\n"


def steps() -> list[Row]:
    return record(JOB, SLOW, Random(1))


def write(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def as_parquet(path: Path, rows: Sequence[Row], **changed: Any) -> Path:
    values = dict(zip(COLUMNS, map(list, zip(*rows, strict=True)), strict=True))
    parquet.write_table(pyarrow.table({**values, **changed}), path)
    return path
