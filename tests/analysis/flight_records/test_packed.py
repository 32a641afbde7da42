"""A record that a rank has sent: read like a file, and refused with the reason."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest

from controlplane.analysis.flight_records.fields import DumpError
from controlplane.analysis.flight_records.packed import BYTES_MAX, unpack
from controlplane.analysis.flight_records.records import Progress


def pack(document: Any) -> str:
    return base64.b64encode(zlib.compress(json.dumps(document).encode())).decode()


def document(**changed: Any) -> dict[str, Any]:
    entry = {
        "record_id": 0,
        "pg_id": 0,
        "process_group": ["0", "default_pg"],
        "collective_seq_id": 5,
        "profiling_name": "gloo:all_reduce",
        "state": "scheduled",
        "retired": False,
        "time_created_ns": 1,
        **changed,
    }
    groups = {"0": {"name": "0", "desc": "default_pg", "ranks": [0, 1]}}
    return {"version": "2.10", "pg_config": groups, "pg_status": {}, "entries": [entry]}


def test_a_record_is_read_like_a_dump() -> None:
    dump = unpack(1, pack(document()))
    assert (dump.rank, dump.groups[0].ranks, dump.entries[0].sequence) == (1, (0, 1), 5)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is no JSON"),
        ("no base64 at all!", "it is not packed"),
        (base64.b64encode(b"no zlib").decode(), "it is not packed"),
        (base64.b64encode(zlib.compress(b"{")).decode(), "it is no JSON"),
        (base64.b64encode(zlib.compress(json.dumps(document()).encode())[:40]).decode(), "it is no JSON"),
        (base64.b64encode(zlib.compress(b"[" * 100_000)).decode(), "it is no JSON"),
        (base64.b64encode(zlib.compress(b" " * (BYTES_MAX + 1))).decode(), "more than"),
        (pack([]), "it holds no dict"),
        (pack({"version": "1.0", "entries": []}), "version"),
        (pack(document(collective_seq_id=-1)), "collective_seq_id"),
        (pack(document(collective_seq_id=float("nan"))), "collective_seq_id"),
        (pack(document(time_created_ns=1 << 63)), "time_created_ns"),
        (pack(document(process_group="0")), "process_group"),
    ],
)
def test_what_is_refused(text: str, why: str) -> None:
    with pytest.raises(DumpError, match=why):
        unpack(0, text)


def test_what_gloo_has_retired_has_ended_whatever_its_counter_says() -> None:
    """Two threads complete a group's operations: the counter has the number of the one that was last."""
    found = document(op_id=5, retired=True)
    found["pg_status"] = {"0": {"last_enqueued_collective": 5, "last_completed_collective": 4}}
    assert unpack(1, pack(found)).entries[0].progress is Progress.ENDED


def test_a_record_of_another_rank_is_refused() -> None:
    with pytest.raises(DumpError, match="does not contain"):
        unpack(7, pack(document()))
