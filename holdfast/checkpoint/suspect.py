"""Mark checkpoints on the storage whose state is not trusted, and read the marks.

A mark is a file of its own: the manifest's bytes are named by their digest and never change. Versions that do
not know marks pass them over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.checkpoint.errors import (
    CheckpointCorrupt,
    CheckpointRefused,
    NameRefused,
    NotAFile,
    StorageError,
)
from holdfast.checkpoint.format import envelope, names

if TYPE_CHECKING:
    from holdfast.checkpoint.storage.store import Store

_KIND = "suspect"
_BYTES_MAX = 64 * 1024
REASON_CHARS_MAX = 2000


def mark(store: Store, job: str, checkpoint: str, reason: str) -> None:
    """Mark a checkpoint as suspect. A mark that is there stays. Raises StorageError."""
    fields = {"schema": envelope.SCHEMA, "job": job, "id": checkpoint, "reason": reason[:REASON_CHARS_MAX]}
    content, _ = envelope.encode(_KIND, fields)
    store.put(names.suspect(job, checkpoint), content)
    store.flush()


def reasons(store: Store, job: str) -> dict[str, str]:
    """Why each marked checkpoint of a job is suspect, by id.

    One whose mark cannot be read is suspect all the same. Raises StorageError if they cannot be listed."""
    found = {}
    for file in store.list(names.suspects(job)):
        checkpoint = file.removesuffix(".json")
        try:
            names.split_id(checkpoint)
        except NameRefused:
            continue
        found[checkpoint] = _reason(store, job, checkpoint)
    return found


def _reason(store: Store, job: str, checkpoint: str) -> str:
    try:
        content = store.read(names.suspect(job, checkpoint), _BYTES_MAX)
        reason, _ = envelope.parsed(_KIND, content, job, checkpoint, parse=_told, digest="")
    except (CheckpointCorrupt, CheckpointRefused, FileNotFoundError, NotAFile, StorageError) as error:
        return f"it is marked as suspect, and the mark cannot be read: {error}"
    return reason or "it is marked as suspect, without a reason"


def _told(fields: dict[str, Any]) -> str:
    return str(fields["reason"])
