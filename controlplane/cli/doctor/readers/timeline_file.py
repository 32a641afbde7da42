"""Read the recorded operations of a job's steps, CSV or Parquet, and check them against a layout file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.steps.operations import COMPUTES
from controlplane.analysis.steps.records import KINDS, Timeline
from controlplane.cli.doctor.readers.columns import PARQUET, Column, check_file, csv_columns
from controlplane.cli.doctor.readers.layout_file import read_sizes
from controlplane.cli.errors import UsageError

if TYPE_CHECKING:
    import argparse

_INDEX = Column()
_OPTIONAL = Column(low=-1.0)
COLUMNS = {
    "dp_rank": _INDEX,
    "stage": _INDEX,
    "rank": _INDEX,
    "step": Column(high=float(1 << 53)),
    "optype": Column(names=KINDS),
    "start_ts": Column(low=-1e12, high=1e12, whole=False),
    "duration": Column(high=1e9, whole=False),
    "seq_id": _INDEX,
    "mc": _OPTIONAL,
    "mb_id": _OPTIONAL,
    "gmc": _OPTIONAL,
}


def read(path: Path, values: argparse.Namespace) -> Timeline:
    """The timeline in a file. Raises UsageError."""
    found = _columns(path)
    timeline = Timeline(*(found[name] for name in COLUMNS))
    if values.layout:
        _check_layout(Path(values.layout), timeline)
    return timeline


def _columns(path: Path) -> dict[str, np.ndarray]:
    head = check_file(path)
    if head == PARQUET:
        from controlplane.cli.doctor.readers.parquet import parquet_columns

        return parquet_columns(path, COLUMNS)
    if path.suffix == ".parquet":
        raise UsageError(
            f"{path} is no Parquet file (it does not begin with {PARQUET.decode()}): fetch it anew"
        )
    return csv_columns(path, COLUMNS)


def _check_layout(path: Path, timeline: Timeline) -> None:
    """Raise UsageError when the layout file states other sizes than the records have."""
    computes = np.isin(timeline.kind, [KINDS.index(kind) for kind in COMPUTES])
    recorded = {
        "dp_size": len(np.unique(timeline.dp_rank)),
        "pp_size": len(np.unique(timeline.stage)),
        "vpp_size": max(1, len(np.unique(timeline.chunk[computes]))),
    }
    for name, size in read_sizes(path).items():
        if name in recorded and recorded[name] != size:
            raise UsageError(
                f"--layout {path}: {name} is {size}, the timeline has {recorded[name]}: give the layout of "
                "this job, or the records of all its workers"
            )
