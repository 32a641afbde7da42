"""`holdfast doctor --logs` as a stranger meets it: what it prints, which names it understands, and
what it refuses."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from controlplane.cli.doctor.readers import log_folder
from tests.analysis.logs import LOST, RAISED, folder, steps, text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TWO = (steps(0, 20) + text(LOST), steps(0, 20) + text(RAISED))


def test_logs_as_json(said: Callable[..., str], tmp_path: Path) -> None:
    folder(tmp_path, {"rank0.log": TWO[0], "rank1.log": TWO[1]})
    found = json.loads(said("--logs", tmp_path, "--json"))
    first = found["first"]
    assert (first["rank"], first["cause"], first["file"], first["line"]) == (
        1,
        "exception",
        "/app/data.py",
        12,
    )
    assert (first["log_file"], first["log_line"], first["exception"]) == ("rank1.log", 28, "ValueError")
    assert [(each["rank"], each["cause"]) for each in found["cascade"]] == [(0, "connection_lost")]
    assert found["restart"] is False and found["reason"]
    assert [each["kind"] for each in found["findings"]] == ["first_failure", "fails_again"]


def test_logs_for_people(said: Callable[..., str], tmp_path: Path) -> None:
    folder(tmp_path, {"rank0.log": TWO[0], "rank1.log": TWO[1], "notes.txt": "hello"})
    shown = said("--logs", tmp_path)
    assert shown.startswith("first: rank 1: exception at /app/data.py:12\ndo not restart: ")
    assert "connection_lost" in shown and "not read: notes.txt" in shown


@pytest.mark.parametrize(
    "names",
    [
        ("rank0.log", "rank1.log"),
        ("0.log", "1.log"),
        ("log_0.txt", "log_1.txt"),
        ("node0-rank0.err", "node1-rank1.err"),
        ("rank_0/stderr", "rank_1/stderr"),
        ("run_x1/attempt_0/0/stderr.log", "run_x1/attempt_0/1/stderr.log"),
        ("slurm-1234-0.out", "slurm-1234-1.out"),
        ("RANK=0", "RANK=1"),
        ("worker-0.log", "worker-1.log"),
    ],
)
def test_names_of_ranks(names: tuple[str, str], said: Callable[..., str], tmp_path: Path) -> None:
    folder(tmp_path, dict(zip(names, TWO, strict=True)))
    found = json.loads(said("--logs", tmp_path, "--json"))
    assert (found["first"]["rank"], found["first"]["log_file"]) == (1, names[1])


def test_output_and_error_of_a_rank_are_one_rank(said: Callable[..., str], tmp_path: Path) -> None:
    files = {"rank0/stdout": steps(0, 20), "rank0/stderr": text(LOST)}
    folder(tmp_path, {**files, "rank1/stdout": steps(0, 20), "rank1/stderr": text(RAISED)})
    found = json.loads(said("--logs", tmp_path, "--json"))
    assert found["ranks"] == 2 and (found["first"]["rank"], found["first"]["step"]) == (1, 19)


def test_the_last_attempt_folder_counts(said: Callable[..., str], tmp_path: Path) -> None:
    first = {f"attempt_0/{rank}/stderr.log": body for rank, body in enumerate(TWO)}
    folder(tmp_path, {**first, "attempt_1/0/stderr.log": TWO[1], "attempt_1/1/stderr.log": TWO[0]})
    found = json.loads(said("--logs", tmp_path, "--json"))
    assert (found["first"]["rank"], found["attempts"], found["restart"]) == (0, 2, False)
    assert "folder of attempt 1" in found["attempts_told_by"]


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({}, "has no log file"),
        ({"a.log": ""}, "no file is named after a rank"),
        ({"rank0.log.gz": "x"}, "rank0.log.gz is packed: unpack it"),
        ({"rank0.log": "", "x/rank0.log": ""}, "are both of rank 0: name each file after its rank"),
        ({"n1_g0.log": "", "n0_g1.log": ""}, "it is not clear which one is the rank"),
        ({"rank1-rank2.log": ""}, "names the ranks 1 and 2"),
        ({"rank" + "9" * 30 + ".log": ""}, "names rank 99999999999999999999, 1000000 at most"),
        ({"rank9999999.log": ""}, "names rank 9999999, 1000000 at most"),
        ({"a/b/c/d/e/f/rank0.log": ""}, "folders deep"),
    ],
)
def test_names_that_are_refused(
    files: dict[str, str | bytes], reason: str, refused: Callable[..., str], tmp_path: Path
) -> None:
    assert reason in refused("--logs", folder(tmp_path, files))


def test_what_is_no_folder_is_refused(refused: Callable[..., str], tmp_path: Path) -> None:
    assert "is no folder" in refused("--logs", folder(tmp_path, {"rank0.log": ""}) / "rank0.log")
    assert "is no folder" in refused("--logs", tmp_path / "none")


def test_pipes_are_refused_and_links_are_not_followed(
    refused: Callable[..., str], said: Callable[..., str], tmp_path: Path
) -> None:
    logs = folder(tmp_path / "logs", {"rank0.log": TWO[1]})
    (tmp_path / "secret.log").write_text("SECRET")
    (logs / "rank1.log").symlink_to(tmp_path / "secret.log")
    (logs / "loop").symlink_to(logs)
    shown = said("--logs", logs, "--json")
    assert "SECRET" not in shown
    left_out = {each["file"]: each["reason"] for each in json.loads(shown)["files_left_out"]}
    assert sorted(left_out) == ["loop", "rank1.log"] and "links are not followed" in left_out["loop"]
    os.mkfifo(logs / "rank2.log")
    assert "rank2.log is no regular file" in refused("--logs", logs)


@pytest.mark.parametrize(
    "line",
    [
        b"File \"" * 150_000, b"Traceback (most recent call last):" * 30_000, b"[" * 1_000_000,
        b"a." * 500_000 + b"Error", b" |+-" * 250_000, b"step " * 200_000, b"\x1b[" * 500_000,
        b"xid(" * 250_000, b"1/1 [" * 200_000, b"\xff\x00" * 500_000, b"2026-11-23T" * 90_000,
        b"(pid=" * 200_000, b"rank 0 : " * 100_000, b"A" * 1_000_000 + b": x", b"Aa" * 500_000,
    ],
)  # fmt: skip
def test_a_line_of_a_megabyte_is_read_like_any_other(
    line: bytes, said: Callable[..., str], tmp_path: Path
) -> None:
    body = b"\n".join([text(steps(0, 3)).encode(), line, line, text(RAISED).encode()])
    found = json.loads(said("--logs", folder(tmp_path, {"rank0.log": body}), "--json"))
    assert (found["first"]["rank"], found["first"]["line"]) == (0, 12)
    assert all(len(each["text"]) < 400 for each in [found["first"], *found["cascade"]])


def test_bytes_that_are_no_text_do_not_matter(said: Callable[..., str], tmp_path: Path) -> None:
    noise = bytes(range(256)) * 200
    body = noise + b"\n" + text(RAISED).replace("ValueError", "Value\0Error").encode() + noise
    found = json.loads(said("--logs", folder(tmp_path, {"rank0.log": body, "rank1.log": b""}), "--json"))
    assert found["first"]["exception"] == "ValueError"


def test_of_a_large_file_head_and_tail_are_read_and_lines_keep_their_numbers(
    said: Callable[..., str], tmp_path: Path
) -> None:
    filler = "x" * 99 + "\n"
    count = (log_folder.HEAD_BYTES + log_folder.TAIL_BYTES_MAX) // 100 + 9000
    body = filler * count + text(RAISED)
    found = json.loads(said("--logs", folder(tmp_path, {"rank0.log": body, "rank1.log": ""}), "--json"))
    assert found["first"]["log_line"] == count + 8
    (cut,) = found["files_cut"]
    assert cut["rank"] == 0 and 800_000 < cut["skipped_bytes"] < 1_000_000


def test_other_flags_do_not_go_with_logs(refused: Callable[..., str], tmp_path: Path) -> None:
    folder(tmp_path, {"rank0.log": TWO[0]})
    assert "--column is for --iterations" in refused("--logs", tmp_path, "--column", "x")
