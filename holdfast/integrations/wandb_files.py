"""Read from the files of W&B's offline runs how far a run has been logged, and which notes it has.

A process that goes on with an offline run gets a folder of its own and knows nothing of the others, so a step
could be in two of them. W&B has no function that reads the files. They are in leveldb's log format: a header
of 7 bytes, then blocks of 32 KiB of records (checksum, length, kind: whole, first, middle, last)."""

from __future__ import annotations

import json
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

HEADER_BYTES, BLOCK_BYTES = 7, 1 << 15
RECORD = struct.Struct("<IHB")
WHOLE, FIRST, LAST = 1, 2, 4


def newest_step(folder: str | Path, run_id: str, settle_s: float = 1.0) -> int:
    """The newest step in the offline runs with this id under `folder` (W&B's default is "wandb"); -1: none.

    It waits until the files have not grown for `settle_s`: W&B's own process may write for a moment after the
    script died. Raises ValueError if a file is not one of W&B's."""
    paths = _paths(folder, run_id)
    sizes: list[int] = []
    while paths and sizes != (sizes := [path.stat().st_size for path in paths]):
        time.sleep(settle_s)
    return max((step for path in paths for step in logged_steps(path)), default=-1)


def texts(folder: str | Path, run_id: str, key: str) -> set[str]:
    """All texts that the offline runs with this id under `folder` have logged under `key`.

    Call it after `newest_step`, which waits for the files. Raises ValueError if a file is none of W&B's."""
    histories = (history for path in _paths(folder, run_id) for history in _histories(path))
    items = (item for history in histories for item in history.item)
    return {json.loads(item.value_json) for item in items if key in (item.key, *item.nested_key)}


def logged_steps(path: Path) -> Iterator[int]:
    """The steps of an offline run's file, in their order. Raises ValueError if it is none."""
    for history in _histories(path):
        yield history.step.num


def _paths(folder: str | Path, run_id: str) -> list[Path]:
    return sorted(Path(folder).glob(f"offline-run-*-{run_id}/run-{run_id}.wandb"))


def _histories(path: Path) -> Iterator[Any]:
    """What was logged at each step, as W&B's own records."""
    from wandb.proto import wandb_internal_pb2

    for content in records(path):
        record = wandb_internal_pb2.Record.FromString(content)
        if record.WhichOneof("record_type") == "history":
            yield record.history


def records(path: Path) -> Iterator[bytes]:
    """The whole records; a last one that is cut off is left out."""
    data, at, begun = path.read_bytes(), HEADER_BYTES, b""
    if data[:4] != b":W&B"[: len(data)]:
        raise ValueError(f"{path}: not a file of W&B")
    while at + RECORD.size <= len(data):
        left = BLOCK_BYTES - at % BLOCK_BYTES
        if left < RECORD.size:
            at += left
            continue
        _, size, kind = RECORD.unpack_from(data, at)
        piece = data[at + RECORD.size : at + RECORD.size + size]
        if not kind or len(piece) < size:
            return
        at += RECORD.size + size
        begun = piece if kind in (WHOLE, FIRST) else begun + piece
        if kind in (WHOLE, LAST):
            yield begun
