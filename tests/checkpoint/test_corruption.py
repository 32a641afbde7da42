"""What was written and is no longer so is never loaded, and is named."""

from __future__ import annotations

import json
import os
import random
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.checkpoint.errors import CheckpointCorrupt, CheckpointError, CheckpointRefused
from holdfast.checkpoint.format import chunks
from holdfast.checkpoint.format.manifest import decode_manifest
from holdfast.checkpoint.load import load, read_manifest, verify
from holdfast.ipc.arena import Arena, SlotState
from tests.checkpoint.states import JOB, arena_for, save, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from holdfast.checkpoint.save import PersistResult
    from holdfast.checkpoint.storage.store import Store
    from tests.checkpoint.states import Shapes

SHAPES: Shapes = [("w", "float32", (20_000,)), ("v", "float32", (20_000,)), ("b", "float32", (16,))]
FLIPS = 1000


@pytest.fixture
def saved(store: Store, shm: Path) -> PersistResult:
    with arena_for(shm / "saved", SHAPES) as arena:
        return save(store, snapshot(arena, 10, SHAPES, seed=1))


@pytest.fixture
def chunk_files(saved: PersistResult, folder: Path) -> list[Path]:
    return sorted((folder / "storage/jobs/job/bases/10-1/chunks").rglob("*/*"))


def test_every_byte_of_the_manifest_flipped_in_turn(store: Store, folder: Path, saved: PersistResult) -> None:
    path = folder / "storage/jobs/job/manifests/10-1.json"
    for position in range(len(saved.manifest)):
        spoilt = bytearray(saved.manifest)
        spoilt[position] ^= 1 << position % 8
        path.write_bytes(spoilt)
        with pytest.raises(CheckpointCorrupt, match="checkpoint 10-1: manifest"):
            read_manifest(store, JOB, "10-1")


def test_every_truncation_of_the_manifest_and_a_longer_one(saved: PersistResult) -> None:
    for length in range(len(saved.manifest)):
        with pytest.raises(CheckpointCorrupt):
            decode_manifest(saved.manifest[:length], JOB, "10-1")
    with pytest.raises(CheckpointCorrupt):
        decode_manifest(saved.manifest + b"\n", JOB, "10-1")


def test_random_bit_flips_in_chunks(store: Store, shm: Path, chunk_files: list[Path]) -> None:
    source = random.Random(11)
    with arena_for(shm / "b", SHAPES) as arena:
        for number in range(FLIPS):
            path = source.choice(chunk_files)
            spoilt = bytearray(path.read_bytes())
            spoilt[source.randrange(len(spoilt))] ^= 1 << source.randrange(8)
            whole = path.read_bytes()
            path.write_bytes(spoilt)
            with pytest.raises(CheckpointCorrupt, match=f"checkpoint 10-1: chunk {path.name}: its bytes"):
                if number % 2:
                    load(store, arena, job=JOB, checkpoint="10-1")
                else:
                    verify(store, JOB, "10-1")
            assert arena.newest() is None
            path.write_bytes(whole)
        assert load(store, arena, job=JOB, checkpoint="10-1") == 10


SPOILERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "truncated": (lambda path: os.truncate(path, path.stat().st_size - 1), "has fewer than"),
    "empty": (lambda path: os.truncate(path, 0), "has fewer than"),
    "longer": (lambda path: path.write_bytes(path.read_bytes() + b"\0"), "has more than"),
    "missing": (lambda path: path.unlink(), "is missing"),
    "zeros": (lambda path: path.write_bytes(bytes(path.stat().st_size)), "its bytes have digest"),
}


@pytest.mark.parametrize("what", SPOILERS)
@pytest.mark.parametrize("which", [0, 1, 2])
def test_spoilt_chunks_are_named(
    store: Store, arena: Arena, chunk_files: list[Path], what: str, which: int
) -> None:
    spoil, problem = SPOILERS[what]
    spoil(chunk_files[which])
    with pytest.raises(CheckpointCorrupt, match=f"{chunk_files[which].name}: {problem}") as caught:
        verify(store, JOB, "10-1")
    assert caught.value.checkpoint == "10-1"
    assert caught.value.part == f"chunk {chunk_files[which].name}"
    with pytest.raises(CheckpointError):
        load(store, arena, job=JOB, checkpoint="10-1")
    assert {slot.state for slot in arena.slots} == {SlotState.FREE}


def test_swapped_chunks(store: Store, chunk_files: list[Path]) -> None:
    one, two = (path for path in chunk_files if path.stat().st_size == 80_000)
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    with pytest.raises(CheckpointCorrupt, match="its bytes have digest"):
        verify(store, JOB, "10-1")


def test_a_link_in_the_place_of_a_chunk_is_not_followed(store: Store, chunk_files: list[Path]) -> None:
    moved = chunk_files[0].with_name("moved")
    chunk_files[0].rename(moved)
    chunk_files[0].symlink_to(moved)
    with pytest.raises(CheckpointError, match=chunk_files[0].name):
        verify(store, JOB, "10-1")


def resealed(saved: PersistResult, change: Callable[[dict[str, Any]], object]) -> bytes:
    """A manifest with other content and a digest that fits it: bad on purpose."""
    fields = json.loads(saved.manifest)["manifest"]
    replaced = change(fields)
    body = json.dumps(replaced if isinstance(replaced, list) else fields, separators=(",", ":")).encode()
    return b'{"blake3":"' + chunks.name(body).encode() + b'","manifest":' + body + b"}\n"


def put(name: str, value: Any) -> Callable[[dict[str, Any]], object]:
    return lambda fields: fields.__setitem__(name, value)


def put_chunk(name: str, value: Any) -> Callable[[dict[str, Any]], object]:
    return lambda fields: fields["chunks"][0].__setitem__(name, value)


def put_tensor(name: str, value: Any) -> Callable[[dict[str, Any]], object]:
    return lambda fields: fields["shards"][0]["tensors"][0].__setitem__(name, value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("schema", 4), r"schema 4, written by .* 0\.1\.0; .* reads schemas 2 and 3: upgrade Holdfast"),
        (put("schema", 1), r"schema 1, .*read it with that version"),
        (put("schema", None), "schema None"),
        (put("job", "other"), "belongs to job 'other', not to 'job'"),
        (put("id", "11-1"), "belongs to checkpoint '11-1'"),
    ],
)
def test_whole_but_not_for_us_is_refused_by_name(
    saved: PersistResult, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    with pytest.raises(CheckpointRefused, match=f"checkpoint 10-1: .*{message}"):
        decode_manifest(resealed(saved, change), JOB, "10-1")


@pytest.mark.parametrize(
    "change",
    [
        lambda fields: [fields],
        lambda fields: fields.clear() or fields.update(schema=2, job=JOB, id="10-1"),
        put("step", 11),
        put("step", "10"),
        put("step", True),
        put("base", "../../../etc"),
        put("base", 7),
        put("versions", [[0, -1]]),
        put("versions", [[0, 1, 2]]),
        put("chunks", 3),
        put("chunks", {"a": 1}),
        put("chunks", []),
        put("shards", [None]),
        put_chunk("blake3", "../../../../" + "a" * 52),
        put_chunk("blake3", 5),
        put_chunk("nbytes", -1),
        put_chunk("nbytes", 1 << 40),
        put_chunk("stored", 0),
        put_chunk("codec", "pickle"),
        put_chunk("algorithm", "md5"),
        put_tensor("offset", 1 << 50),
        put_tensor("offset", 32),
        put_tensor("nbytes", 79_999),
        put_tensor("shape", [1 << 30]),
        put_tensor("shape", [-1]),
        put_tensor("dtype", "os.system"),
        put_tensor("name", None),
        put_tensor("pieces", []),
        put_tensor("pieces", [[9, 0, 80_000]]),
        put_tensor("pieces", [[0, 1, 80_000]]),
        put_tensor("pieces", [[0, 0, 40_000]]),
        put_tensor("pieces", [[0, 0]]),
        put_tensor("pieces", "abc"),
    ],
)
def test_a_manifest_that_makes_no_sense_is_corrupt(
    saved: PersistResult, change: Callable[[dict[str, Any]], object]
) -> None:
    with pytest.raises(CheckpointCorrupt, match="checkpoint 10-1: manifest"):
        decode_manifest(resealed(saved, change), JOB, "10-1")


@pytest.mark.parametrize("body", [b"[" * 100_000, b"1" * 10_000, b"\xff\xfe", b"nothing", b"{"])
def test_sealed_garbage_is_corrupt(body: bytes) -> None:
    sealed = b'{"blake3":"' + chunks.name(body).encode() + b'","manifest":' + body + b"}\n"
    with pytest.raises(CheckpointCorrupt, match="checkpoint 10-1: manifest"):
        decode_manifest(sealed, JOB, "10-1")


def test_another_digest_than_the_commit_record_says(store: Store, saved: PersistResult) -> None:
    with pytest.raises(CheckpointCorrupt, match="the commit record says " + "0" * 64):
        read_manifest(store, JOB, "10-1", "0" * 64)


def test_a_manifest_moved_to_another_job_or_id_is_refused(store: Store, saved: PersistResult) -> None:
    store.put("jobs/other/manifests/10-1.json", saved.manifest)
    store.put("jobs/job/manifests/11-1.json", saved.manifest)
    with pytest.raises(CheckpointRefused, match="belongs to job 'job', not to 'other'"):
        read_manifest(store, "other", "10-1")
    with pytest.raises(CheckpointRefused, match="belongs to checkpoint '10-1'"):
        read_manifest(store, JOB, "11-1")
