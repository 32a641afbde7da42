"""Both of torch's flight recorders are read: a build with CUDA keeps gloo's groups and NCCL's apart."""

from __future__ import annotations

from typing import Any

from holdfast.groups.flight_recorder import newest
from holdfast.groups.torch_recorders import DUMPS, dumps, merged

EMPTY = {"version": "2.10", "pg_config": {}, "pg_status": {}}
"""What the recorder of NCCL has in a build with CUDA on a machine without a GPU (torch 2.14.1)."""


def dumped(
    backend: str, group: str, *moments: int, first: int = 0, ended: int | None = None
) -> dict[str, Any]:
    entries = [
        {
            "record_id": first + place,
            "pg_id": 0,
            "process_group": [group, "default_pg"],
            "collective_seq_id": first + place + 1,
            "op_id": first + place + 1,
            "profiling_name": f"{backend}:all_reduce",
            "time_created_ns": moment,
            "input_sizes": [[3]],
            "input_dtypes": ["Float"],
            "is_p2p": False,
        }
        for place, moment in enumerate(moments)
    ]
    completed = first + len(moments) if ended is None else ended
    return {**EMPTY, "entries": entries, "pg_status": {"0": {"last_completed_collective": str(completed)}}}


def test_a_build_has_the_recorder_of_gloo() -> None:
    assert len(dumps()) in (1, len(DUMPS))
    assert all("version" in each for each in dumps())


def test_the_last_collective_is_found_whichever_recorder_is_empty() -> None:
    gloo = dumped("gloo", "0", 10, 20)
    for documents in ([gloo], [gloo, EMPTY], [EMPTY, gloo]):
        last = newest(documents)["0"]
        assert (last.sequence, last.ended, last.operation, last.bytes) == (2, 2, "gloo:all_reduce", 12)


def test_groups_of_both_are_told_and_of_a_group_in_both_what_came_last() -> None:
    found = newest([dumped("gloo", "1", 10), dumped("nccl", "0", 20, 30, ended=1)])
    assert {name: (each.sequence, each.ended) for name, each in found.items()} == {"1": (1, 1), "0": (2, 1)}
    for documents in (
        [dumped("gloo", "0", 10), dumped("nccl", "0", 20)],
        [dumped("nccl", "0", 20), dumped("gloo", "0", 10)],
    ):
        assert newest(documents)["0"].operation == "nccl:all_reduce"


def test_one_recorder_stays_as_it_is() -> None:
    gloo = dumped("gloo", "0", 10, 20, first=7)
    assert merged([gloo, EMPTY]) == merged([EMPTY, gloo]) == gloo
    assert (merged([EMPTY, EMPTY]), merged([])) == (EMPTY, {})


def test_several_are_merged_in_the_order_of_calls_and_their_groups_stay_apart() -> None:
    both = merged([dumped("gloo", "1", 10, 30, first=2), dumped("nccl", "0", 20, 40, first=1, ended=1)])
    rows = both["entries"]
    assert [each["time_created_ns"] for each in rows] == [10, 20, 30, 40]
    assert [each["record_id"] for each in rows] == [3, 4, 5, 6], "three were overwritten"
    ids = {each["process_group"][0]: each["pg_id"] for each in rows}
    assert len(set(ids.values())) == 2
    assert both["pg_status"][str(ids["0"])]["last_completed_collective"] == "1"
    assert both["pg_status"][str(ids["1"])]["last_completed_collective"] == "4"
