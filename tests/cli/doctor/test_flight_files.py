"""Folders of dumps as people give them: what is read, what is refused by name, and that the others are
judged."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.diagnosis.dumps import dumps
from controlplane.cli.doctor.readers import flight_files
from controlplane.cli.main import main
from tests.analysis.flight_records.made import world

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Answer = Callable[[Path], dict[str, Any]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five ranks; rank 2 did not come to the second collective."""
    for rank, document in documents().items():
        (tmp_path / f"_dump_{rank}").write_bytes(pickle.dumps(document, protocol=2))
    return tmp_path


def documents() -> dict[int, dict[str, Any]]:
    made = world(5)
    for dump in made:
        dump.call("all_reduce", "0", line=10)
        if dump.rank != 2:
            dump.call("all_reduce", "0", done=False, line=20)
    return {dump.rank: dump.document() for dump in made}


def test_the_answer_for_programs(folder: Path, answer: Answer) -> None:
    found = answer(folder)
    assert set(found) == {"culprits", "undetermined", "missing", "ranks", "findings"}
    (culprit,) = found["culprits"]
    assert (culprit["rank"], culprit["group"], culprit["op"], culprit["seq"]) == (
        2, "default_pg", "all_reduce", 2,
    )  # fmt: skip
    assert culprit["group_ranks"] == [0, 1, 2, 3, 4] and "train.py:20" in culprit["reason"]
    assert (found["undetermined"], found["missing"]) == ([], [])
    (finding,) = found["findings"]
    assert (finding["kind"], finding["subject"], finding["severity"]) == (
        "not_arrived", {"rank": 2}, "critical",
    )  # fmt: skip


def test_the_answer_for_people(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "_dump_4").write_bytes(b"")
    assert main(["doctor", "--flight-recorder", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "5 ranks, 4 with a whole dump" in shown and "critical: not_arrived, rank 2" in shown
    assert "without a usable dump:\n  rank 4: unreadable: _dump_4: it has no bytes" in shown
    assert "not decided, any of these may be to blame:\n  rank 4: " in shown


@pytest.mark.parametrize(
    "name", ["nccl_trace_rank_{}", "rank_{}.json", "comm_lib_trace_rank_{}", "run7_dump_{}"]
)
def test_names_and_json_as_torch_writes_them(name: str, tmp_path: Path, answer: Answer) -> None:
    for rank, document in documents().items():
        for each in document["entries"]:
            each.pop("frames")
        as_json = json.loads(json.dumps(document))
        as_json["pg_status"] = {"0": {"last_enqueued_collective": "2", "last_completed_collective": "1"}}
        (tmp_path / name.format(rank)).write_text(json.dumps(as_json))
    (tmp_path / "fault_injection.log").write_text("Fault ranks: [1]")
    (tmp_path / "core.4711").write_bytes(b"\x7fELF")
    found = answer(tmp_path)
    assert [each["rank"] for each in found["culprits"]] == [2] and found["ranks"] == 5


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it has no bytes"),
        (b"\x80\x02cos\nsystem\n.", "instruction GLOBAL"),
        (pickle.dumps(documents()[4], protocol=2)[:-40], "cut off or damaged"),
        (pickle.dumps([1, 2], protocol=2), "holds no dict"),
        (b'{"version": "2.9", "entries": [', "it is no JSON, it may be cut off"),
        (b"[" * 100_000, "it begins with b'[[[['"),
        (b'{"a":' * 100_000, "it is no JSON"),
        (b"version https://git-lfs.github.com/spec/v1\n", "it begins with b'vers'"),
        (pickle.dumps({"version": "1.0", "entries": []}, protocol=2), "version '1.0' is unknown"),
        (pickle.dumps({"version": "2.9"}, protocol=2), "entries is missing"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_read_is_named_and_the_others_are_judged(
    content: bytes, reason: str, folder: Path, answer: Answer
) -> None:
    (folder / "_dump_4").write_bytes(content)
    found = answer(folder)
    assert [each["rank"] for each in found["culprits"]] == [2]
    (missing,) = found["missing"]
    assert (missing["rank"], missing["why"]) == (4, "unreadable") and reason in missing["reason"]
    assert "_dump_4: " in missing["reason"]


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("state", "asleep", "entry 1.state is 'asleep': known are scheduled, started, completed"),
        ("state", {"a": 1}, "entry 1.state is"),
        ("state", ["started"], "entry 1.state is"),
        ("collective_seq_id", -1, "entry 1.collective_seq_id is '-1'"),
        ("collective_seq_id", 1 << 70, "entry 1.collective_seq_id is"),
        ("collective_seq_id", True, "entry 1.collective_seq_id is 'True'"),
        ("process_group", "0", "entry 1.process_group is no pair"),
        ("profiling_name", 7, "entry 1.profiling_name is no text"),
        ("input_sizes", [[1.5]], "entry 1.input_sizes is '1.5'"),
        ("input_sizes", 3, "entry 1.input_sizes is no list"),
        ("frames", [3], "entry 1.frames holds what is no frame"),
        ("record_id", 0, "two entries have one record_id"),
        ("time_created_ns", "soon", "entry 1.time_created_ns is 'soon'"),
    ],
)
def test_a_field_that_will_not_do_is_named(
    field: str, value: object, reason: str, folder: Path, answer: Answer
) -> None:
    document = documents()[4]
    document["entries"][1][field] = value
    (folder / "_dump_4").write_bytes(pickle.dumps(document, protocol=2))
    found = answer(folder)
    (missing,) = found["missing"]
    assert reason in missing["reason"] and [each["rank"] for each in found["culprits"]] == [2]


def test_one_long_list_that_is_named_many_times_is_refused(folder: Path, answer: Answer) -> None:
    document, long = documents()[4], [[1] * 60_000]
    document["entries"] = [{**document["entries"][0], "record_id": at} for at in range(400)]
    for each in document["entries"]:
        each["input_sizes"] = long
    (folder / "_dump_4").write_bytes(pickle.dumps(document, protocol=2))
    assert "lists have more than" in answer(folder)["missing"][0]["reason"]


def test_a_rank_that_its_own_groups_do_not_contain(folder: Path, answer: Answer) -> None:
    (folder / "_dump_4").rename(folder / "_dump_9")
    found = answer(folder)
    assert {each["rank"]: each["why"] for each in found["missing"]} == {4: "absent", 9: "unreadable"}
    assert "says rank 9" in found["missing"][1]["reason"]


def test_names_are_shown_without_control_characters(folder: Path, answer: Answer) -> None:
    document = documents()[2]
    document["entries"][0]["frames"][1]["filename"] = "\x1b[31mtrain.py" + "x" * 5000
    (folder / "_dump_2").write_bytes(pickle.dumps(document, protocol=2))
    reason = answer(folder)["culprits"][0]["reason"]
    assert "?[31mtrain.py" in reason and "\x1b" not in reason and len(reason) < 1000


def test_of_two_dumps_of_a_rank_the_newer_one_counts(folder: Path, answer: Answer) -> None:
    (folder / "nccl_trace_rank_2").write_bytes(pickle.dumps(documents()[2] | {"entries": []}, protocol=2))
    found = answer(folder)
    assert [each["rank"] for each in found["culprits"]] == [2] and found["missing"] == []


def test_folders_that_cannot_be_used(tmp_path: Path, refusal: Callable[[Path], str]) -> None:
    assert "is no folder" in refusal(tmp_path / "none")
    assert "has no dump: give a folder of files whose names end in the rank" in refusal(tmp_path)
    (tmp_path / "_dump_0").write_bytes(b"")
    assert "has 1 dumps, and none can be read: _dump_0: it has no bytes" in refusal(tmp_path)
    with (tmp_path / "_dump_0").open("wb") as file:
        file.truncate(flight_files.FILE_BYTES_MAX + 1)  # a hole: it takes no room
    assert f"it has more than {flight_files.FILE_BYTES_MAX} bytes" in refusal(tmp_path)
    assert "is no folder" in refusal(tmp_path / "_dump_0")


def test_made_up_dumps_are_judged_from_their_files(tmp_path: Path, answer: Answer) -> None:
    case = dumps("held_interpreters", 3)
    found = answer(case.write(tmp_path))
    assert {each["rank"] for each in found["culprits"]} == case.culprits
