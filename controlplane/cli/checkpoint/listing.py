"""`holdfast checkpoint list`: the checkpoints on a storage, newest first. Reads manifests, no chunks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controlplane.cli.checkpoint.place import add_place, jobs, opened
from controlplane.cli.errors import OK
from controlplane.cli.flags.parser import CommandSpec
from controlplane.cli.questions.outputs import data
from controlplane.cli.questions.tables import plain
from controlplane.reporting.quantities import size
from holdfast.checkpoint import load
from holdfast.checkpoint.errors import CheckpointCorrupt, CheckpointRefused

if TYPE_CHECKING:
    import argparse

    from holdfast.checkpoint.load import Found
    from holdfast.checkpoint.storage.store import Store

HEADINGS = ("JOB", "CHECKPOINT", "STEP", "KIND", "BASE", "STATE", "STORED", "RANKS", "")


def list_(values: argparse.Namespace) -> int:
    """Print every checkpoint, newest first."""
    with opened(values) as store:
        rows = [row(store, job, each) for job in jobs(store, values.job) for each in load.listing(store, job)]
    print(data(values.output, {"checkpoints": rows}) or _text(rows))
    return OK


def row(store: Store, job: str, found: Found) -> dict[str, Any]:
    """Return the row of one checkpoint; `error` says why its manifest cannot be read, `suspect` why its state
    is not trusted ("": it is)."""
    shown: dict[str, Any] = {"job": job, "checkpoint": found.id, "step": found.step}
    try:
        manifest = load.read_manifest(store, job, found.id)
    except (CheckpointCorrupt, CheckpointRefused) as error:
        return shown | {"error": str(error)}
    return shown | {
        "generation": manifest.generation,
        "kind": manifest.kind,
        "base": manifest.base,
        "bytes": manifest.bytes_total,
        "stored": manifest.bytes_stored,
        "ranks": len(manifest.versions),
        "shards": len(manifest.shards),
        "holdfast": manifest.holdfast,
        "suspect": found.suspect,
    }


def _text(rows: list[dict[str, Any]]) -> str:
    return plain(list(HEADINGS), [_cells(each) for each in rows]) if rows else "no checkpoints"


def _cells(row: dict[str, Any]) -> list[str]:
    if "error" in row:
        return [row["job"], row["checkpoint"], str(row["step"]), "-", "-", "-", "-", "-", row["error"]]
    return [
        row["job"],
        row["checkpoint"],
        str(row["step"]),
        row["kind"],
        row["base"],
        size(row["bytes"]),
        size(row["stored"]),
        str(row["ranks"]),
        f"suspect: {row['suspect']}" if row["suspect"] else "",
    ]


COMMANDS = {"list": CommandSpec("List the checkpoints on a storage, newest first.", list_, add_place)}
