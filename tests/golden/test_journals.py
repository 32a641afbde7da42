"""Journals and recordings of earlier commits are shown, explained and replayed; events are written alike."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from controlplane.cli.main import main
from controlplane.core.cluster import Cluster
from controlplane.daemon.journal import older, replay
from controlplane.daemon.journal.journal import Journal
from controlplane.daemon.journal.recording import folder_of, whole
from controlplane.wire.records import restore
from tests.golden import samples

TERMS = (1, 2)


@pytest.fixture(params=samples.DIGESTS)
def journal(request: pytest.FixtureRequest, folder: Path) -> Path:
    """A copy of a journal that an earlier commit wrote, with its recordings."""
    then = samples.folder(request.param) / "journal.jsonl"
    shutil.copytree(folder_of(then), folder_of(folder / "journal.jsonl"))
    return Path(shutil.copy(then, folder / "journal.jsonl"))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_line_is_shown(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["events", "--journal", str(journal), "-o", "json"]) == 0
    assert capsys.readouterr().out == journal.read_text()
    assert main(["events", "--journal", str(journal), "--all"]) == 0
    told = capsys.readouterr().out
    assert len(told.splitlines()) >= len(lines(journal))
    for word in (
        "killed by signal 9",
        "no spare is ready: a new process is started in its place",
        "checkpoint 100-1 committed",
    ):
        assert word in told


def test_the_incident_is_told(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", "j/1", "--journal", str(journal), "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    told = [line["body"]["incident"] for line in lines(journal) if line["type"] == "IncidentChanged"]
    stated = told[-1]
    assert stated["verdict"]["cause"] == "signaled" and stated["lost_steps"] == 0
    for name in ("job", "verdict", "plan", "outcome", "lost_steps", "restored", "generation_after"):
        assert found[name] == stated[name], name
    assert found["phases_s"] == dict(stated["phases_s"])


@pytest.mark.parametrize("term", TERMS)
def test_a_leader_term_is_replayed(journal: Path, term: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(journal), "--term", str(term)]) == 0
    steps = len(lines(folder_of(journal) / f"{term}.jsonl")) - 1
    assert f"{steps} steps" in (told := capsys.readouterr().out)
    assert "every invariant held, every decision is as recorded" in told


@pytest.mark.parametrize("term", TERMS)
def test_every_recorded_event_is_read(journal: Path, term: int) -> None:
    beats: dict[str, dict[str, Any]] = {}
    for line in lines(folder_of(journal) / f"{term}.jsonl")[1:]:
        body = whole(line, beats)
        assert samples.differs(restore(replay.EVENTS[line["type"]], body), body) == []


async def test_the_same_events_are_journaled_and_recorded_alike(folder: Path) -> None:
    then = samples.folder(samples.NEWEST) / "journal.jsonl"
    now = Journal(folder / "journal.jsonl")
    for term in TERMS:
        with (folder_of(then) / f"{term}.jsonl").open() as file:
            leader_term = replay.header(file.readline())
            recording = now.record(term, leader_term.settings)
            _again(leader_term, file, now, recording)
    await now.close()
    assert [_timeless(line) for line in lines(folder / "journal.jsonl")] == [
        _timeless(line) for line in lines(then)
    ]
    for term in TERMS:
        first, *others = (folder_of(then) / f"{term}.jsonl").read_text().splitlines()
        mine, *again = (folder_of(folder / "journal.jsonl") / f"{term}.jsonl").read_text().splitlines()
        assert again == others
        assert _timeless(json.loads(mine)) == _timeless(json.loads(first))


def _again(leader_term: replay.RecordingHeader, file: Any, journal: Journal, recording: Any) -> None:
    core, beats = Cluster(leader_term.settings), dict[str, dict[str, Any]]()
    for text in file:
        line = json.loads(text)
        event = restore(replay.EVENTS[line["type"]], whole(line, beats))
        effects = [older.shown(each, leader_term.format) for each in core.step(line["now"], event)]
        recording.write(line["now"], event, effects)
        journal.write(leader_term.term, "event", event)
        for effect in effects:
            journal.write(leader_term.term, "effect", effect)
    recording.close()
    recording.wait()


def _timeless(line: dict[str, Any]) -> list[tuple[str, Any]]:
    """The line's fields, in order, but for when it was written, and in which format."""
    return [(name, value) for name, value in line.items() if name not in ("wall_s", "monotonic_s", "format")]
