"""The arena: what may be overwritten, what a killed process leaves, and what is refused."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from holdfast.ipc.arena import Arena, SlotState, SlotWriter
from holdfast.ipc.shm import ArenaError
from holdfast.ipc.skips import CopyState, Skip, SkipKind
from tests.checkpoint.states import SMALL, arena_for, content, snapshot, values_of, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from holdfast.ipc.arena import SlotView


def begin(arena: Arena, step: int, released: int, generation: int = 1) -> SlotWriter:
    writer = arena.begin(step, generation, released_step=released)
    assert isinstance(writer, SlotWriter), writer
    return writer


def fill(arena: Arena, step: int, released: int, generation: int = 1) -> SlotView:
    return write(begin(arena, step, released, generation), SMALL, content(SMALL, step))


def test_what_one_process_writes_another_reads(arena: Arena) -> None:
    snapshot(arena, 7, seed=3, generation=2)
    with Arena.open(arena.path) as other:
        slot = other.newest()
        assert slot is not None
        assert (slot.step, slot.generation, slot.state) == (7, 2, SlotState.READY)
        assert values_of(slot) == content(SMALL, 3)


def test_the_file_is_private_and_fully_allocated(arena: Arena) -> None:
    status = os.stat(arena.path)
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert status.st_blocks * 512 >= status.st_size
    assert not arena.path.with_name(arena.path.name + ".new").exists()


@pytest.mark.parametrize(("start", "nbytes"), [(0, 160_000), (5, 9000), (4096, 4096), (1, 1), (0, 0)])
def test_what_is_unmapped_is_still_there(arena: Arena, start: int, nbytes: int) -> None:
    writer = begin(arena, 7, 6, 1)
    writer.memory[start : start + nbytes] = b"7" * nbytes
    arena.unmap(writer.index, start, nbytes)
    slot = write(writer, SMALL, content(SMALL, 3))
    arena.unmap(slot.index, start, nbytes)
    assert values_of(slot) == content(SMALL, 3)
    with Arena.open(arena.path) as other:
        newest = other.newest()
        assert newest is not None
        assert values_of(newest) == content(SMALL, 3)


def test_an_empty_arena_has_no_newest(arena: Arena) -> None:
    assert arena.newest() is None
    assert arena.find(0) is None


def test_the_older_slot_goes_once_the_newer_is_ready_everywhere(arena: Arena) -> None:
    fill(arena, 10, released=-1)
    fill(arena, 20, released=10)
    skipped = arena.begin(30, 1, released_step=10)
    assert isinstance(skipped, Skip)
    assert "snapshot 20 is not ready on all ranks" in skipped.reason
    fill(arena, 30, released=20)
    assert arena.find(10) is None
    assert [slot.step for slot in arena.slots if slot.state == SlotState.READY] == [30, 20]


def test_a_void_snapshot_makes_room_and_the_released_one_stays(arena: Arena) -> None:
    fill(arena, 10, -1)
    fill(arena, 20, -1)
    assert isinstance(arena.begin(30, 1, released_step=10, void_step=10), Skip)
    writer = arena.begin(30, 1, released_step=10, void_step=20)
    assert not isinstance(writer, Skip)
    write(writer, SMALL, content(SMALL, 30))
    assert sorted(slot.step for slot in arena.slots) == [10, 30]


def test_a_pinned_slot_is_not_overwritten(arena: Arena) -> None:
    older = fill(arena, 10, released=-1)
    fill(arena, 20, released=10)
    with Arena.open(arena.path) as agent:
        with agent.pinned(older):
            skipped = arena.begin(30, 1, released_step=20)
            assert isinstance(skipped, Skip)
            assert "10 is still being read" in skipped.reason
            assert values_of(older) == content(SMALL, 10)
        fill(arena, 30, released=20)


def test_the_older_slot_is_kept_while_copies_of_the_newer_are_owed(arena: Arena) -> None:
    """A node that is lost now leaves copies of the older one, which is of use only as long as this one is."""
    fill(arena, 10, released=-1)
    assert arena.obstacle(1, released_step=10) is None, "the other slot is free"
    fill(arena, 20, released=10)
    with Arena.open(arena.path) as agent:
        agent.copies = CopyState.OWED
        obstacle = arena.obstacle(1, released_step=20)
        assert obstacle is not None and obstacle.kind is SkipKind.UNCOPIED
        unreleased = arena.obstacle(1, released_step=10)
        assert unreleased is not None and unreleased.kind is SkipKind.UNRELEASED
        assert arena.obstacle(1, released_step=10, void_step=20) is None, "the newer one is void: it goes"
        agent.copies = CopyState.SETTLED
        assert arena.obstacle(1, released_step=20) is None
        agent.copies = CopyState.OWED
    with Arena.open(arena.path, owner=True):  # a new agent: what the dead one owed, it will owe again
        assert arena.obstacle(1, released_step=20) is None


def test_pins_count(arena: Arena) -> None:
    older, newer = fill(arena, 10, released=-1), fill(arena, 20, released=10)
    arena.pin(older)
    arena.pin(older)
    arena.unpin(older)
    assert isinstance(arena.begin(30, 1, released_step=20), Skip)
    arena.unpin(older)
    with pytest.raises(ArenaError, match="not pinned"):
        arena.unpin(newer)


def test_an_overwritten_slot_cannot_be_pinned(arena: Arena) -> None:
    older = fill(arena, 10, released=-1)
    fill(arena, 20, released=10)
    fill(arena, 30, released=20)
    assert not older.current()
    with pytest.raises(ArenaError, match=r"snapshot 10 .* overwritten"):
        arena.pin(older)


def test_a_new_agent_undoes_the_pins_of_a_dead_one(arena: Arena) -> None:
    older = fill(arena, 10, released=-1)
    fill(arena, 20, released=10)
    arena.pin(older)
    with Arena.open(arena.path) as rank:
        assert isinstance(rank.begin(30, 1, released_step=20), Skip)
    with Arena.open(arena.path, owner=True):
        fill(arena, 30, released=20)


def test_what_an_ended_generation_never_released_goes_first(arena: Arena) -> None:
    """One rank died before it was ready with 20: nobody can use 20, everybody can use 10."""
    fill(arena, 10, released=-1)
    fill(arena, 20, released=10)
    fill(arena, 30, released=10, generation=2)
    assert arena.find(20) is None
    assert arena.find(10) is not None


def test_after_a_roll_back_the_newest_is_that_of_the_newer_generation(arena: Arena) -> None:
    fill(arena, 100, released=-1)
    fill(arena, 50, released=-1, generation=2)
    newest = arena.newest()
    assert newest is not None
    assert (newest.step, newest.generation) == (50, 2)


CHILD = """
import sys, time
from pathlib import Path
from holdfast.ipc.arena import Arena
from holdfast.ipc.shm import locked
arena = Arena.open(sys.argv[1])
if sys.argv[2] == "copy":
    writer = arena.begin(30, 1, released_step=20)
    writer.memory[:1000] = bytes(1000)
    print("there", flush=True)
    time.sleep(60)
with locked(arena._descriptor, arena.path):
    print("there", flush=True)
    time.sleep(60)
"""


def child(arena: Arena, what: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD, str(arena.path), what]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    return process


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_a_rank_killed_in_the_copy_leaves_the_other_slot_whole(arena: Arena) -> None:
    fill(arena, 10, released=-1)
    fill(arena, 20, released=10)
    kill(child(arena, "copy"))
    states = {slot.state for slot in arena.slots}
    assert states == {SlotState.WRITING, SlotState.READY}
    newest = arena.newest()
    assert newest is not None
    assert newest.step == 20
    assert values_of(newest) == content(SMALL, 20)
    fill(arena, 31, released=10)  # the torn slot is taken, although 20 is not released
    assert arena.find(20) is not None


def test_a_lock_dies_with_its_holder(arena: Arena) -> None:
    kill(child(arena, "lock"))
    fill(arena, 10, released=-1)


def test_a_stopped_holder_of_the_lock_is_an_error_and_no_hang(arena: Arena) -> None:
    process = child(arena, "lock")
    try:
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(ArenaError, match="locked by a process"):
            arena.begin(10, 1, released_step=-1)
    finally:
        kill(process)


def test_a_larger_arena_replaces_the_file_and_not_the_memory_of_others(shm: Path) -> None:
    with Arena.create(shm / "a", 4096) as first:
        writer = begin(first, 1, -1)
        writer.layout(b"{}", 0)
        writer.ready()
        with Arena.create(shm / "a", 1 << 20) as second:
            assert second.slot_bytes == 1 << 20
            assert second.newest() is None
            assert first.newest() is not None
        with Arena.open(shm / "a") as opened:
            assert opened.slot_bytes == 1 << 20


def test_a_snapshot_larger_than_its_slot_is_refused(arena: Arena) -> None:
    with pytest.raises(ArenaError, match=r"does not fit .* larger arena"):
        begin(arena, 1, -1).layout(b"{}", arena.slot_bytes)


def test_ready_without_a_layout_is_refused(arena: Arena) -> None:
    with pytest.raises(ArenaError, match="no layout"):
        begin(arena, 1, -1).ready()


def test_too_little_shared_memory_names_needed_free_and_the_mend(small_disk: Callable[[str], Path]) -> None:
    disk = small_disk("size=4m")
    with pytest.raises(ArenaError, match=r"needed 16781312 bytes, free \d+ bytes .*--shm-size.*--shm-dir"):
        Arena.create(disk / "a", 8 << 20)
    assert list(disk.iterdir()) == []


def test_more_than_any_machine_has_is_refused(shm: Path) -> None:
    with pytest.raises(ArenaError, match="free"):
        Arena.create(shm / "a", 1 << 50)
    assert list(shm.iterdir()) == []


def test_a_folder_that_is_not_there_is_named(shm: Path) -> None:
    with pytest.raises(ArenaError, match=r"not a folder.*--shm-dir"):
        Arena.create(shm / "none" / "a", 4096)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda file: b"",
        lambda file: b"short",
        lambda file: bytes(len(file)),
        lambda file: file[:-4096],
        lambda file: file + bytes(4096),
        lambda file: file[:8] + (2).to_bytes(8, "little") + file[16:],
        lambda file: file[:16] + (-4096).to_bytes(8, "little", signed=True) + file[24:],
        lambda file: file[:24] + (3).to_bytes(8, "little") + file[32:],
    ],
)
def test_what_is_no_arena_is_refused(arena: Arena, shm: Path, spoil: Callable[[bytes], bytes]) -> None:
    other = shm / "other"
    other.write_bytes(spoil(arena.path.read_bytes()))
    with pytest.raises(ArenaError, match="other"):
        Arena.open(other)


def test_a_damaged_slot_is_refused(arena: Arena) -> None:
    snapshot(arena, 1)
    descriptor = os.open(arena.path, os.O_RDWR)
    os.pwrite(descriptor, (1 << 60).to_bytes(8, "little"), 64 + 4 * 8)  # the first slot's data bytes
    os.close(descriptor)
    with pytest.raises(ArenaError, match="more bytes than it has"):
        arena.newest()


def test_no_arena_at_all_is_named(shm: Path) -> None:
    with pytest.raises(ArenaError, match=r"cannot open .*missing"):
        Arena.open(shm / "missing")


def test_views_outlive_the_arena(shm: Path) -> None:
    arena = arena_for(shm / "a", SMALL)
    slot = snapshot(arena, 1)
    memory = slot.memory
    arena.close()
    arena.close()
    assert len(bytes(memory)) == len(memory)


def test_ranks_load_the_standard_library_only() -> None:
    script = (
        "import sys; before = set(sys.modules)\n"
        "import holdfast.ipc.arena, holdfast.ipc.layout, holdfast.checkpoint.format.typed\n"
        "new = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(new - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "['holdfast']"


def test_two_shards_of_one_step_are_told_apart(arena: Arena) -> None:
    """A rank that changes its place has its old shard and the new one in one arena, of one step and birth."""
    for seed, word in ((1, "s0"), (2, "s1")):
        writer = arena.begin(10, 3, released_step=10)
        assert not isinstance(writer, Skip)
        write(writer, SMALL, content(SMALL, seed), shard=word)
    for seed, word in ((1, "s0"), (2, "s1")):
        slot = arena.find(10, generation=3, shard=word)
        assert slot is not None and slot.shard == word
        assert values_of(slot) == content(SMALL, seed)
    assert arena.find(10, shard="s2") is arena.find(10, generation=2) is arena.find(11, shard="s0") is None
    assert arena.find_partial(10, shard="s0") is None


def test_a_rank_that_goes_on_leaves_the_slot_alone_that_its_agent_is_filling(arena: Arena) -> None:
    """The agent's answer comes too late: neither writes over the other, and a whole snapshot stays."""
    fill(arena, 10, released=10)
    late = arena.begin(5, 1, released_step=10, held=True)
    assert not isinstance(late, Skip)
    skipped = arena.begin(20, 2, released_step=10)
    assert isinstance(skipped, Skip) and "is bringing a snapshot" in skipped.reason
    assert isinstance(arena.begin(6, 1, released_step=10, held=True), Skip)
    write(late, SMALL, content(SMALL, 5))
    assert sorted((slot.step, slot.pins) for slot in arena.slots) == [(5, 0), (10, 0)]
    fill(arena, 20, released=10)
    assert sorted(slot.step for slot in arena.slots) == [10, 20]


def test_the_slot_that_a_killed_agent_was_filling_is_free_for_the_next(arena: Arena) -> None:
    late = arena.begin(5, 1, released_step=10, held=True)
    assert not isinstance(late, Skip)
    with Arena.open(arena.path, owner=True):
        fill(arena, 10, released=10)
    again = arena.begin(6, 1, released_step=10, held=True)
    assert not isinstance(again, Skip)
    again.abandon()
    assert sorted(slot.pins for slot in arena.slots) == [0, 0]
