"""The journal on real files: order, silence of steady beats, restarts, torn ends, a full disk."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from controlplane.cli.main import main
from controlplane.cli.questions.why import from_file
from controlplane.core.records.effects import Launch, Note
from controlplane.core.records.events import JobSubmitted, NodeBroken
from controlplane.core.records.model import JobSpec, Role
from controlplane.core.records.notes import NoteKind
from controlplane.daemon.journal import rotation
from controlplane.daemon.journal.journal import HIDDEN, Journal
from controlplane.daemon.journal.rotation import FileLimits

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
    journal.write(3, "effect", Note(NoteKind.NODE_SUSPECTED, "n1", "its stream broke"))
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
        journal.write(1, "effect", Note(NoteKind.STRAY, "s", "r"))
        await journal.close()
    with path.open("a") as file:
        file.write('{"sequence":3,"bo')  # killed within a write
    journal = Journal(path)
    assert [line.sequence for line in journal.lines()] == [1, 2]
    journal.write(1, "effect", Note(NoteKind.STRAY, "s", "after"))
    await journal.close()
    *_, torn, last = path.read_text().splitlines()
    assert torn == '{"sequence":3,"bo'
    assert json.loads(last)["sequence"] == 3


async def test_no_line_is_passed_over_where_the_file_has_a_gap(folder: Path) -> None:
    """The disk was full for a while, or a line is not to be read: numbers are missing."""
    path = folder / "journal.jsonl"
    journal = Journal(path)
    for _ in range(6):
        journal.write(1, "effect", Note(NoteKind.STRAY, "s", "r"))
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
        journal.write(1, "effect", Note(NoteKind.STRAY, "s", "r"))
    await journal.close()
    assert journal.lines_lost == 5
    assert "No space left" in journal.trouble
    assert len(journal.lines()) == 5


async def test_a_folder_that_is_not_there_is_an_error_at_the_start(folder: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Journal(folder / "absent" / "journal.jsonl")


def _written(folder: Path, lines: int, limits: FileLimits) -> Path:
    """A journal of so many lines, each of about 200 bytes, written by one coordinator."""
    path = folder / "journal.jsonl"
    journal = Journal(path, limits)
    for number in range(lines):
        journal.write_body(1, "daemon", "T", {"job": "ab"[number % 2], "text": "x" * 100})
        if number % 20 == 0:
            _settle(journal)
    asyncio.run(journal.close())
    return path


def _settle(journal: Journal) -> None:
    """Until the thread has written what waits: what it takes at once goes into one file."""
    deadline = time.monotonic() + 10
    while journal.waiting and time.monotonic() < deadline:
        time.sleep(0.001)


def test_a_full_journal_is_followed_by_another_and_old_ones_go(folder: Path) -> None:
    path = _written(folder, 400, FileLimits(10_000, 3))
    kept = rotation.files(path)
    assert len(kept) == 4 and kept[-1] == path
    assert all(each.stat().st_size <= 10_000 for each in kept)
    numbers = [json.loads(line)["sequence"] for each in kept for line in each.read_text().splitlines()]
    assert numbers == list(range(numbers[0], 401)), "what is kept has no gap"
    assert kept[0].name > "journal.jsonl.000003", "the first ones went"


def test_a_coordinator_that_begins_goes_on_behind_all_files(folder: Path) -> None:
    path = _written(folder, 100, FileLimits(10_000, 9))
    assert len(rotation.files(path)) > 1
    os.rename(path, path.with_name("journal.jsonl.000099"))  # killed before the next was begun
    journal = Journal(path, FileLimits(10_000, 9))
    assert journal.sequence == 100
    assert [line.sequence for line in journal.lines()] == list(range(1, 101))
    journal.write_body(1, "daemon", "T", {})
    asyncio.run(journal.close())
    assert json.loads(path.read_text())["sequence"] == 101


def test_what_is_no_journal_of_ours_stays(folder: Path) -> None:
    theirs, link = folder / "journal.jsonl.000001", folder / "journal.jsonl.000002"
    theirs.write_text("the only copy of a thesis\n")
    (folder / "elsewhere").write_text('{"sequence":1}\n')
    link.symlink_to(folder / "elsewhere")
    _written(folder, 300, FileLimits(5_000, 1))
    assert theirs.read_text() == "the only copy of a thesis\n"
    assert (folder / "elsewhere").exists() and link.is_symlink()


def test_a_generation_is_whole_again_once_a_file_is_full(folder: Path) -> None:
    spec = JobSpec("j", ("t.py",), "/", env=(("NAME", "value"),))
    journal = Journal(folder / "journal.jsonl", FileLimits(5_000, 1))
    for _ in range(100):
        journal.write(1, "effect", Launch("n1", "j.1", spec, Role.RANK))
        _settle(journal)
    asyncio.run(journal.close())
    whole = [
        text for each in rotation.files(folder / "journal.jsonl") for text in each.read_text().splitlines()
    ]
    assert len(whole) < 100, "the first file is gone"
    assert any('"argv":["t.py"]' in text for text in whole)


def test_readers_read_across_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _written(folder, 200, FileLimits(10_000, 50))
    assert len(rotation.files(path)) > 2
    assert main(["events", "--journal", str(path), "-o", "json"]) == 0
    told = [json.loads(line)["sequence"] for line in capsys.readouterr().out.splitlines()]
    assert told == list(range(1, 201))
    assert main(["events", "--journal", str(path), "-o", "json", "--job", "a", "--after", "190"]) == 0
    told = [json.loads(line)["sequence"] for line in capsys.readouterr().out.splitlines()]
    assert told == [191, 193, 195, 197, 199]
    assert len(from_file(str(path))) == 200


def test_a_follower_misses_nothing_while_files_follow_each_other(folder: Path) -> None:
    path = folder / "journal.jsonl"
    journal, seen = Journal(path, FileLimits(4_000, 1000)), []
    journal.write_body(1, "daemon", "T", {})
    _settle(journal)
    reader = rotation.JournalReader(path)
    for number in range(300):
        journal.write_body(1, "daemon", "T", {"text": "x" * 100})
        if number % 7 == 0:
            seen += [json.loads(text)["sequence"] for text in reader.lines()]
        if number % 50 == 0:
            _settle(journal)
    asyncio.run(journal.close())
    seen += [json.loads(text)["sequence"] for text in reader.lines()]
    reader.close()
    assert len(rotation.files(path)) > 3
    assert seen == list(range(1, 302))


def test_a_follower_misses_no_file_that_gets_its_number_while_it_looks(folder: Path) -> None:
    """Each file holds one line and is followed at once: the reader looks for the next one all the time."""
    path, count = folder / "journal.jsonl", 250

    def write() -> None:
        for number in range(2, count + 1):
            rotation.turn(path, count)
            path.write_text(f'{{"sequence":{number}}}\n')

    path.write_text('{"sequence":1}\n')
    reader, writer, seen = rotation.JournalReader(path), threading.Thread(target=write), []
    writer.start()
    while writer.is_alive():
        seen += [json.loads(text)["sequence"] for text in reader.lines()]
    writer.join()
    seen += [json.loads(text)["sequence"] for text in reader.lines()]
    reader.close()
    assert seen == list(range(1, count + 1))


def test_a_follower_goes_on_with_the_oldest_when_its_file_was_let_go(folder: Path) -> None:
    path = _written(folder, 40, FileLimits(4_000, 2))
    reader = rotation.JournalReader(path)
    list(reader.lines())
    journal = Journal(path, FileLimits(4_000, 2))
    for number in range(400):
        journal.write_body(1, "daemon", "T", {"text": "x" * 100})
        if number % 20 == 0:
            _settle(journal)
    asyncio.run(journal.close())
    seen = [json.loads(text)["sequence"] for text in reader.lines()]
    reader.close()
    assert seen[-1] == 440
    assert seen == sorted(set(seen))


def test_a_journal_that_cannot_be_followed_grows(folder: Path) -> None:
    path = folder / "journal.jsonl"
    (folder / "journal.jsonl.000001").mkdir()
    os.rename(folder / "journal.jsonl.000001", folder / "journal.jsonl.999999")
    (folder / "journal.jsonl.1000000").mkdir()
    (folder / "journal.jsonl.1000000" / "full").touch()
    _written(folder, 200, FileLimits(5_000, 1))
    kept = [path, *(each for each in rotation.former(path) if each.is_file())]
    lines = [json.loads(text)["sequence"] for each in kept for text in each.read_text().splitlines()]
    assert 200 in lines
    assert (folder / "journal.jsonl.1000000" / "full").exists()
