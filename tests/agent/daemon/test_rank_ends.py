"""The end of a log as it is sent: bounded, without secrets, whatever the log holds."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from agent.daemon.rank_ends import LINE_CHARS, last_lines
from holdfast import masking

if TYPE_CHECKING:
    from pathlib import Path


def test_the_last_whole_lines_are_sent_and_the_rest_is_counted(tmp_path: Path) -> None:
    log = tmp_path / "r.log"
    log.write_text("".join(f"line {number}\n" for number in range(1000)))
    text, skipped, reason = last_lines(log, most=100)
    assert reason == "" and text.endswith("line 999\n") and text.startswith("line 9")
    assert skipped + len(text) == log.stat().st_size
    assert last_lines(log)[1] == 0


@pytest.mark.parametrize(
    "data", [b"", b"\x00\xff\x1b[31m" * 9000, b"x" * 100_000, b"\n" * 50_000, b"a\r" * 30_000]
)
def test_junk_becomes_bounded_text_without_control_characters(tmp_path: Path, data: bytes) -> None:
    log = tmp_path / "r.log"
    log.write_bytes(data)
    text, _, reason = last_lines(log)
    assert reason == "" and len(text) <= 16 << 10
    assert all(len(line) <= LINE_CHARS for line in text.split("\n"))
    assert all(each.isprintable() or each in "\n\t" for each in text)


def test_a_log_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    assert "No such file" in last_lines(tmp_path / "absent")[2]
    os.mkfifo(tmp_path / "pipe")
    assert "no regular file" in last_lines(tmp_path / "pipe")[2]
    assert last_lines(tmp_path)[2]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("password=hunter2 x", "password=(hidden) x"),
        ('{"api_key": "abc", "n": 1}', '{"api_key": "(hidden)", "n": 1}'),
        ("Authorization: Bearer abcdefghijkl", "Authorization: (hidden)"),
        ("s3://me:secret@host/x", "s3://(hidden)@host/x"),
        ("using hf_abcdefghijklmnopqrstuv now", "using (hidden) now"),
        ("AKIAABCDEFGHIJKLMNOP", "(hidden)"),
        ("tokens: 512, tokenizer=gpt2", "tokens: 512, tokenizer=gpt2"),
        ('  File "/app/train.py", line 5, in f', '  File "/app/train.py", line 5, in f'),
        ("ValueError: bad sample: 7", "ValueError: bad sample: 7"),
    ],
)
def test_secrets_of_a_line_are_hidden_and_the_rest_is_kept(line: str, shown: str) -> None:
    assert masking.line(line) == shown
