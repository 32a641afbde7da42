"""Two storages for one job; how fast they are written to and read; what killed writers leave behind."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from holdfast.checkpoint.errors import CheckpointCorrupt, CheckpointError, StorageError
from holdfast.checkpoint.mirroring import Copied, mirror
from holdfast.checkpoint.storage.pacing import PIECE_BYTES, UploadPace
from holdfast.checkpoint.storage.probing import probe
from holdfast.checkpoint.storage.store import Store

if TYPE_CHECKING:
    from pathlib import Path

FILES = {f"jobs/job/bases/1-1/chunks/00/{number:064x}": os.urandom(50_000 + number) for number in range(40)}
LAST = [("jobs/job/pending/1.json", b"{}"), ("jobs/job/manifests/1.json", b"{1}")]
WANTED = [(name, len(content)) for name, content in FILES.items()]


def whole(name: str, content: bytes) -> None:
    if content != FILES[name]:
        raise CheckpointCorrupt("1-1", name, "is spoilt")


@pytest.fixture
def pair(folder: Path) -> Store:
    store = Store.open(f"file://{folder}/fast", second=f"file://{folder}/durable")
    for name, content in FILES.items():
        store.put(name, content)
    store.flush()
    return store


def second(pair: Store) -> Store:
    assert pair.second is not None
    return pair.second


def test_the_second_storage_gets_what_it_lacks(pair: Store, folder: Path) -> None:
    target = second(pair)
    names = list(FILES)
    target.put(names[0], FILES[names[0]])
    target.put(names[1], b"torn")
    copied = mirror(pair, target, WANTED, check=whole, last=LAST)
    assert copied == Copied(39, sum(map(len, FILES.values())) - len(FILES[names[0]]), 1)
    assert {name: target.read(name, 1 << 20) for name in FILES} == FILES
    assert [target.read(name, 100) for name, _ in LAST] == [content for _, content in LAST]
    assert mirror(pair, target, WANTED, check=whole, last=LAST) == Copied(0, 0, 40)


def test_what_is_spoilt_or_missing_is_not_mirrored(pair: Store, folder: Path) -> None:
    name = list(FILES)[7]
    pair.replace(name, b"x" * len(FILES[name]))
    for _ in range(2):
        with pytest.raises(CheckpointCorrupt, match="is spoilt"):
            mirror(pair, second(pair), WANTED, check=whole, last=LAST)
        pair.delete(name)
    assert second(pair).size(name) is None
    assert second(pair).list("jobs/job/manifests") == []


def test_a_mirrored_id_is_never_overwritten(pair: Store) -> None:
    second(pair).put(LAST[1][0], b"of another cluster")
    with pytest.raises(StorageError, match=r"durable: jobs/job/manifests/1.json exists with other content"):
        mirror(pair, second(pair), WANTED, check=whole, last=LAST)


def test_mirroring_stops_when_told(pair: Store) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(CheckpointError, match="stopped on request"):
        mirror(pair, second(pair), WANTED, check=whole, stop=stop)


def test_a_probe_looks_at_both(folder: Path) -> None:
    (folder / "file").write_text("")
    assert probe(f"file://{folder}/a", f"file://{folder}/b").limits == ()
    assert probe(f"file://{folder}/a", f"memory://{folder.name}").limits == (
        f"its mirror memory://{folder.name}: everything stored is lost when this process ends",
    )
    with pytest.raises(StorageError, match=f"{folder}/file: cannot write"):
        probe(f"file://{folder}/a", f"file://{folder}/file")


def test_a_pace_is_kept_by_all_together(folder: Path) -> None:
    pace = UploadPace(4 << 20)
    stores = [Store.open(f"file://{folder}/{name}", pace=pace) for name in "ab"]
    began = time.monotonic()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: stores[n % 2].put(f"x/{n}", bytes(1 << 20)), range(4)))
    assert time.monotonic() - began > 0.85
    assert sum(store.stats.totals().bytes_written for store in stores) == 4 << 20


def test_a_paced_chunk_is_spread_over_its_time() -> None:
    pace, moments = UploadPace(PIECE_BYTES * 50), []
    for _ in range(10):
        pace.take(PIECE_BYTES)
        moments.append(time.monotonic())
    assert moments[-1] - moments[3] > 6 / 50 * 0.9
    pace.set(0)
    pace.take(1 << 40)
    with pytest.raises(ValueError, match="not a valid rate"):
        pace.set(-1)


def test_a_slowed_storage_is_the_same_storage(folder: Path) -> None:
    store = Store.open(f"file://{folder}/storage")
    store.put("x/1", bytes(1 << 20))
    slow = store.slowed(UploadPace(4 << 20))
    began = time.monotonic()
    for _ in range(4):
        assert len(slow.read("x/1", 1 << 20)) == 1 << 20
    assert time.monotonic() - began > 0.6
    assert store.stats.totals().bytes_read == 4 << 20
    assert slow.indexes is store.indexes


def test_the_speed_of_uploads_counts_overlapping_ones_once(folder: Path) -> None:
    store = Store.open(f"file://{folder}/storage", pace=UploadPace(8 << 20))
    assert store.stats.totals().write_s == 0
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: store.put(f"x/{n}", bytes(1 << 20)), range(4)))
    totals = store.stats.totals()
    assert 0 < totals.bytes_written / totals.write_s < 11 << 20
