"""A leader term is recorded whole and replayed; the replay stops where something else is decided."""

from __future__ import annotations

import json
import os
import select
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from controlplane.cli.main import main
from controlplane.core.cluster import Cluster
from controlplane.core.records import events
from controlplane.core.records.effects import STORES, Effect, Launch
from controlplane.core.records.model import JobSpec, MemberPhase, MemberStatus
from controlplane.core.records.timing import CoreSettings
from controlplane.daemon.journal import older, recording, replay
from controlplane.daemon.journal.journal import Journal
from controlplane.daemon.journal.line_file import LineFile
from controlplane.daemon.journal.recording import folder_of
from controlplane.wire.records import plain
from tests.transcripts.language import Play, blocks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controlplane.core.records.events import Event

TRANSCRIPTS = Path(__file__).parents[2] / "transcripts"
SECRET = "hunter2-of-the-bucket"


class Reign:
    """A core that is recorded. What it stores is stored at once."""

    def __init__(self, folder: Path, term: int = 7, bytes_max: int = recording.BYTES_MAX) -> None:
        bounds = recording.Bounds(bytes_max)
        self.journal = Journal(folder / "journal.jsonl", recordings=bounds)
        self.path = folder / "journal.jsonl"
        settings = CoreSettings(node_timeout_s=9.0)
        self.core, self.now = Cluster(settings), 100.0
        self.record = self.journal.record(term, settings)
        self.tell(events.Elected(term, wall_s=1e9))

    def tell(self, event: Event) -> list[Effect]:
        self.now += 0.1234567
        effects = self.core.step(self.now, event)
        self.record.write(self.now, event, effects)
        for each in effects:
            if isinstance(each, STORES):
                effects += self.tell(events.Stored(each.ticket))
        return effects

    async def end(self) -> Path:
        self.record.close()
        await self.journal.close()
        return self.path


def trained(folder: Path, bytes_max: int = recording.BYTES_MAX) -> Reign:
    """Two nodes, a job, and many beats of ranks that get on."""
    leader_term = Reign(folder, bytes_max=bytes_max)
    for node in ("a", "b"):
        leader_term.tell(events.NodeJoined(node, 1, f"l{node}", "10.0.0.1", 1, 4000))
    spec = JobSpec("j", ("t.py",), "/", env=(("KEY", SECRET), ("SAME", SECRET)), nnodes_min=2, nnodes_max=2)
    launched = [each for each in leader_term.tell(events.JobSubmitted(spec)) if isinstance(each, Launch)]
    assert len(launched) == 2
    for beat in range(1, 60):
        for each in launched:
            status = MemberStatus(each.member, "j", MemberPhase.RUNNING, elastic=True, step=beat, pid=9)
            leader_term.tell(events.NodeBeat(each.node, 1, beat, 4000 + beat % 2, (status,)))
    leader_term.tell(events.NodeBroken("a", 1, "the stream ended"))
    for _ in range(100):
        leader_term.tell(events.Tick())
    return leader_term


def lines_of(journal: Path) -> list[dict[str, Any]]:
    (path,) = folder_of(journal).glob("*.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_a_leader_term_is_replayed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    leader_term = trained(folder)
    path = await leader_term.end()
    assert main(["replay", str(path)]) == 0
    told = capsys.readouterr().out
    assert "every invariant held, every decision is as recorded" in told
    assert "term 7" in told and "JobSubmitted" in told and "Launch" in told
    steps = len(lines_of(path)) - 1
    assert f"{steps} steps" in told and steps > 200
    assert main(["replay", str(path), "-o", "json", "--all"]) == 0
    *rows, summary = map(json.loads, capsys.readouterr().out.splitlines())
    assert len(rows) == steps
    assert summary["summary"] == {
        "term": 7,
        "steps": steps,
        "effects": summary["summary"]["effects"],
        "problem": "",
    }
    assert rows[1]["event"]["type"] == "NodeJoined" and rows[1]["effects"][0]["type"] == "Admit"
    assert main(["replay", str(path), "--last", "2", "-o", "json"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


class RecordedPlay(Play):
    """A transcript whose core is recorded."""

    def __init__(self, record: recording.Recording) -> None:
        super().__init__()
        self.record = record

    def step(self, event: Event) -> list[Effect]:
        effects = super().step(event)
        self.record.write(self.now, event, effects)
        return effects


@pytest.mark.parametrize("name", ["hang_recorded", "abort_recorded"])
async def test_a_hang_is_replayed_though_its_flight_records_stay_out_of_the_recording(
    folder: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = Journal(folder / "journal.jsonl")
    play = RecordedPlay(journal.record(1, CoreSettings()))
    given = blocks((TRANSCRIPTS / f"{name}.txt").read_text())
    play.do(*[line for lines in given for line in lines if not line.startswith("#")])
    play.record.close()
    await journal.close()
    (path,) = folder_of(folder / "journal.jsonl").glob("*.jsonl")
    assert "JudgeRecords" in path.read_text() and "a record" not in path.read_text()
    assert main(["replay", str(folder / "journal.jsonl")]) == 0
    assert "every decision is as recorded" in capsys.readouterr().out


async def test_a_recording_of_the_first_format_is_told_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those have every effect whole."""
    leader_term = Reign(folder)
    path = await leader_term.end()
    core, lines = Cluster(CoreSettings(node_timeout_s=9.0)), []
    (file,) = folder_of(path).glob("*.jsonl")
    begins = file.read_text().splitlines()[0].replace(f'"format":{recording.FORMAT}', '"format":1')
    for now, event in told_by_hand(core):
        then = [older.shown(each, 1) for each in core.step(now, event)]
        effects = [[type(each).__name__, plain(each)] for each in then]
        row = {"now": now, "type": type(event).__name__, "body": plain(event), "effects": effects}
        lines.append(json.dumps(row))
    assert sum('"Launch"' in line and '"again"' not in line for line in lines) == 1
    file.write_text("\n".join([begins, *lines, ""]))
    assert main(["replay", str(path)]) == 0
    assert f"{len(lines)} steps" in capsys.readouterr().out


def told_by_hand(core: Cluster) -> Iterator[tuple[float, Event]]:
    """A job of two ranks is launched."""
    yield 1.0, events.Elected(7, wall_s=1e9)
    yield 2.0, events.NodeJoined("a", 1, "la", "10.0.0.1", 2, 4000)
    yield 3.0, events.Stored(1)
    yield 4.0, events.JobSubmitted(JobSpec("j", ("t.py",), "/", env=(("KEY", "v"),), nproc_per_node=2))
    yield 5.0, events.Stored(2)
    yield 6.0, events.Stored(3)


@pytest.mark.parametrize("kind", ["journal", "recording"])
async def test_what_is_written_grows_with_the_ranks_and_not_with_their_square(
    folder: Path, kind: str
) -> None:
    sizes = {}
    for nodes in (8, 32):
        (folder / str(nodes)).mkdir()
        leader_term = Reign(folder / str(nodes))
        for number in range(nodes):
            leader_term.tell(events.NodeJoined(f"n{number}", 1, "l", "10.0.0.1", 8, 4000))
        env = (("LONG", "v" * 2000),)
        spec = JobSpec("j", ("t.py",), "/", env, nnodes_min=nodes, nnodes_max=nodes, nproc_per_node=8)
        effects = leader_term.tell(events.JobSubmitted(spec))
        assert sum(isinstance(each, Launch) for each in effects) == 8 * nodes
        for each in effects:
            leader_term.journal.write(7, "effect", each)
        path = await leader_term.end()
        file = path if kind == "journal" else next(folder_of(path).glob("*.jsonl"))
        sizes[nodes] = file.stat().st_size
        stored, launched = (
            [each for each in map(json.loads, path.read_text().splitlines()) if each["type"] == name]
            for name in ("StoreJob", "Launch")
        )
        (whole,) = [each["body"]["generation"] for each in stored if each["body"]["generation"]]
        again = launched[-1]["body"]["generation"]
        assert again["again"] and again["number"] == whole["number"] and "seats" not in again
        assert len(whole["seats"]) == 8 * nodes and again["resume"]["tier"] == whole["resume"]["tier"]
    assert sizes[32] < 5 * sizes[8], sizes


async def test_beats_take_little_room_and_secrets_none(folder: Path) -> None:
    path = await trained(folder).end()
    text = next(folder_of(path).glob("*.jsonl")).read_text()
    assert SECRET not in text
    assert folder_of(path).stat().st_mode & 0o077 == 0
    beats = [line for line in lines_of(path)[1:] if line["type"] == "NodeBeat"]
    assert [bool(line.get("like")) for line in beats[:4]] == [False, False, True, True]
    assert beats[-1]["body"]["members"] == [{"step": 59}]
    (submitted,) = [line for line in lines_of(path)[1:] if line["type"] == "JobSubmitted"]
    env = dict(submitted["body"]["spec"]["env"])
    assert env["KEY"] == env["SAME"] and env["KEY"].startswith("(hidden ")


async def test_it_stops_where_something_else_is_decided(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = await trained(folder).end()
    (file,) = folder_of(path).glob("*.jsonl")
    rows = file.read_text().splitlines(keepends=True)
    place = next(i for i, row in enumerate(rows) if '"type":"NodeBroken"' in row)
    rows[place] = rows[place].replace(
        "the stream ended", "somebody cut it", 1
    )  # of the event, not of the effect
    file.write_text("".join(rows))
    assert main(["replay", str(path)]) == 1
    told = capsys.readouterr().out
    assert f"stopped at step {place}: effect 1 differs" in told
    assert "somebody cut it" in told and "the stream ended" in told


async def test_a_core_that_failed_fails_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    leader_term = trained(folder)
    leader_term.record.write(
        leader_term.now + 1, events.Tick(), failed="AssertionError('decisions do not settle')"
    )
    path = await leader_term.end()
    assert main(["replay", str(path)]) == 1
    assert (
        "the core failed in the recording: AssertionError('decisions do not settle'); it does not now"
        in capsys.readouterr().out
    )


async def test_what_a_crash_has_torn_is_left_out(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = await trained(folder).end()
    (file,) = folder_of(path).glob("*.jsonl")
    file.write_text(file.read_text()[:-20])
    assert main(["replay", str(path)]) == 0
    capsys.readouterr()


async def test_a_recording_is_bounded_and_old_ones_go(folder: Path) -> None:
    path = await trained(folder, 20_000).end()
    lines = lines_of(path)
    assert lines[-1] == {"kind": "full", "bytes": 20_000}
    (file,) = folder_of(path).glob("*.jsonl")
    assert file.stat().st_size < 20_100
    rows = file.read_text().splitlines(keepends=True)
    steps = list(replay.replay(replay.header(rows[0]), rows[1:]))
    assert len(steps) == len(lines) - 2 and not any(step.problem for step in steps)
    for term in range(8, 8 + recording.KEPT):
        await Reign(folder, term).end()
    assert sorted(each.stem for each in folder_of(path).glob("*.jsonl")) == ["10", "11", "8", "9"]


async def test_the_end_of_a_file_waits_for_no_disk(folder: Path) -> None:
    """A leader term ends on the event loop: there a disk that hangs must hold up nobody."""
    disk = Slow(folder / "lines")
    file = LineFile(disk.path)
    for number in range(3000):
        file.write(f"{number:0100d}")
    begun = time.monotonic()
    file.end()
    assert time.monotonic() - begun < 4  # `close` waits for five seconds
    assert disk.rest() == 3000
    file.close()


class Slow:
    """A file that takes 64 KiB, and more only once it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)
        self._end = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    def rest(self) -> int:
        """Read all; how many lines it was."""
        lines = 0
        while select.select([self._end], [], [], 1.0)[0]:
            lines += os.read(self._end, 1 << 16).count(b"\n")
        os.close(self._end)
        return lines


async def test_a_term_of_another_etcd_is_another_recording(folder: Path) -> None:
    await trained(folder).end()
    path = await Reign(folder).end()
    assert [line.get("kind", line.get("type")) for line in lines_of(path)] == ["reign", "Elected"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("absent/journal.jsonl",), "there are no recordings for absent/journal.jsonl"),
        (("--term", "3"), "has no recording of term 3; it has 7"),
        (("--term", "0"), "terms begin at 1"),
        (("-o", "xml"), "unknown value 'xml'"),
    ],
)
async def test_what_cannot_be_told_again(
    folder: Path, words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = await trained(folder).end()
    words = words if not words[0].startswith("-") else (str(path), *words)
    assert main(["replay", *words]) in (1, 2)
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("", "line 1 is not JSON"),
        ("[]\n", "line 1 is not a JSON object"),
        ('{"kind":"reign","format":99}\n', "format 99"),
        ('{"kind":"reign","format":1}\n', "line 1: 'settings'"),
        (
            '{"kind":"reign","format":1,"settings":{"node_timeout_s":"x"},"term":1,"version":"0","wall_s":1}\n',
            "is not of type float",
        ),
    ],
)
def test_files_that_are_none(folder: Path, line: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "j.reigns").mkdir()
    (folder / "j.reigns" / "1.jsonl").write_text(line)
    assert main(["replay", str(folder / "j.jsonl")]) == 1
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    "row",
    [
        '{"now":1,"type":"Bogus","body":{},"effects":[]}',
        '{"now":1,"type":"NodeBeat","like":true,"body":{"node":"a","seq":1},"effects":[]}',
        '{"now":"x","type":"Tick","body":{},"effects":[]}',
        '{"now":1,"type":"Tick","body":[],"effects":[[1]]}',
        "7",
    ],
)
def test_rows_that_are_no_steps(folder: Path, row: str, capsys: pytest.CaptureFixture[str]) -> None:
    settings = '"settings":{},"term":1,"version":"0","wall_s":1'
    (folder / "j.reigns").mkdir()
    (folder / "j.reigns" / "1.jsonl").write_text(
        '{"kind":"reign","format":1,' + settings + "}\n" + row + "\n"
    )
    assert main(["replay", str(folder / "j.jsonl")]) == 1
    assert "line 2" in capsys.readouterr().err
