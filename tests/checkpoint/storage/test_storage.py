"""Storages that cannot be used are named, with what to do about it; nothing half-done stays."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from holdfast.checkpoint.errors import CheckpointError, StorageError
from holdfast.checkpoint.load import listing, verify
from holdfast.checkpoint.storage.probing import probe
from holdfast.checkpoint.storage.store import Store
from tests.checkpoint.states import JOB, Shapes, arena_for, content, loaded, save, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from holdfast.ipc.arena import Arena

LARGE: Shapes = [("w", "uint8", (6 << 20,))]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "no URL; give one such as file:///"),
        ("flie:///tmp/x", r"flie:///tmp/x: unknown scheme 'flie'; did you mean file://\?"),
        ("s4://bucket/x", r"unknown scheme 's4'; did you mean s3://\?"),
        ("qqqq://x", "unknown scheme 'qqqq'; supported are file:// and s3://"),
        ("reference://x", "storage reference://x: .*missing 1 required"),
        ("dir://x", "storage dir://x: "),
        ("file://relative/path", "not an absolute path; write file:///relative/path"),
        ("oci://bucket/x", r"oci://bucket/x: its driver is missing: .*ocifs.* \(pip install\)"),
        ("ftp://me:secret@localhost:1/x", r"ftp://me:\.\.\.@localhost:1/x"),
        ("ftp://me:a@secret@localhost:1/x", r"ftp://me:\.\.\.@localhost:1/x"),
        ("ftp://me:secret@localhost:1/x?token=secret", r"ftp://me:\.\.\.@localhost:1/x\?token=\(hidden\)"),
        ("file://me:secret@host/x", r"write file:///me:\.\.\.@host/x"),
    ],
)
def test_urls_that_name_no_storage(url: str, message: str) -> None:
    with pytest.raises(StorageError, match=message) as caught:
        probe(url)
    assert "secret" not in str(caught.value)


def test_a_good_folder_promises_everything(folder: Path) -> None:
    found = probe(f"file://{folder}/new/storage")
    assert found.limits == ()
    assert [path for path in (folder / "new").rglob("*") if path.is_file()] == []
    assert probe(str(folder / "a plain path")).limits == ()


def test_memory_says_that_it_does_not_last(folder: Path) -> None:
    assert probe(f"memory://{folder.name}").limits == ("everything stored is lost when this process ends",)


def test_a_file_in_the_place_of_the_folder(folder: Path) -> None:
    (folder / "file").write_text("here")
    for place in ("file", "file/below"):
        with pytest.raises(StorageError, match=rf"{folder}/{place}: cannot write .*--storage"):
            probe(f"file://{folder}/{place}")


def test_a_folder_that_cannot_be_made() -> None:
    with pytest.raises(StorageError, match="file:///proc/nothing: cannot write"):
        probe("file:///proc/nothing")


def test_read_only(small_disk: Callable[[str], Path]) -> None:
    disk = small_disk("size=4m,ro")
    with pytest.raises(StorageError, match=r"it is read-only: mount it writable"):
        probe(f"file://{disk}")


def test_full(small_disk: Callable[[str], Path], shm: Path) -> None:
    disk = small_disk("size=4m")
    store = Store.open(f"file://{disk}")
    with arena_for(shm / "a", LARGE) as arena:
        with pytest.raises(StorageError, match=rf"file://{disk}: cannot write .*it is full: free space"):
            save(store, snapshot(arena, 10, LARGE))
    assert listing(store, JOB) == []
    assert [path for path in disk.rglob("*") if path.is_file()] == []


def test_room_again_and_the_same_save_succeeds(small_disk: Callable[[str], Path], shm: Path) -> None:
    disk = small_disk("size=8m")
    (disk / "ballast").write_bytes(bytes(4 << 20))
    store = Store.open(f"file://{disk}")
    with arena_for(shm / "a", LARGE) as arena:
        slot = snapshot(arena, 10, LARGE, seed=4)
        with pytest.raises(StorageError, match="full"):
            save(store, slot)
        (disk / "ballast").unlink()
        save(store, slot)
    assert loaded(store, shm / "b", "10-1") == content(LARGE, 4)


LIMITED = """
import resource, sys
from pathlib import Path
from holdfast.checkpoint.errors import StorageError
from holdfast.checkpoint.storage.store import Store
from tests.checkpoint.states import arena_for, save, snapshot
from tests.checkpoint.storage.test_storage import LARGE
with arena_for(Path(sys.argv[2]), LARGE) as arena:
    slot = snapshot(arena, 10, LARGE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    try:
        save(Store.open(sys.argv[1]), slot)
    except StorageError as error:
        print(error)
"""


def test_a_limit_on_file_sizes(store: Store, folder: Path, shm: Path) -> None:
    command = [sys.executable, "-c", LIMITED, store.url, str(shm / "a")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert f"storage {store.url}: cannot write" in done.stdout
    assert "ulimit -f" in done.stdout
    assert [path for path in folder.rglob("*") if path.is_file()] == []


def test_the_folder_is_swept_away_while_running(store: Store, folder: Path, arena: Arena) -> None:
    """A person empties the storage: the next save does not rely on what was there."""
    save(store, snapshot(arena, 10))
    (folder / "storage").rename(folder / "gone")
    save(store, snapshot(arena, 20), base="10-1")
    verify(store, JOB, "20-1")
    with pytest.raises(CheckpointError, match="is not at"):
        verify(store, JOB, "10-1")


def test_a_folder_swept_away_amid_a_save_fails_that_save_alone(store: Store, folder: Path) -> None:
    store.stage("jobs/j/bases/1-1/chunks/ab/first", b"first")
    (folder / "storage").rename(folder / "gone")
    with pytest.raises(StorageError, match="its folder is gone"):
        store.flush()
    store.stage("jobs/j/bases/2-1/chunks/cd/second", b"second")
    store.flush()
    assert store.read("jobs/j/bases/2-1/chunks/cd/second", 100) == b"second"
