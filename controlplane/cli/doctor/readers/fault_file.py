"""Read the faults of a cluster: events as JSON, as `holdfast simulate` reads them, or intervals as CSV."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.prediction import policy
from controlplane.analysis.prediction.history import FaultHistory
from controlplane.cli.doctor.readers.columns import Column, check_file, csv_columns
from controlplane.cli.errors import UsageError
from controlplane.simulation import trace
from controlplane.simulation.failures import DAY_S, FailureInputError, Failures, Outage, merged

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

COLUMNS = ("node_id", "start_day", "end_day")
"""The columns of a CSV file. `end_day` is empty while a fault lasts."""
FILE_BYTES_MAX = 64 << 20
"""A larger file is refused: an event has about 200 bytes, and as a JSON object it takes ten times that."""
HORIZON_DAYS = 7
"""How far is predicted where --horizon-days says nothing."""
LASTING = 2.0 * policy.DAYS_MAX
"""Stands for no end while a column is read."""


@dataclass(frozen=True, slots=True)
class AskedPrediction:
    """A history, and what is to be predicted from it."""

    history: FaultHistory
    train_until: int  # the last day that is learnt from
    horizon_days: int
    seed: int  # of the resamples


def read(path: Path, values: argparse.Namespace) -> AskedPrediction:
    """The faults of each node, by time. Raises UsageError that names file, entry or row, and what to do."""
    if not values.nodes:
        raise UsageError("--faults needs --nodes N: nodes that never failed are in no file of faults")
    if not values.train_until:
        raise UsageError("--faults needs --train-until DAY: what happened until then is learnt from")
    history = _history(path, values.nodes)
    horizon_days = values.horizon_days or HORIZON_DAYS
    return AskedPrediction(history, values.train_until, horizon_days, values.seed)


def _history(path: Path, nodes: int) -> FaultHistory:
    check_file(path)
    if (size_bytes := path.stat().st_size) > FILE_BYTES_MAX:
        raise UsageError(f"{path} has {size_bytes} bytes, {FILE_BYTES_MAX} at most: give a part of it")
    failures = _events(path, nodes) if _is_json(path) else _intervals(path, nodes)
    if len(failures.outages) > policy.FAULTS_MAX:
        raise UsageError(
            f"{path} has {len(failures.outages)} faults, {policy.FAULTS_MAX} at most: give a part of it"
        )
    start = np.array([each.start_s / DAY_S for each in failures.outages])
    end = np.array([each.end_s / DAY_S for each in failures.outages])
    node = np.array([each.node for each in failures.outages], dtype=np.int64)
    history = FaultHistory(nodes, failures.names, node, start, end, failures.notes)
    if history.observed_until > policy.DAYS_MAX:
        raise UsageError(
            f"{path}: an event is on day {history.observed_until:.6g}, {policy.DAYS_MAX} at most: give times "
            "in days since the history began"
        )
    return history


def _is_json(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
    return head[:1] in b"[{" if head else True


def _events(path: Path, nodes: int) -> Failures:
    try:
        return trace.read(path.read_text(encoding="utf-8-sig"), nodes, str(path))
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no JSON in UTF-8: {error}") from error
    except FailureInputError as error:
        text = str(error)
        raise UsageError(text if text.startswith(str(path)) else f"{path}, {text}") from error


def _intervals(path: Path, nodes: int) -> Failures:
    columns = csv_columns(
        path,
        {
            "node_id": Column(names=()),
            "start_day": Column(high=policy.DAYS_MAX, whole=False),
            "end_day": Column(names=()),
        },
    )
    where = f"{path}, column end_day"
    text = np.char.strip(columns["end_day"])
    given = np.where(text == "", str(LASTING), text).astype(object)
    end = Column(high=LASTING, whole=False).read(given, where, 1)
    end = np.where(end == LASTING, np.inf, end)
    start = columns["start_day"]
    if (wrong := np.flatnonzero(end < start)).size:
        at = int(wrong[0])
        raise UsageError(
            f"{where}, row {at + 1}: the fault ends on day {end[at]:.6g}, before it begins on day "
            f"{start[at]:.6g}: exchange the two, or leave end_day empty while the fault lasts"
        )
    if (empty := np.flatnonzero(columns["node_id"] == "")).size:
        raise UsageError(f"{path}, column node_id, row {empty[0] + 1}: it is empty: name the node")
    numbers: dict[str, int] = {}
    for row in np.argsort(start, kind="stable"):
        numbers.setdefault(str(columns["node_id"][row]), len(numbers))
    if len(numbers) > nodes:
        raise UsageError(
            f"{path} names {len(numbers)} nodes, more than the {nodes} there are: give --nodes "
            f"{len(numbers)} or more"
        )
    outages, overlapping = merged(
        Outage(numbers[str(name)], begin * DAY_S, max(until, begin + 1.0 / DAY_S) * DAY_S, "")
        for name, begin, until in zip(columns["node_id"], start.tolist(), end.tolist(), strict=True)
    )
    notes = (
        (f"{overlapping} faults that overlap another of the same node: taken as one",) if overlapping else ()
    )
    return Failures(str(path), outages, notes, tuple(numbers))
