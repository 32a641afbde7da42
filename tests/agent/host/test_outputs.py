"""Showing the members' output: prefixed, whole, and never in the agent's way."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from agent.host.outputs import Outputs
from tests.agent.support import folder, until_sync

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def here() -> Iterator[Path]:
    with folder() as path:
        yield path


def test_lines_are_prefixed_and_the_last_words_are_shown(here: Path) -> None:
    log, label = here / "log", ["n0 spare"]
    with (here / "shown").open("wb") as target:
        outputs = Outputs(target)
        outputs.start()
        outputs.follow("job.1", log, lambda: label[0])
        with log.open("ab", buffering=0) as writer:
            writer.write(b"first\nhalf")
            until_sync(lambda: (here / "shown").read_bytes() == b"[n0 spare] first\n", "the first line")
            label[0] = "n0 2"
            writer.write(b" a line\n\xff\n" + b"x" * 40_000 + b"\nlast words")
        outputs.finish("job.1")
        until_sync(lambda: b"last words" in (here / "shown").read_bytes(), "the last words")
        outputs.close()
    lines = (here / "shown").read_bytes().split(b"\n")
    assert lines[:3] == [b"[n0 spare] first", b"[n0 2] half a line", b"[n0 2] \xff"]
    assert b"".join(line.removeprefix(b"[n0 2] ") for line in lines[3:-2]) == b"x" * 40_000
    assert lines[-2:] == [b"[n0 2] last words", b""]


def test_after_another_agent_only_what_is_new_is_shown(here: Path) -> None:
    log = here / "log"
    log.write_bytes(b"old\n")
    with (here / "shown").open("wb") as target:
        outputs = Outputs(target)
        outputs.start()
        outputs.follow("job.1", log, lambda: "n0 0", from_end=True)
        until_sync(lambda: outputs._followed["job.1"].descriptor >= 0, "its first look")
        with log.open("ab") as writer:
            writer.write(b"new\n")
        outputs.close()
    assert (here / "shown").read_bytes() == b"[n0 0] new\n"


def test_a_reader_that_does_not_read_holds_nobody_up(here: Path) -> None:
    read, write = os.pipe()
    with os.fdopen(write, "wb", buffering=0) as target:
        outputs = Outputs(target)
        outputs.start()
        (here / "log").write_bytes(b"y" * 1_000_000)
        outputs.follow("job.1", here / "log", lambda: "n0 0")
        outputs.finish("job.1")
        outputs.close(timeout_s=0.3)
        os.close(read)
        outputs.close(timeout_s=10)


def test_a_log_that_cannot_be_opened_now_is_looked_at_again(here: Path) -> None:
    (here / "log").symlink_to(here / "log")  # an error as any other
    with (here / "shown").open("wb") as target:
        outputs = Outputs(target)
        outputs.start()
        outputs.follow("job.1", here / "log", lambda: "n0 0")
        (here / "other").write_bytes(b"first\n")
        outputs.follow("job.2", here / "other", lambda: "n0 1")
        until_sync(lambda: b"first" in (here / "shown").read_bytes(), "what another says")
        (here / "log").unlink()
        (here / "log").write_bytes(b"here\n")
        until_sync(lambda: b"[n0 0] here" in (here / "shown").read_bytes(), "what it says")
        outputs.close()


def test_what_shall_be_hidden_is_passed_over_however_it_comes(here: Path) -> None:
    with (here / "shown").open("wb") as target:
        outputs = Outputs(target)
        outputs.start()
        outputs.follow("job.1", here / "log", lambda: "n0 0")
        outputs.follow("job.2", here / "other", lambda: "n0 1")
        outputs.hide("job.1", "Traceback\n  line\nError: x\n")
        outputs.hide("job.2", "what never comes")
        (here / "other").write_bytes(b"all\nof it")
        with (here / "log").open("ab", buffering=0) as writer:
            for part in (b"before\nTrace", b"back\n  line\nErr", b"or: x\nafter\n"):
                writer.write(part)
        until_sync(lambda: b"[n0 0] after\n" in (here / "shown").read_bytes(), "what follows")
        outputs.finish("job.1")
        outputs.finish("job.2")
        outputs.close()
    lines = (here / "shown").read_bytes().splitlines()
    assert [line for line in lines if line.startswith(b"[n0 0]")] == [b"[n0 0] before", b"[n0 0] after"]
    assert [line for line in lines if line.startswith(b"[n0 1]")] == [b"[n0 1] all", b"[n0 1] of it"]
