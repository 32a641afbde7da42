"""Read torch's flight recorders: a build with CUDA has two, one for NCCL and one for all other backends.

Which one a group is in depends on its backend, not on the build: gloo's groups are in the second one in every
build, and where a build has no CUDA, that is the only one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from torch._C import _distributed_c10d as c10d

if TYPE_CHECKING:
    from collections.abc import Sequence

Document = dict[str, Any]
DUMPS = ("_dump_fr_trace_json", "_dump_nccl_trace_json")
"""The functions of torch that dump a recorder; a build has one or both."""
_DUMPING: list[Any] = [getattr(c10d, name) for name in DUMPS if hasattr(c10d, name)]
_APART = 1 << 32
"""Each recorder numbers its groups from 0: those of the second one are moved by so much."""


def statuses() -> list[bytes]:
    """How far each group has come, by each recorder, without its operations."""
    return [dump(False, True) for dump in _DUMPING]


def dumps() -> list[Document]:
    """What each recorder has, in torch's own JSON. It takes milliseconds."""
    return [json.loads(dump()) for dump in _DUMPING]


def merged(documents: Sequence[Document]) -> Document:
    """One document of all that the recorders have: operations in the order of their calls.

    That of a single recorder is left as it is. Of several, operations are numbered anew; the first one gets
    number 0 only if none of them has overwritten any."""
    used = [each for each in documents if each.get("entries")]
    if len(used) < 2:
        return next(iter(used or documents), {})
    entries: list[Document] = []
    status: Document = {}
    lost = 0
    for place, document in enumerate(used):
        rows = document["entries"]
        lost += min(int(row["record_id"]) for row in rows)
        entries += [{**row, "pg_id": int(row["pg_id"]) + place * _APART} for row in rows]
        shown = document.get("pg_status") or {}
        status |= {str(int(key) + place * _APART): row for key, row in shown.items()}
    entries.sort(key=lambda row: int(row["time_created_ns"]))
    numbered = [{**row, "record_id": lost + place} for place, row in enumerate(entries)]
    return {"version": used[0].get("version", ""), "pg_status": status, "entries": numbered}
