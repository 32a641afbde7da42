"""Little changed, little written: and what comes back is what was there, whatever changed before."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from holdfast.checkpoint.format import rows
from holdfast.checkpoint.load import read_manifest, verify
from holdfast.checkpoint.storage.store import Store
from holdfast.ipc import layout
from holdfast.ipc.layout import Tensor
from holdfast.ipc.skips import Skip
from tests.checkpoint.states import JOB, arena_for, content, loaded, nbytes, save, values_of, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.ipc.arena import Arena, SlotView
    from tests.checkpoint.states import Shapes

CHUNK = 8 << 20
EMBEDDING: Shapes = [
    ("table", "float32", (40_000, 75)),
    ("frozen", "float32", (1 << 20,)),
    ("b", "float32", (16,)),
]
"""Rows of 300 bytes, two of them a grain: chunks do not begin with a row."""


class State:
    """Values that change little by little, and are saved after each change."""

    def __init__(self, store: Store, arena: Arena, shapes: Shapes) -> None:
        self.store, self.arena, self.shapes = store, arena, shapes
        self.values = {name: bytearray(data) for name, data in content(shapes, 1).items()}
        self.step = 0

    def save(self, store: Store | None = None, codec: str = "none") -> int:
        """The bytes of chunks that the save wrote."""
        self.step += 10
        writer = self.arena.begin(self.step, 1, released_step=self.step)
        assert not isinstance(writer, Skip)
        slot: SlotView = write(writer, self.shapes, {name: bytes(data) for name, data in self.values.items()})
        assert values_of(slot) == self.values
        base = "" if self.step == 10 else "10-1"
        result = save(store or self.store, slot, base=base, codec=codec)
        return result.bytes_written - len(result.manifest)

    def touch(self, name: str, row: int, source: random.Random) -> None:
        shape = next(shape for entry, _, shape in self.shapes if entry == name)
        size = len(self.values[name]) // shape[0]
        self.values[name][row * size : (row + 1) * size] = source.randbytes(size)


@pytest.fixture
def state(store: Store, shm: Path) -> Iterator[State]:
    with arena_for(shm / "a", EMBEDDING) as arena:
        yield State(store, arena, EMBEDDING)


def test_some_rows_cost_their_own_bytes(state: State, shm: Path) -> None:
    state.save()
    source = random.Random(3)
    for number in range(4):
        touched = source.sample(range(40_000), 200)
        for row in touched:
            state.touch("table", row, source)
        assert 200 * 300 <= state.save() <= 200 * 2 * 600
        assert loaded(state.store, shm / f"b{number}", f"{state.step}-1") == state.values
    assert state.save() == 0
    for step in range(10, 60, 10):
        verify(state.store, JOB, f"{step}-1")


def test_no_pieces_of_many_chunks(state: State, shm: Path) -> None:
    """What one place consists of stays bounded, however often a little of it changes."""
    state.save()
    source = random.Random(4)
    for _ in range(40):
        state.touch("table", source.randrange(40_000), source)
        state.save()
    manifest = read_manifest(state.store, JOB, f"{state.step}-1")
    assert len(manifest.chunks) <= 2 * 33 + 3
    assert loaded(state.store, shm / "b", f"{state.step}-1") == state.values


def test_a_place_rests_and_changes_in_turns(state: State, shm: Path) -> None:
    """Rows show what a place holds after a change, a fingerprint after a rest: each notices one row."""
    state.save()
    source = random.Random(6)
    for number, rests in enumerate((0, 1, 2, 0, 3)):
        for _ in range(rests):
            assert state.save() == 0
        state.touch("table", source.randrange(40_000), source)
        assert 300 <= state.save() <= 3 * 600
        assert loaded(state.store, shm / f"b{number}", f"{state.step}-1") == state.values


def test_most_rows_changed_is_written_whole(state: State, shm: Path) -> None:
    whole = state.save()
    state.values["table"][:] = random.Random(5).randbytes(len(state.values["table"]))
    assert state.save() == len(state.values["table"]) < whole
    assert loaded(state.store, shm / "b", "20-1") == state.values


def test_one_routed_expert_of_many_costs_itself(store: Store, shm: Path) -> None:
    shapes: Shapes = [("experts", "float32", (12, 500, 701)), ("adapter", "float32", (8, 4096))]
    with arena_for(shm / "a", shapes) as arena:
        state = State(store, arena, shapes)
        state.save()
        for expert in (3, 4, 11):
            state.touch("experts", expert, random.Random(expert))
            assert state.save() <= 500 * 701 * 4 + 2 * (64 << 10)
        state.touch("adapter", 3, random.Random(1))
        assert state.save() <= 8 * 4096 * 4
        assert loaded(store, shm / "b", f"{state.step}-1") == state.values


def test_a_fresh_process_writes_changed_chunks_whole_and_then_rows_again(state: State, folder: Path) -> None:
    state.save()
    source, fresh = random.Random(6), Store.open(f"file://{folder}/storage")
    state.touch("table", 7, source)
    assert state.save(fresh) == CHUNK
    state.touch("table", 9, source)
    assert state.save(fresh) == 600


def test_two_slots_worth_of_random_changes(store: Store, shm: Path) -> None:
    """Against a plain model: whatever changes, appears in parts, reverts, or is saved by someone new."""
    shapes: Shapes = [
        ("wide", "float32", (24, 100_000)),
        ("rows", "bfloat16", (50_000, 128)),
        ("flat", "uint8", (CHUNK + 12_345,)),
        ("small", "float32", (30, 30)),
    ]
    source = random.Random(7)
    with arena_for(shm / "a", shapes) as arena:
        state = State(store, arena, shapes)
        state.save()
        kept = {name: bytes(data) for name, data in state.values.items()}
        fresh = store
        for _ in range(25):
            name, _, _ = source.choice(shapes)
            data = state.values[name]
            for _ in range(source.choice([1, 5, 300])):
                at, size = source.randrange(len(data)), source.choice([1, 1000, 70_000])
                data[at : at + size] = source.choice([source.randbytes(size), kept[name][at : at + size]])[
                    : len(data) - at
                ]
            if source.random() < 0.1:
                fresh = Store.open(store.url)
            state.save(fresh, codec=source.choice(["none", "zstd", "auto"]))
            (shm / "b").unlink(missing_ok=True)
            assert loaded(store, shm / "b", f"{state.step}-1") == state.values
        for step in range(10, state.step, 70):
            verify(store, JOB, f"{step}-1")


@pytest.mark.parametrize(
    ("dtype", "shape", "grain"),
    [
        ("float32", (100_000, 1024), 4096),
        ("float32", (100_000, 16), 512),
        ("float32", (100_000, 75), 600),
        ("bfloat16", (8, 4096, 4096), 64 << 10),
        ("float32", (1 << 20,), 64 << 10),
        ("float32", (64, 64), 0),
        ("float32", (), 0),
    ],
)
def test_grains(dtype: str, shape: tuple[int, ...], grain: int) -> None:
    assert rows.grain(Tensor("t", dtype, shape, 0, nbytes(dtype, shape))) == grain


@pytest.mark.parametrize("seed", range(30))
def test_runs_are_exactly_the_grains_that_differ(seed: int) -> None:
    source = random.Random(seed)
    size, start, length = (
        source.choice([512, 600, 4096]),
        source.randrange(100_000),
        source.randrange(1, 100_000),
    )
    before = source.randbytes(length)
    after = bytearray(before)
    for _ in range(source.randrange(6)):
        after[source.randrange(length)] ^= 1
    old, new = rows.marks(before, start, size), rows.marks(bytes(after), start, size)
    runs = rows.changed(old, new, length, start, size)
    if runs is None:
        return
    outside = bytearray(before)
    for low, high in runs:
        assert low == 0 or (start + low) % size == 0
        assert high == length or (start + high) % size == 0
        assert before[low:high] != bytes(after[low:high])
        outside[low:high] = after[low:high]
    assert outside == after


def test_unequal_marks_are_no_delta() -> None:
    assert rows.changed(b"", bytes(16), 1, 0, 512) is None
    assert rows.changed(bytes(16), bytes(32), 1000, 0, 512) is None
    assert layout.SMALL_BYTES == 64 << 10
