"""Bundles: several chunks in one file, where each request costs. Saved, read, worn, rotten, mirrored, and
collected.

The same code writes them on any storage. Here most are on the local disk, where they can be looked at; the
number of requests is counted on a real S3 protocol."""

from __future__ import annotations

import os
import random
import threading
import time
from typing import TYPE_CHECKING

import pytest

from holdfast.checkpoint import collect, mirroring
from holdfast.checkpoint.bundling import Bundler
from holdfast.checkpoint.errors import CheckpointCorrupt, CheckpointError
from holdfast.checkpoint.format import chunks, names
from holdfast.checkpoint.format.wear import DEAD_MOST, worn
from holdfast.checkpoint.load import read_manifest, verify
from holdfast.checkpoint.save import finalize
from holdfast.checkpoint.scrub import scrub
from holdfast.checkpoint.storage.remote import BUNDLE_BYTES
from holdfast.checkpoint.storage.store import Store
from holdfast.ipc.arena import SlotWriter
from tests.checkpoint.states import JOB, Order, arena_for, content, loaded, save, save_part, snapshot, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.checkpoint.format.chunks import Chunk
    from holdfast.checkpoint.format.manifest_records import Manifest
    from holdfast.ipc.arena import Arena, SlotView
    from tests.checkpoint.proxy import Proxy
    from tests.checkpoint.s3 import Opened
    from tests.checkpoint.states import Shapes

LARGE: Shapes = [*((f"w{number}", "float32", (1 << 21,)) for number in range(16)), ("b", "float32", (16,))]
"""A state of 16 chunks of 8 MiB and a small one: three bundles."""
MIB = 1 << 20


@pytest.fixture
def bundles(folder: Path) -> Store:
    return Store.open(f"file://{folder}/storage", bundle_bytes=BUNDLE_BYTES)


@pytest.fixture
def large(shm: Path) -> Iterator[Arena]:
    with arena_for(shm / "large.arena", LARGE) as arena:
        yield arena


class State:
    """A state that is saved again and again."""

    def __init__(self, store: Store, arena: Arena) -> None:
        self.store, self.values, self.step, self.codec = store, content(LARGE, 0), 0, "none"
        self._arena = arena

    def touch(self, *tensors: int) -> None:
        for number in tensors:
            self.values[f"w{number}"] = random.Random(self.step * 100 + number).randbytes(8 * MIB)

    def save(self, base: str = "1-1") -> int:
        """Returns the bytes written."""
        self.step += 1
        writer = self._arena.begin(self.step, 1, released_step=self.step)
        assert isinstance(writer, SlotWriter)
        slot: SlotView = write(writer, LARGE, self.values)
        return save(self.store, slot, base="" if self.step == 1 else base, codec=self.codec).bytes_written

    @property
    def manifest(self) -> Manifest:
        return read_manifest(self.store, JOB, f"{self.step}-1")

    def check(self, place: Path) -> None:
        assert loaded(self.store, place, f"{self.step}-1") == self.values
        place.unlink()


@pytest.fixture
def state(bundles: Store, large: Arena) -> State:
    return State(bundles, large)


def files(store: Store) -> dict[str, int]:
    return {entry.name: entry.size for entry in store.walk(f"jobs/{JOB}/bases")}


def test_a_state_is_in_few_files_and_comes_back(state: State, shm: Path) -> None:
    state.save()
    sizes = files(state.store)
    assert len(sizes) == 3
    assert all("/bundles/" in name and size <= BUNDLE_BYTES for name, size in sizes.items())
    assert sum(sizes.values()) == state.manifest.bytes_stored
    state.check(shm / "b")
    verify(state.store, JOB, "1-1")


@pytest.mark.parametrize("bundle_bytes", [1, 8 * MIB, 17 * MIB])
def test_many_bundles_at_a_time(store: Store, large: Arena, shm: Path, bundle_bytes: int) -> None:
    """More are full than may be written at once: who fills one waits, and who writes one never does."""
    store.bundle_bytes = bundle_bytes
    state = State(store, large)
    state.save()
    assert len(files(store)) in {1: (17,), 8 * MIB: (17,), 17 * MIB: (8, 9)}[bundle_bytes]
    state.check(shm / "b")


def test_compressed_chunks_lie_in_bundles_too(state: State, shm: Path) -> None:
    for number in range(0, 16, 2):
        state.values[f"w{number}"] = bytes([number + 1]) * 8 * MIB
    state.codec = "zstd"
    assert state.save() < 70 * MIB
    assert {chunk.codec for chunk in state.manifest.chunks} >= {"none", "shuffle4+zstd"}
    assert all(chunk.bundle for chunk in state.manifest.chunks)
    verify(state.store, JOB, "1-1")
    state.check(shm / "b")


def test_a_bundle_is_named_by_its_bytes(state: State) -> None:
    state.save()
    for name, size in files(state.store).items():
        assert name.endswith(chunks.name(state.store.read(f"jobs/{JOB}/bases/{name}", size)))


def test_readers_of_whole_files_are_told_the_schema(state: State, store: Store, arena: Arena) -> None:
    state.save()
    assert b'"schema":3' in state.store.read(names.manifest(JOB, "1-1"), MIB)
    save(store, snapshot(arena, 100))
    assert b'"schema":2' in store.read(names.manifest(JOB, "100-1"), MIB)


def test_one_changed_chunk_writes_no_more_than_itself_and_a_manifest(state: State, shm: Path) -> None:
    state.save()
    state.touch(5)
    assert state.save() < 8 * MIB + MIB
    assert len(files(state.store)) == 4
    state.check(shm / "b")


def test_nothing_changed_writes_no_bundle(state: State, shm: Path) -> None:
    state.save()
    assert state.save() < MIB
    state.store = Store.open(state.store.url, bundle_bytes=BUNDLE_BYTES)  # another process
    assert state.save() < MIB
    assert len(files(state.store)) == 3
    state.check(shm / "b")


def test_an_incremental_checkpoint_onto_a_base_of_files(store: Store, large: Arena, shm: Path) -> None:
    """As after an upgrade: the base has chunks that are files, and the new ones are in a bundle."""
    state = State(store, large)
    state.save()
    state.store = Store.open(store.url, bundle_bytes=BUNDLE_BYTES)
    state.touch(3, 4)
    assert state.save() < 17 * MIB
    assert {bool(chunk.bundle) for chunk in state.manifest.chunks} == {True, False}
    state.check(shm / "b")
    state.store = Store.open(store.url)  # and back
    state.touch(5)
    assert state.save() < 9 * MIB
    state.check(shm / "b")


def test_worn_bundles_are_written_anew_and_then_collected(state: State, shm: Path) -> None:
    """One tensor after the other changes, now of this bundle and now of that; what the newest checkpoint
    names has few dead bytes beside it."""
    state.save()
    written = 0
    for number in (0, 7, 14, 1, 8, 15, 2, 9, 3, 10, 4, 11, 5, 12, 6):
        state.touch(number)
        written += state.save()
        old = [f"{step}-1" for step in range(1, state.step - 1)]
        collect.run(state.store, JOB, old, [], [], now_s=time.time(), grace_s=-60)
        state.check(shm / "b")
        assert 0 <= dead_share(state) <= DEAD_MOST + 8 / 130, number
    assert 15 * 8 * MIB < written < 3 * 15 * 8 * MIB
    assert sum(files(state.store).values()) < 1.6 * state.manifest.bytes_stored


def dead_share(state: State) -> float:
    """Of the bundles that the newest checkpoint names, the share of bytes that it does not name."""
    sizes = {name.rpartition("/")[2]: size for name, size in files(state.store).items()}
    named = {chunk.bundle for chunk in state.manifest.chunks}
    return 1 - state.manifest.bytes_stored / sum(sizes[bundle] for bundle in named)


@pytest.mark.parametrize("seed", range(50))
def test_no_more_are_worn_than_need_be(seed: int) -> None:
    source = random.Random(seed)
    sizes = {f"{number:064x}": source.randrange(1, 100) for number in range(source.randrange(1, 9))}
    named = [
        chunks.Chunk(f"{bundle}{number}", 1, 1, bundle=bundle, start=number)
        for bundle, size in sizes.items()
        for number in source.sample(range(size), source.randrange(1, size + 1))
    ]
    alive = {bundle: sum(chunk.bundle == bundle for chunk in named) for bundle in sizes}
    found = worn(named, sizes)

    def dead(bundles: set[str]) -> float:
        total = sum(sizes[bundle] for bundle in bundles)
        return sum(sizes[bundle] - alive[bundle] for bundle in bundles) / total if total else 0.0

    kept = sizes.keys() - found
    assert dead(kept) <= DEAD_MOST
    if found:
        least = min(found, key=lambda bundle: (1 - alive[bundle] / sizes[bundle], bundle))
        assert all(1 - alive[each] / sizes[each] <= 1 - alive[least] / sizes[least] for each in kept)
        assert dead(set(kept) | {least}) > DEAD_MOST or dead(set(sizes)) > DEAD_MOST
    assert worn(named, {}) == frozenset()


@pytest.mark.parametrize("how", ["flipped", "short", "missing"])
def test_a_rotten_byte_costs_one_chunk_and_is_named(state: State, folder: Path, how: str) -> None:
    state.save()
    chunk = inner(state.manifest)
    path = folder / "storage" / state.manifest.file(chunk)
    spoil(path, chunk, how)
    with pytest.raises(CheckpointCorrupt, match=f"chunk {chunk.blake3} in bundle {chunk.bundle}"):
        verify(state.store, JOB, "1-1") if how == "flipped" else scrub_or_raise(state)


@pytest.mark.parametrize(("how", "problem"), [("missing", "is missing"), ("short", "which are too few")])
def test_a_bundle_that_is_not_there_whole_stops_the_seal(
    bundles: Store, large: Arena, folder: Path, how: str, problem: str
) -> None:
    slot = snapshot(large, 1, LARGE)
    order = Order.of(slot, "")
    part = save_part(bundles, slot, order)
    (path, *_) = (folder / "storage").rglob("bundles/*")
    path.unlink() if how == "missing" else os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(CheckpointCorrupt, match=f"in bundle {path.name}: .*{problem}"):
        finalize(bundles, parts=[part], **order.words)


def scrub_or_raise(state: State) -> None:
    failed = scrub(state.store, state.manifest).failed
    chunk = inner(state.manifest)
    raise CheckpointCorrupt("1-1", next(each for each in failed if chunk.blake3 in each), "")


def inner(manifest: Manifest) -> Chunk:
    """A chunk in the middle of its bundle."""
    return next(chunk for chunk in manifest.chunks if chunk.start == 16 * MIB)


def spoil(path: Path, chunk: Chunk, how: str) -> None:
    if how == "missing":
        path.unlink()
    elif how == "short":
        path.write_bytes(path.read_bytes()[: chunk.start + 5])
    else:
        whole = bytearray(path.read_bytes())
        whole[chunk.start + 1000] ^= 4
        path.write_bytes(whole)


@pytest.mark.parametrize("how", ["flipped", "short", "missing"])
def test_repaired_from_memory_or_the_mirror(state: State, folder: Path, shm: Path, how: str) -> None:
    state.save()
    manifest, mirror = state.manifest, Store.open(f"file://{folder}/mirror")
    copied = copy(state.store, mirror, manifest)
    assert (copied.files, copied.present) == (3, 0)
    raw = {chunks.name(part): part for part in state.values.values()}
    for memory in (raw.get, None):
        path = folder / "storage" / manifest.file(inner(manifest))
        before = path.read_bytes()
        spoil(path, inner(manifest), how)
        result = scrub(state.store, manifest, mirror, memory)
        assert result.failed == ()
        assert result.repaired
        assert path.read_bytes() == before
        state.check(shm / "b")


def test_one_rotten_chunk_is_read_from_the_mirror(state: State, folder: Path, shm: Path) -> None:
    state.save()
    manifest = state.manifest
    copy(state.store, Store.open(f"file://{folder}/mirror"), manifest)
    spoil(folder / "storage" / manifest.file(inner(manifest)), inner(manifest), "flipped")
    both = Store.open(state.store.url, second=f"file://{folder}/mirror")
    assert loaded(both, shm / "b", "1-1") == state.values
    (folder / "storage" / manifest.file(inner(manifest))).unlink()
    assert loaded(both, shm / "c", "1-1") == state.values


def test_a_rotten_bundle_is_not_mirrored(state: State, folder: Path) -> None:
    state.save()
    spoil(folder / "storage" / state.manifest.file(inner(state.manifest)), inner(state.manifest), "flipped")
    mirror = Store.open(f"file://{folder}/mirror")
    with pytest.raises(CheckpointCorrupt, match=f"bundle {inner(state.manifest).bundle}"):
        copy(state.store, mirror, state.manifest)
    assert mirror.list(names.manifests(JOB)) == []


def copy(store: Store, mirror: Store, manifest: Manifest) -> mirroring.Copied:
    name = names.manifest(JOB, manifest.id)
    return mirroring.mirror_manifest(store, mirror, manifest, last=(name, store.read(name, MIB)))


def test_a_bundle_stays_while_one_of_its_chunks_is_named(state: State, shm: Path) -> None:
    state.save()
    first = set(files(state.store))
    state.touch(*range(16))
    state.save()  # only the smallest chunk of an old bundle is still named
    collect.run(state.store, JOB, ["1-1"], [], [], now_s=time.time(), grace_s=-60)
    kept = set(files(state.store))
    assert len(kept & first) == 1
    state.check(shm / "b")
    state.values["b"] = bytes(64)
    assert state.save() < MIB
    collect.run(state.store, JOB, ["2-1"], [], [], now_s=time.time(), grace_s=-60)
    assert not set(files(state.store)) & first
    state.check(shm / "b")


def test_a_save_that_was_stopped_goes_on_where_it_stopped(state: State, large: Arena, shm: Path) -> None:
    """What is in bundles by then is not written again."""
    slot = snapshot(large, 1, LARGE)
    stop = StopAfter(12)
    with pytest.raises(CheckpointError, match="stopped on request"):
        save(state.store, slot, stop=stop)
    done = sum(files(state.store).values())
    assert done >= 40 * MIB
    result = save(state.store, slot, stop=threading.Event())
    assert result.bytes_written <= result.bytes_total - done + MIB
    assert loaded(state.store, shm / "b", "1-1") == state.values
    assert Order.of(slot, "").kind == "full"


def test_a_chunk_that_changes_while_it_waits_is_not_written(store: Store) -> None:
    memory = bytearray(b"a" * 1000)
    index = chunks.BaseIndex("1-1")
    store.bundle_bytes = 1500
    bundler = Bundler(store, JOB, index, lambda name, whole, content: store.stage(name, content))
    for number in range(2):
        chunk = chunks.Chunk(chunks.name(bytes(memory)), 1000, 1000)
        bundler.add(number, chunk, memoryview(memory) if number else bytes(memory))
    memory[7] ^= 1
    with pytest.raises(CheckpointError, match=f"chunk {chunk.blake3} has changed in memory"):
        bundler.finish()
    (whole,) = files(store)
    assert index.durable == {
        chunk.blake3: chunk._replace(bundle=whole.rpartition("/")[2]),
    }


class StopAfter(threading.Event):
    """An event that is set once it was asked so often."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self._left = times

    def is_set(self) -> bool:
        self._left -= 1
        return self._left < 0


def test_few_requests_on_s3(s3: str, proxy: Proxy, opened: Opened, large: Arena, shm: Path) -> None:
    """At most 24 uploads and 24 downloads for each GiB: 19 bundles, and the same few requests as here."""
    state = State(opened(s3), large)
    assert state.store.bundle_bytes == BUNDLE_BYTES
    state.save()
    puts = proxy.seen["PUT"] + proxy.seen.get("POST", 0)
    assert puts == 3 + 3  # bundles; part, pending manifest and manifest
    before = proxy.seen["GET"]
    assert loaded(opened(s3), shm / "b", "1-1") == state.values
    assert proxy.seen["GET"] - before == 3 + 2  # bundles; the manifest, once for its shards
    before = proxy.seen["PUT"]
    state.touch(1)
    assert state.save() < 8 * MIB + MIB
    assert proxy.seen["PUT"] + proxy.seen.get("POST", 0) - before == 1 + 3
