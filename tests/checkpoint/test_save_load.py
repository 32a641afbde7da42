"""Saving and loading: bit for bit, once per content, and only what the commit record names."""

from __future__ import annotations

import os
import shutil
import struct
import threading
from typing import TYPE_CHECKING, Any

import pytest
import xxhash

from holdfast.checkpoint.errors import CheckpointError, CheckpointRefused, NameRefused, StorageError
from holdfast.checkpoint.format import names, typed
from holdfast.checkpoint.format.manifest import encode_manifest
from holdfast.checkpoint.load import Found, listing, load, read_manifest, verify
from holdfast.checkpoint.save import persist_part, publish
from holdfast.checkpoint.storage.store import Store
from holdfast.ipc import layout
from holdfast.ipc.arena import Arena, SlotState
from holdfast.ipc.shm import ArenaError
from holdfast.ipc.skips import Skip
from tests.checkpoint.states import (
    ITEM_BYTES,
    JOB,
    SMALL,
    arena_for,
    content,
    loaded,
    save,
    snapshot,
    values_of,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.checkpoint.states import Shapes

MANY: Shapes = [
    *(
        (f"{dtype}{number}", dtype, shape)
        for dtype in ITEM_BYTES
        for number, shape in enumerate([(), (0,), (3, 0, 2), (1,), (7, 5), (33_000, 3)])
    ),
    ("three chunks", "bfloat16", (9, 1 << 20)),
    ("a name / with .. and 'quotes' \u20ac", "float32", (2,)),
]
STATE: Any = {"rng": (b"\x00\xff" * 500, -0.0, float("inf")), "epoch": 3, "sizes": {("a", 1): [2**80]}}


def test_every_dtype_comes_back_bit_for_bit(store: Store, shm: Path) -> None:
    with arena_for(shm / "a", MANY) as arena, arena_for(shm / "b", MANY) as other:
        slot = snapshot(arena, 10, MANY, seed=1, state=STATE)
        result = save(store, slot)
        assert load(store, other, job=JOB, checkpoint="10-1", digest=result.digest) == 10
        back = other.find(10)
        assert back is not None
        assert back.header == slot.header
        assert values_of(back) == values_of(slot) == content(MANY, 1)
        _, state = layout.decode(back.header, back.data_bytes)
        assert struct.pack("d", typed.decode(state)["rng"][1]) == struct.pack("d", -0.0)
        assert typed.decode(state) == STATE
        assert result.bytes_total == sum(map(len, content(MANY, 1).values()))


@pytest.mark.parametrize("shapes", [[], [("empty", "float32", (0,))]], ids=["no tensors", "one empty"])
def test_a_state_without_bytes(store: Store, shm: Path, shapes: Shapes) -> None:
    with arena_for(shm / "a", shapes) as arena:
        result = save(store, snapshot(arena, 0, shapes))
    assert result.bytes_total == 0
    assert loaded(store, shm / "b", "0-1") == content(shapes, 0)


def test_the_same_state_again_writes_no_chunk(store: Store, arena: Arena) -> None:
    first = save(store, snapshot(arena, 10, seed=1))
    again = save(store, snapshot(arena, 20, seed=1), base="10-1")
    assert first.bytes_written > first.bytes_total
    assert again.bytes_written == len(again.manifest)
    assert verify(store, JOB, "20-1", again.digest).base == "10-1"


def test_another_process_does_not_write_known_chunks_again(store: Store, folder: Path, arena: Arena) -> None:
    save(store, snapshot(arena, 10, seed=1))
    fresh = Store.open(f"file://{folder}/storage")
    again = save(fresh, snapshot(arena, 20, seed=1), base="10-1")
    assert again.bytes_written == len(again.manifest)


def test_one_changed_byte_writes_one_block(store: Store, shm: Path) -> None:
    shapes: Shapes = [("w", "uint8", (3 * (8 << 20),)), ("b", "float32", (4,))]
    with arena_for(shm / "a", shapes) as arena:
        save(store, snapshot(arena, 10, shapes))
        slot = snapshot(arena, 20, shapes)
        slot.memory[(8 << 20) + 5] ^= 1
        again = save(store, slot, base="10-1")
        assert again.bytes_written == (64 << 10) + len(again.manifest)
        assert loaded(store, shm / "b", "20-1") == values_of(slot)
        assert loaded(store, shm / "c", "10-1") == content(shapes, 0)


def test_equal_chunks_of_one_state_are_stored_once(store: Store, shm: Path) -> None:
    shapes: Shapes = [
        ("m", "uint8", (4 * (8 << 20),)),
        ("v", "uint8", (8 << 20,)),
        ("w", "uint8", (8 << 20,)),
    ]
    with arena_for(shm / "a", shapes) as arena:
        slot = snapshot(arena, 10, shapes)
        slot.memory[: len(slot.memory)] = bytes(len(slot.memory))
        result = save(store, slot)
    assert result.bytes_written == (8 << 20) + len(result.manifest)
    assert set(map(len, loaded(store, shm / "b", "10-1").values())) == {4 * (8 << 20), 8 << 20}


def test_a_full_checkpoint_shares_nothing_with_the_base_before(
    store: Store, folder: Path, arena: Arena
) -> None:
    save(store, snapshot(arena, 10, seed=1))
    result = save(store, snapshot(arena, 20, seed=1))
    assert result.bytes_written > result.bytes_total
    bases = folder / "storage/jobs/job/bases"
    assert {base.name for base in bases.iterdir()} == {"10-1", "20-1"}


def test_a_chunk_that_went_missing_or_short_is_written_again(
    store: Store, folder: Path, arena: Arena, shm: Path
) -> None:
    save(store, snapshot(arena, 10, seed=1))
    first, second = sorted((folder / "storage/jobs/job/bases/10-1/chunks").rglob("*/*"))
    first.unlink()
    save(store, snapshot(arena, 20, seed=1), base="10-1")
    assert loaded(store, shm / "b", "20-1") == content(SMALL, 1)
    os.truncate(second, second.stat().st_size - 1)
    save(Store.open(f"file://{folder}/storage"), snapshot(arena, 30, seed=1), base="10-1")
    assert loaded(store, shm / "c", "30-1") == content(SMALL, 1)


def test_what_a_killed_save_left_is_read_before_it_is_trusted(
    store: Store, folder: Path, arena: Arena, shm: Path
) -> None:
    """No manifest names these chunks: nothing says that they were ever whole."""
    save(store, snapshot(arena, 10, seed=1), show=False)
    rotten = min((folder / "storage/jobs/job/bases/10-1/chunks").rglob("*/*"))
    rotten.write_bytes(bytes(rotten.stat().st_size))
    again = save(Store.open(f"file://{folder}/storage"), snapshot(arena, 10, seed=1))
    assert again.bytes_written == rotten.stat().st_size
    assert loaded(store, shm / "b", "10-1") == content(SMALL, 1)


def test_a_state_that_changes_its_shape_between_saves(store: Store, shm: Path) -> None:
    """Tensors come, go, grow, and change their type under one name; what is equal is not written again."""
    shapes: list[Shapes] = [
        [("w", "float32", (100_000,)), ("v", "float32", (200_000,)), ("b", "float32", (16,))],
        [("v", "float32", (200_000,)), ("w", "float32", (150_000,)), ("new", "int8", (70_000,))],
        [("w", "bfloat16", (100_000, 2)), ("v", "float32", (200, 1000)), ("b", "bool", ())],
        [],
        [("w", "float32", (100_000,)), ("v", "float32", (200_000,)), ("b", "float32", (16,))],
    ]
    written = []
    for number, state in enumerate(shapes, 1):
        with arena_for(shm / "a", state) as arena:
            result = save(store, snapshot(arena, number, state, seed=1), base="" if number == 1 else "1-1")
            written.append(result.bytes_written - len(result.manifest))
            (shm / "a").unlink()
    for number, state in enumerate(shapes, 1):
        assert loaded(store, shm / f"b{number}", f"{number}-1") == content(state, 1)
    assert written[-1] == 0


def test_progress_tells_the_bytes_that_lie_there(store: Store, arena: Arena) -> None:
    save(store, snapshot(arena, 10, seed=1))
    told: list[int] = []
    manifest = verify(store, JOB, "10-1", progress=told.append)
    assert sorted(told) == sorted(chunk.stored for chunk in manifest.chunks)


@pytest.mark.slow
def test_a_tensor_of_more_than_2_gib(store: Store, shm: Path) -> None:
    """All zeros but for some marks: most of its chunks are one."""
    size = (2 << 30) + (8 << 20)
    if shutil.disk_usage(shm).free < 3 * size:
        pytest.skip(f"two slots of {size} bytes do not fit /dev/shm with room to spare")
    tensors, data_bytes = layout.place([("w", "float32", (size // 4,), size)])
    marks = [0, (1 << 31) - 1, 1 << 31, (1 << 31) + 4097, size - 1]
    with Arena.create(shm / "a", layout.room(data_bytes, 1000)) as arena:
        writer = arena.begin(10, 1, released_step=-1)
        assert not isinstance(writer, Skip)
        for mark in marks:
            writer.memory[mark] = 7
        writer.layout(layout.encode(tensors, None), data_bytes)
        result = save(store, writer.ready())
        assert result.bytes_total == size
        assert result.bytes_written < 5 * (8 << 20)
        load(store, arena, job=JOB, checkpoint="10-1")  # into the other slot, which is empty
        first, second = arena.slots
        assert (first.state, second.state) == (SlotState.READY, SlotState.READY)
        assert [second.memory[at] for at in marks] == [7] * len(marks)
        assert xxhash.xxh3_128_digest(first.memory) == xxhash.xxh3_128_digest(second.memory)


def test_before_the_commit_nothing_is_listed_after_it_loads(store: Store, arena: Arena, shm: Path) -> None:
    """Between commit and publication the record alone is enough to load, and any process can publish."""
    result = save(store, snapshot(arena, 10, seed=1), show=False)
    assert listing(store, JOB) == []
    assert loaded(store, shm / "b", "10-1", result.digest) == content(SMALL, 1)
    with pytest.raises(CheckpointError, match=r"10-1.*manifest.*is not at file://"):
        read_manifest(store, JOB, "10-1")
    publish(Store.open(store.url), JOB, "10-1", result.digest)
    publish(store, JOB, "10-1", result.digest)
    assert listing(store, JOB) == [Found("10-1", 10, 1)]
    assert store.list("jobs/job/pending") == []


def test_the_listing_is_newest_first_and_passes_over_strangers(store: Store, arena: Arena) -> None:
    for step, generation in ((9, 1), (10, 1), (10, 2)):
        save(store, snapshot(arena, step, generation=generation))
    store.put("jobs/job/manifests/README.json", b"hello")
    store.put("jobs/job/manifests/10-1.json.part", b"hello")
    assert [found.id for found in listing(store, JOB)] == ["10-2", "10-1", "9-1"]
    assert listing(store, "another") == []


def test_an_id_is_never_overwritten(store: Store, arena: Arena, shm: Path) -> None:
    save(store, snapshot(arena, 10, seed=1))
    other = save(store, snapshot(arena, 10, seed=2), show=False)
    with pytest.raises(CheckpointError, match=r"10-1: manifest: has digest .* the commit record says"):
        publish(store, JOB, "10-1", other.digest)
    assert loaded(store, shm / "b", "10-1") == content(SMALL, 1)


def test_publishing_what_was_never_saved_is_an_error(store: Store) -> None:
    with pytest.raises(StorageError, match=r"10-1 of job job cannot be published.*" + "a" * 64):
        publish(store, JOB, "10-1", "a" * 64)


def test_the_manifest_says_what_it_is(store: Store, arena: Arena) -> None:
    result = save(store, snapshot(arena, 10, generation=3))
    manifest = read_manifest(store, JOB, "10-3", result.digest)
    assert (manifest.job, manifest.id, manifest.step, manifest.generation) == (JOB, "10-3", 10, 3)
    assert (manifest.kind, manifest.base, manifest.versions) == ("full", "10-3", ((0, 10), (1, 10)))
    assert encode_manifest(manifest) == (result.manifest, result.digest)


def test_a_checkpoint_larger_than_the_arena_is_refused_and_leaves_it_empty(
    store: Store, arena: Arena, shm: Path
) -> None:
    save(store, snapshot(arena, 10))
    with Arena.create(shm / "tiny", 4096) as tiny:
        with pytest.raises(ArenaError, match="larger arena"):
            load(store, tiny, job=JOB, checkpoint="10-1")
        assert {slot.state for slot in tiny.slots} == {SlotState.FREE}


def test_loading_takes_the_older_slot_and_never_a_pinned_one(store: Store, arena: Arena, shm: Path) -> None:
    save(store, snapshot(arena, 10, seed=1))
    with arena_for(shm / "b", SMALL) as other:
        older, newer = snapshot(other, 20), snapshot(other, 30)
        with other.pinned(older), pytest.raises(CheckpointError, match="still being read"):
            load(store, other, job=JOB, checkpoint="10-1")
        load(store, other, job=JOB, checkpoint="10-1")
        assert newer.current()
        assert not older.current()


def test_a_shard_that_is_not_there_is_refused(store: Store, arena: Arena) -> None:
    save(store, snapshot(arena, 10))
    with pytest.raises(CheckpointRefused, match="no shard 'r3'; it has all"):
        load(store, arena, job=JOB, checkpoint="10-1", shard="r3")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"step": 11}, "not the id of step 11"),
        ({"checkpoint": "11-1"}, "not the id"),
        ({"kind": "incremental"}, "does not fit base"),
        ({"base": "5-1"}, "does not fit base"),
        ({"kind": "weird"}, "'weird'"),
        ({"codec": "lzma"}, "codec 'lzma' is unknown; known: none, zstd, auto"),
        ({"versions": [(0, 10), (1, 9)]}, "rank 1 is at step 9, not at 10"),
        ({"shard": "r3"}, "the slot holds shard all, not r3"),
        ({"share": 2, "shares": 2}, "share 2 of 2 does not exist"),
        ({"base": "../../x", "kind": "incremental"}, "is not a checkpoint id"),
        ({"job": "../x"}, "job name"),
    ],
)
def test_a_save_that_cannot_be_is_refused(
    store: Store, folder: Path, arena: Arena, changed: dict[str, Any], message: str
) -> None:
    order = {"job": JOB, "checkpoint": "10-1", "step": 10, "generation": 1, "kind": "full", "base": "10-1"}
    with pytest.raises(CheckpointError, match=message):
        persist_part(snapshot(arena, 10), store=store, **{"versions": [(0, 10)], **order, **changed})
    assert not (folder / "storage").exists()


def test_a_slot_whose_header_is_none_of_ours_is_refused(store: Store, arena: Arena) -> None:
    writer = arena.begin(10, 1, released_step=-1)
    assert not isinstance(writer, Skip)
    writer.layout(b'{"tensors": [{}], "state": null}', 0)
    with pytest.raises(CheckpointError, match="snapshot 10 cannot be saved: tensor 0"):
        save(store, writer.ready())


def test_told_to_stop_it_stops_and_goes_on_later(store: Store, arena: Arena, shm: Path) -> None:
    stop = threading.Event()
    stop.set()
    slot = snapshot(arena, 10, seed=1)
    with pytest.raises(CheckpointError, match="stopped on request while it was saved"):
        save(store, slot, stop=stop)
    save(store, slot)
    with arena_for(shm / "b", SMALL) as other:
        with pytest.raises(CheckpointError, match="stopped on request while it was loaded"):
            load(store, other, job=JOB, checkpoint="10-1", stop=stop)
        assert other.newest() is None
        assert load(store, other, job=JOB, checkpoint="10-1") == 10


def test_names_lead_nowhere_else() -> None:
    for job in ("", ".", "..", "a/b", "../a", "/a", "a\n", "\u00e4", "a" * 64, "-a"):
        with pytest.raises(NameRefused):
            names.manifest(job, "1-1")
    for checkpoint in ("", "1", "1-", "1-1/..", "../1-1", "1-1\n", "\u0661-1", "1-1.json", "9" * 19 + "-1"):
        with pytest.raises(NameRefused):
            names.manifest(JOB, checkpoint)
    for digest in ("", "../" + "a" * 61, "A" * 64, "a" * 63, "a" * 64 + "\n"):
        with pytest.raises(NameRefused):
            names.chunk(JOB, "1-1", digest)


def test_memory_storage_for_tests(arena: Arena, shm: Path) -> None:
    store = Store.open(f"memory://{shm.name}")
    result = save(store, snapshot(arena, 10, seed=1))
    save(store, snapshot(arena, 20, seed=1), base="10-1")
    assert loaded(store, shm / "b", "10-1", result.digest) == content(SMALL, 1)
    assert [found.id for found in listing(store, JOB)] == ["20-1", "10-1"]
