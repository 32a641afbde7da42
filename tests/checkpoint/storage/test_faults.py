"""Faults below a storage: what passes is made again, the rest told with its mend; nothing is half there."""

from __future__ import annotations

import errno
import random
import threading
import time
from typing import TYPE_CHECKING

import pytest

from holdfast.checkpoint.errors import StorageError
from holdfast.checkpoint.load import listing
from holdfast.checkpoint.storage import causes
from holdfast.checkpoint.storage.probing import probe
from holdfast.checkpoint.storage.retrying import Attempts, GaveUpError, Patience
from holdfast.checkpoint.storage.stats import Stats
from holdfast.checkpoint.storage.store import Store
from tests.checkpoint.states import JOB, SMALL, content, loaded, save, snapshot
from tests.checkpoint.storage.faulty import ECONNRESET, EIO, ENOSPC, EROFS, Faulty

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.ipc.arena import Arena

QUICK = Patience(deadline_s=20.0, pause_first_s=0.001, pause_max_s=0.01)
NAME = "jobs/job/manifests/1-1.json"
DATA = bytes(range(256)) * 100


@pytest.fixture
def faulty(folder: Path) -> Iterator[Store]:
    Faulty.reset()
    yield Store.open(f"faulty://{folder}/storage", patience=QUICK)
    Faulty.reset()


def test_without_faults_it_is_a_storage(faulty: Store, arena: Arena, shm: Path) -> None:
    result = save(faulty, snapshot(arena, 10, seed=1))
    assert loaded(faulty, shm / "b", "10-1", result.digest) == content(SMALL, 1)


@pytest.mark.parametrize(
    ("number", "mend"),
    [
        (EIO, "the device failed to read or write: look at the kernel's log"),
        (ENOSPC, "it is full: free space"),
        (EROFS, "it is read-only: mount it writable"),
        (errno.EACCES, "permission denied: let this user write there"),
        (errno.EDQUOT, "the quota is used up"),
    ],
)
def test_a_write_that_fails_for_good(faulty: Store, folder: Path, number: int, mend: str) -> None:
    Faulty.fail("pipe_file", number)
    with pytest.raises(
        StorageError, match=f"faulty://{folder}/storage: cannot write {NAME}: .*; {mend}"
    ) as caught:
        faulty.put(NAME, DATA)
    assert caught.value.fix.startswith(mend)
    assert (Faulty.calls["pipe_file"], faulty.stats.totals().retries) == (1, {})
    assert [path for path in folder.rglob("*") if path.is_file()] == []
    assert faulty.put(NAME, DATA)


def test_a_write_that_breaks_off_is_made_again_in_whole(faulty: Store) -> None:
    Faulty.fail("pipe_file", ECONNRESET, TimeoutError("no answer"))
    assert faulty.put(NAME, DATA)
    assert faulty.read(NAME, 1 << 20) == DATA
    assert faulty.stats.totals().retries == {"connection": 1}  # the second attempt found the first one's half
    Faulty.fail("pipe_file", None, ECONNRESET)
    assert not faulty.put(NAME, b"another's content")
    assert faulty.read(NAME, 1 << 20) == DATA


def test_reads_looks_and_deletions_are_made_again(faulty: Store) -> None:
    faulty.put(NAME, DATA)
    Faulty.fail("cat_file", ConnectionResetError("gone"), TimeoutError("late"))
    assert faulty.read(NAME, 1 << 20) == DATA
    Faulty.fail("info", BrokenPipeError("gone"))
    assert faulty.size(NAME) == len(DATA)
    Faulty.fail("rm_file", errno.EHOSTUNREACH)
    faulty.delete(NAME)
    assert faulty.size(NAME) is None
    assert faulty.stats.totals().retries == {"connection": 3, "timeout": 1}


def test_a_read_that_fails_for_good(faulty: Store) -> None:
    faulty.put(NAME, DATA)
    Faulty.fail("cat_file", EIO)
    with pytest.raises(StorageError, match=r"cannot read .*look at the kernel's log"):
        faulty.read(NAME, 1 << 20)
    Faulty.fail("info", EIO)
    with pytest.raises(StorageError, match="cannot look at"):
        faulty.size(NAME)


def test_a_save_over_a_storage_that_stumbles(faulty: Store, arena: Arena, shm: Path) -> None:
    Faulty.fail("pipe_file", *[None, ECONNRESET] * 4)
    result = save(faulty, snapshot(arena, 10, seed=1))
    assert faulty.stats.totals().retries["connection"] >= 1
    assert loaded(faulty, shm / "b", "10-1", result.digest) == content(SMALL, 1)


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_save_that_fails_half_way_lists_nothing_and_goes_on_later(
    faulty: Store, arena: Arena, shm: Path, after: int
) -> None:
    slot = snapshot(arena, 10, seed=1)
    Faulty.fail("pipe_file", *[None] * after, EIO)
    with pytest.raises(StorageError, match="look at the kernel's log"):
        save(faulty, slot)
    assert listing(faulty, JOB) == []
    Faulty.reset()
    save(faulty, slot)
    assert loaded(faulty, shm / "b", "10-1") == content(SMALL, 1)


def test_an_attempt_after_the_deadline_has_a_moment() -> None:
    late = Attempts(Patience(deadline_s=0.0), Stats(), threading.Event(), random.Random(1))
    assert 0 < late.run(lambda limit_s: limit_s) < 0.1


def test_the_deadline_ends_the_attempts() -> None:
    stats, failures = Stats(), 0

    def fail(limit_s: float) -> None:
        nonlocal failures
        assert 0 < limit_s <= 0.2
        failures += 1
        raise ConnectionResetError("again")

    attempts = Attempts(
        Patience(deadline_s=0.3, attempt_s=0.2, pause_first_s=0.001, pause_max_s=0.02),
        stats,
        threading.Event(),
        random.Random(1),
    )
    with pytest.raises(GaveUpError, match="again") as caught:
        attempts.run(fail)
    assert failures > 2
    assert f"gave up after {failures} attempts" in caught.value.tried
    assert stats.totals().retries == {"connection": failures - 1}
    assert stats.totals().gave_up == {"connection": 1}


def test_a_pause_ends_when_told_to_stop() -> None:
    stop = threading.Event()
    attempts = Attempts(Patience(pause_first_s=1e6, pause_max_s=250.0), Stats(), stop, random.Random(1))

    def fail(limit_s: float) -> None:
        threading.Timer(0.05, stop.set).start()
        raise TimeoutError

    began = time.monotonic()
    with pytest.raises(GaveUpError) as caught:
        attempts.run(fail)
    assert time.monotonic() - began < 30
    assert "stopped on request after 1 attempts" in caught.value.tried


def test_the_patience_grows_with_the_bytes() -> None:
    patience = Patience(deadline_s=300, attempt_s=60)
    assert patience.of(8 << 20) == patience
    assert patience.of(80 << 20).attempt_s == 600
    slow = patience.of(8 << 20, bytes_per_s=1 << 20)
    assert (slow.attempt_s, slow.deadline_s) == (76, 316)


class HttpError(Exception):
    """As drivers raise them that speak HTTP themselves."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (HttpError(408), causes.TIMEOUT),
        (HttpError(429), causes.THROTTLED),
        (HttpError(500), causes.SERVER),
        (HttpError(503), causes.THROTTLED),
        (HttpError(501), None),
        (HttpError(507), None),
        (HttpError(403), None),
        (HttpError(404), None),
        (TimeoutError(), causes.TIMEOUT),
        (ConnectionRefusedError(), causes.CONNECTION),
        (OSError(errno.ENETUNREACH, "no route"), causes.CONNECTION),
        (OSError(errno.EIO, "device"), None),
        (OSError(errno.ENOSPC, "full"), None),
        (FileNotFoundError("x"), None),
        (ValueError("x"), None),
    ],
)
def test_what_passes_by_itself(error: Exception, kind: str | None) -> None:
    assert causes.transient(error) == kind
    wrapped = OSError("driver says no")
    wrapped.__cause__ = error
    assert causes.transient(wrapped) == kind


def test_full_while_a_timeout_was_handled_is_full() -> None:
    full = OSError(errno.ENOSPC, "full")
    full.__context__ = TimeoutError()
    assert causes.transient(full) is None
    assert causes.fix(full).startswith("it is full")


def test_a_probe_over_faults(faulty: Store, folder: Path) -> None:
    Faulty.fail("pipe_file", EROFS)
    with pytest.raises(StorageError, match="mount it writable"):
        probe(f"faulty://{folder}/storage")
    assert probe(f"faulty://{folder}/storage").limits == (
        "a hanging connection is ended only by the driver's own timeouts",
    )
