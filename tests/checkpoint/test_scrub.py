"""What has rotted is found before it is needed, and written anew from what still has it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from holdfast.checkpoint.errors import CheckpointCorrupt, CheckpointError
from holdfast.checkpoint.format import chunks
from holdfast.checkpoint.load import read_manifest, verify
from holdfast.checkpoint.scrub import scrub
from holdfast.checkpoint.storage.store import Store
from tests.checkpoint.states import JOB, arena_for, content, loaded, save, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from holdfast.checkpoint.format.manifest_records import Manifest
    from tests.checkpoint.states import Shapes

SHAPES: Shapes = [("w", "float32", (40_000,)), ("v", "float32", (40_000,)), ("b", "float32", (16,))]
CODECS = ["none", "zstd"]
ROT: dict[str, Callable[[Path], object]] = {
    "flipped": lambda path: path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:]),
    "missing": lambda path: path.unlink(),
    "short": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "empty": lambda path: path.write_bytes(b""),
}


@pytest.fixture(params=CODECS)
def manifest(request: pytest.FixtureRequest, store: Store, shm: Path) -> Manifest:
    with arena_for(shm / "a", SHAPES) as arena:
        slot = snapshot(arena, 10, SHAPES, seed=1)
        slot.memory[:80_000] = bytes(80_000)  # half of it compresses
        save(store, slot, codec=request.param)
    return read_manifest(store, JOB, "10-1")


def rotten(folder: Path, manifest: Manifest, how: str) -> set[str]:
    for chunk in manifest.chunks:
        ROT[how](folder / "storage" / manifest.file(chunk))
    return {chunk.blake3 for chunk in manifest.chunks}


def test_nothing_to_repair(store: Store, manifest: Manifest) -> None:
    found = scrub(store, manifest)
    assert (found.chunks, found.bytes_read) == (3, manifest.bytes_stored)
    assert found.repaired == found.failed == ()


@pytest.mark.parametrize("how", ROT)
def test_repaired_from_memory(store: Store, folder: Path, manifest: Manifest, shm: Path, how: str) -> None:
    held = loaded(store, shm / "held", "10-1")
    raw = {chunks.name(part): part for part in (held["w"], held["v"], held["b"])}
    assert set(scrub(store, manifest, memory=raw.get).repaired) == set()
    spoilt = rotten(folder, manifest, how)
    with pytest.raises(CheckpointCorrupt):
        verify(store, JOB, "10-1")
    assert set(scrub(store, manifest, memory=raw.get).repaired) == spoilt
    assert loaded(store, shm / "b", "10-1") == held


@pytest.mark.parametrize("how", ROT)
def test_repaired_from_the_second_storage(
    store: Store, folder: Path, manifest: Manifest, shm: Path, how: str
) -> None:
    held = loaded(store, shm / "held", "10-1")
    mirror = Store.open(f"file://{folder}/mirror")
    for chunk in manifest.chunks:
        mirror.put(manifest.file(chunk), store.read(manifest.file(chunk), 1 << 24))
    spoilt = rotten(folder, manifest, how)
    found = scrub(store, manifest, mirror, memory=lambda _: b"other bytes")
    assert (set(found.repaired), found.failed) == (spoilt, ())
    assert loaded(store, shm / "b", "10-1") == held


def test_what_nobody_has_is_named(store: Store, folder: Path, manifest: Manifest) -> None:
    mirror = Store.open(f"file://{folder}/mirror")
    spoilt = rotten(folder, manifest, "flipped")
    found = scrub(store, manifest, mirror, memory=lambda _: None)
    assert found.repaired == ()
    assert {problem.split("chunk ")[1][:64] for problem in found.failed} == spoilt


def test_told_to_stop(store: Store, manifest: Manifest) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(CheckpointError, match="stopped on request while it was scrubbed"):
        scrub(store, manifest, stop=stop)


def test_the_state_is_what_was_saved(store: Store, manifest: Manifest, shm: Path) -> None:
    expected = content(SHAPES, 1)
    expected["w"] = bytes(80_000) + expected["w"][80_000:]
    assert loaded(store, shm / "b", "10-1") == expected
    assert {chunk.codec for chunk in manifest.chunks} <= {"none", "shuffle4+zstd"}
