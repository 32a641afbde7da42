"""What an agent keeps of the logs of its ranks: bounded, in its place, and found by time and generation."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

import pytest

from agent.deciding.member import LocalMember
from agent.host import holes
from agent.logs.index import MARKS_MAX, LogIndex
from agent.logs.keeping import RankLogs
from agent.logs.reading import LogSlice
from controlplane.core.records.logs import LogMark, ReadLog
from controlplane.core.records.model import MemberPhase, MemberStatus
from tests.agent.daemon.test_collecting import node

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from agent.host.paths import Paths

MIB = 1 << 20


class Kept:
    """The logs of a node with an agent's state but no processes; the test writes what ranks would."""

    def __init__(self, logs: RankLogs, paths: Paths, members: object) -> None:
        self.logs, self.paths, self.members = logs, paths, members
        self.now_s = 1000.0

    def became(self, member: str, rank: int, generation: int) -> None:
        status = MemberStatus(member, "j", MemberPhase.RUNNING, rank=rank, generation=generation)
        self.members.take(LocalMember(status))  # type: ignore[attr-defined]
        self.logs.note(status)

    def wrote(self, member: str, data: bytes) -> None:
        with self.paths.log(member).open("ab") as file:
            file.write(data)

    def ended(self, member: str) -> None:
        known = self.members.get(member)  # type: ignore[attr-defined]
        known.status = dataclasses.replace(known.status, phase=MemberPhase.EXITED)

    def read(self, member: str, **part: int | float) -> bytes:
        order = ReadLog("n0", "j", "1", member, **part)  # type: ignore[arg-type]
        since = self.logs.since(member, order.since_s) if order.since_s else 0
        found, log = b"", LogSlice(self.paths.log(member), order, since)
        while data := log.next()[1]:
            found += data
        log.close()
        return found


@pytest.fixture
async def kept() -> AsyncIterator[Kept]:
    async with node() as here:
        made = Kept(RankLogs(here.paths, here.members, 4 * MIB, lambda: made.now_s), here.paths, here.members)
        yield made


def test_a_hole_leaves_every_other_byte_in_its_place(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(bytes(range(1, 251)) * 4096)
    before = path.read_bytes()
    with path.open("rb+") as file:
        assert holes.begin(file.fileno()) == 0
        holes.punch(file.fileno(), 300_000)
        begin = holes.begin(file.fileno())
        assert 0 < begin <= 300_000 and begin % holes.BLOCK_BYTES == 0
        assert path.stat().st_blocks * 512 < len(before) - begin + 65_536
        assert path.read_bytes()[begin:] == before[begin:]
        holes.punch(file.fileno(), len(before) * 2)
        assert holes.begin(file.fileno()) == len(before), "all of it is a hole"


async def test_a_log_over_its_limit_gives_back_its_beginning_and_loses_no_line(kept: Kept) -> None:
    kept.became("j.1", 0, 1)
    line = b"%099d\n"
    with kept.paths.log("j.1").open("ab") as writer:  # open all the time, as a rank's standard output is
        for number in range(60_000):
            writer.write(line % number)
        writer.flush()
        kept.logs.limit()
        for number in range(60_000, 60_100):
            writer.write(line % number)
        writer.flush()
    (file,) = kept.logs.files("j")
    assert file.bytes == 60_100 * 100 and 0 < file.gone_bytes < file.bytes
    assert file.bytes - file.gone_bytes <= 4 * MIB + 10_000
    assert os.stat(kept.paths.log("j.1")).st_blocks * 512 <= 5 * MIB
    lines = kept.read("j.1").splitlines()
    numbers = [int(each) for each in lines[1:]]  # the first may be cut
    assert numbers == list(range(numbers[0], 60_100)) and len(numbers) > 30_000


async def test_the_limit_is_one_for_all_processes_of_a_rank_and_the_oldest_give_way(kept: Kept) -> None:
    for number, rank in ((1, 0), (2, 1), (3, 0), (4, 0)):
        kept.now_s += 10
        kept.became(f"j.{number}", rank, number)
        kept.wrote(f"j.{number}", b"x" * (3 * MIB))
        kept.ended(f"j.{number}")
    kept.logs.limit()
    found = {file.member: file.bytes - file.gone_bytes for file in kept.logs.files("j")}
    assert found["j.4"] == 3 * MIB and found["j.2"] == 3 * MIB, "another rank has a limit of its own"
    assert 0 < found["j.3"] <= MIB and found["j.1"] == 0
    again = RankLogs(kept.paths, kept.members, 4 * MIB)  # type: ignore[arg-type]
    again.open()
    assert {file.member: file.bytes - file.gone_bytes for file in again.files("j")} == found


async def test_without_a_limit_everything_is_kept(kept: Kept) -> None:
    all_of_it = RankLogs(kept.paths, kept.members, 0)  # type: ignore[arg-type]
    kept.became("j.1", 0, 1)
    kept.wrote("j.1", b"x" * (6 * MIB))
    assert not all_of_it.files("j")
    assert kept.logs.files("j")[0].gone_bytes == 0


async def test_a_log_is_there_before_its_process_has_begun(kept: Kept) -> None:
    kept.became("j.1", 0, 1)
    assert kept.read("j.1") == b"", "whoever follows the rank need not be told that there is no such file"


async def test_parts_are_found_by_generation_time_and_lines(kept: Kept) -> None:
    kept.wrote("j.1", b"of a run before this one\n")
    kept.became("j.1", -1, 0)
    kept.wrote("j.1", b"warm\n")
    kept.now_s = 1010.0
    kept.became("j.1", 2, 5)
    kept.wrote("j.1", b"five\nfive again\n")
    kept.now_s = 1020.0
    kept.became("j.1", 2, 6)
    kept.wrote("j.1", b"six\n")
    (file,) = kept.logs.files("j")
    assert [(mark.rank, mark.generation) for mark in file.marks] == [(-1, 0), (2, 5), (2, 6)]
    assert [mark.from_bytes for mark in file.marks] == [25, 30, 46]
    assert kept.read("j.1", from_bytes=30, end_bytes=46) == b"five\nfive again\n"
    assert kept.read("j.1", since_s=1015.0) == b"five\nfive again\nsix\n", "a little more, never less"
    assert kept.read("j.1", since_s=1025.0) == b"six\n"
    assert kept.read("j.1", since_s=1.0) == kept.read("j.1")
    for lines, text in ((0, b""), (1, b"six\n"), (2, b"five again\nsix\n"), (99, kept.read("j.1"))):
        assert kept.read("j.1", tail=lines) == text
    assert kept.read("j.1", tail=1, from_bytes=30, end_bytes=46) == b"five again\n"
    kept.wrote("j.1", b"no end of line")
    assert kept.read("j.1", tail=1) == b"no end of line"


async def test_the_last_lines_are_found_across_blocks_and_without_any_line(kept: Kept) -> None:
    kept.became("j.1", 0, 1)
    kept.wrote("j.1", b"".join(b"%06d %s\n" % (number, b"y" * 900) for number in range(200)))
    found = kept.read("j.1", tail=100).splitlines()
    assert [int(line[:6]) for line in found] == list(range(100, 200))
    kept.became("j.2", 1, 1)
    kept.wrote("j.2", b"\0" * MIB)
    assert kept.read("j.2", tail=5) == b"\0" * MIB


async def test_a_reader_that_is_too_slow_learns_what_is_gone_from_the_place_of_the_next_block(
    kept: Kept,
) -> None:
    kept.became("j.1", 0, 1)
    kept.wrote("j.1", b"x" * MIB)
    log = LogSlice(kept.paths.log("j.1"), ReadLog("n0", "j", "1", "j.1"), 0)
    assert log.next()[0] == 0
    kept.wrote("j.1", b"y" * (5 * MIB))
    kept.logs.limit()
    place, data = log.next()
    assert place == kept.logs.files("j")[0].gone_bytes > MIB and data
    log.close()


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="no regular file"):
        LogSlice(tmp_path / "pipe", ReadLog("n0", "j", "1", "j.1"), 0)


def test_marks_are_bounded_and_changes_stay(tmp_path: Path) -> None:
    index = LogIndex(tmp_path / "j.1.marks")
    for number in range(MARKS_MAX * 3):
        index.note(LogMark(number, float(number), 0, 1 + number // 5000))
    assert len(index.marks) <= MARKS_MAX
    assert [mark.generation for mark in index.changes()] == [1, 2, 3]
    assert [mark.from_bytes for mark in index.changes()] == [0, 5000, 10_000]
    newest = MARKS_MAX * 3 - 1
    assert index.since(newest - 0.5) == newest - 1, "new marks are close together"
    assert index.since(6000.5) <= 6000, "never less than was asked for"
    assert LogIndex(tmp_path / "j.1.marks").marks == index.marks


@pytest.mark.parametrize(
    "junk", ["[1, 2.0, 0", '{"a": 1}', "[1,2]", "\0\xff", "[-5, 1.0, 0, 1]", "[1, NaN, 0, 1]"]
)
def test_a_line_that_is_no_mark_is_left_out(tmp_path: Path, junk: str) -> None:
    path = tmp_path / "j.1.marks"
    path.write_text(f"[0, 1.0, 0, 1]\n{junk}\n[9, 2.0, 0, 2]\n")
    assert [mark.from_bytes for mark in LogIndex(path).marks] == [0, 9]
