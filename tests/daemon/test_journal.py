"""The journal on real files: order, silence of steady beats, restarts, torn ends, a full disk."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from controlplane.core.effects import Launch, Note
from controlplane.core.events import JobSubmitted, NodeBroken
from controlplane.core.model import JobSpec, Role
from controlplane.daemon.journal import HIDDEN, Journal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def journal(folder: Path) -> AsyncIterator[Journal]:
    journal = Journal(folder / "journal.jsonl")
    yield journal
    await journal.close()


def _read(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_lines_are_in_order_and_count_what_was_skipped(folder: Path, journal: Journal) -> None:
    journal.write(3, "event", NodeBroken("n1", 5, "gone"))
    journal.skip()
    journal.skip()
    journal.write(3, "effect", Note("suspected", "n1", "its stream broke"))
    await journal.close()
    first, second = _read(folder / "journal.jsonl")
    assert first["body"] == {"node": "n1", "incarnation": 5, "reason": "gone"}
    assert [first["sequence"], second["sequence"]] == [1, 2]
    assert [first["skipped"], second["skipped"]] == [0, 2]
    assert (second["term"], second["kind"], second["type"]) == (3, "effect", "Note")
    assert isinstance(first["monotonic_s"], float) and isinstance(second["monotonic_s"], float)
    assert first["monotonic_s"] <= second["monotonic_s"]


async def test_values_of_the_environment_stay_out(journal: Journal) -> None:
    spec = JobSpec("j", ("t.py",), "/", env=(("TOKEN", "secret"),))
    journal.write(1, "event", JobSubmitted(spec))
    journal.write(1, "effect", Launch("n1", "j.1", spec, Role.RANK))
    texts = [line.text for line in journal.lines()]
    assert all("secret" not in text for text in texts)
    assert "TOKEN" in texts[0] and HIDDEN in texts[0]
    assert json.loads(texts[1])["body"]["spec"] == {"job": "j", "again": True}
    assert [line.job for line in journal.lines()] == ["j", "j"]


async def test_a_restart_goes_on_where_the_file_ends(folder: Path) -> None:
    path = folder / "journal.jsonl"
    for _ in range(2):
        journal = Journal(path)
        journal.write(1, "effect", Note("k", "s", "r"))
        await journal.close()
    with path.open("a") as file:
        file.write('{"sequence":3,"bo')  # killed within a write
    journal = Journal(path)
    assert [line.sequence for line in journal.lines()] == [1, 2]
    journal.write(1, "effect", Note("k", "s", "after"))
    await journal.close()
    *_, torn, last = path.read_text().splitlines()
    assert torn == '{"sequence":3,"bo'
    assert json.loads(last)["sequence"] == 3


async def test_no_line_is_passed_over_where_the_file_has_a_gap(folder: Path) -> None:
    """The disk was full for a while, or a line is not to be read: numbers are missing."""
    path = folder / "journal.jsonl"
    journal = Journal(path)
    for _ in range(6):
        journal.write(1, "effect", Note("k", "s", "r"))
    await journal.close()
    rows = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*rows[:2], "{torn\n", *rows[4:]]))
    journal = Journal(path)
    assert [line.sequence for line in journal.lines(after=2)] == [5, 6]
    assert [line.sequence for line in journal.lines(after=3)] == [5, 6]
    assert [line.sequence for line in journal.lines(after=5)] == [6]
    await journal.close()


async def test_followers_get_each_line_once(journal: Journal) -> None:
    for number in range(3):
        journal.write_body(1, "daemon", "T", {"job": "ab"[number % 2], "n": number})
    seen: list[int] = []

    async def follow() -> None:
        seen.extend([line.sequence async for line in journal.follow(after=1, job="a")])

    follower = asyncio.create_task(follow())
    await asyncio.sleep(0)
    for number in range(4):
        journal.write_body(1, "daemon", "T", {"job": "ab"[number % 2]})
        await asyncio.sleep(0)
    await journal.close()
    await follower
    assert seen == [3, 4, 6]
    assert [line.sequence for line in journal.lines(after=99)] == [1, 2, 3, 4, 5, 6, 7]


async def test_a_full_disk_is_counted_and_stops_nobody() -> None:
    journal = Journal(Path("/dev/full"))
    for _ in range(5):
        journal.write(1, "effect", Note("k", "s", "r"))
    await journal.close()
    assert journal.lines_lost == 5
    assert "No space left" in journal.trouble
    assert len(journal.lines()) == 5


async def test_a_folder_that_is_not_there_is_an_error_at_the_start(folder: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Journal(folder / "absent" / "journal.jsonl")
