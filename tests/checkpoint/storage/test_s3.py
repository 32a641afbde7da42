"""S3 as storage, over real HTTP: what is put is there once, and what passes by itself is tried again."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from holdfast.checkpoint.errors import CheckpointCorrupt, StorageError
from holdfast.checkpoint.format import chunks, names
from holdfast.checkpoint.load import listing, verify
from holdfast.checkpoint.mirroring import mirror
from holdfast.checkpoint.storage.pacing import UploadPace
from holdfast.checkpoint.storage.probing import probe
from holdfast.checkpoint.storage.retrying import Patience
from holdfast.checkpoint.storage.store import Store
from tests.checkpoint import proxy as faults
from tests.checkpoint.s3 import HASTY, QUICK
from tests.checkpoint.states import JOB, SMALL, content, loaded, save, snapshot

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.ipc.arena import Arena
    from tests.checkpoint.proxy import Proxy
    from tests.checkpoint.s3 import Opened

DATA = os.urandom(200_000)
FOLDER = "jobs/job/manifests"
NAME = f"{FOLDER}/1-1.json"


def test_a_bucket_promises_everything(s3: str) -> None:
    assert probe(s3).limits == ()
    assert probe(s3, f"{s3}-mirror").limits == ()


def test_content_comes_back(s3: str, opened: Opened) -> None:
    store = opened(s3)
    assert store.put(NAME, DATA)
    assert not store.put(NAME, b"other")
    assert store.read(NAME, 1 << 20) == DATA
    assert store.read(NAME, 10) == DATA[:10]
    for room in (len(DATA) - 1, len(DATA), len(DATA) + 1):
        target = bytearray(room)
        assert store.read_into(NAME, memoryview(target)) == len(DATA)
        assert target[: len(DATA)] == DATA[:room]
    assert (store.size(NAME), store.size("jobs/job"), store.size("nothing")) == (len(DATA), None, None)
    store.replace(NAME, b"")
    assert (store.size(NAME), store.read(NAME, 5)) == (0, b"")
    assert (store.list(FOLDER), store.list("jobs"), store.list("none")) == (["1-1.json"], [], [])
    (entry,) = store.walk("jobs")
    assert (entry.name, entry.size) == ("job/manifests/1-1.json", 0)
    assert entry.modified_s is not None
    assert abs(entry.modified_s - time.time()) < 600
    store.delete(NAME)
    store.delete(NAME)
    with pytest.raises(FileNotFoundError):
        store.read(NAME, 5)
    assert store.walk("jobs") == []


def test_a_checkpoint_is_saved_published_and_loaded(s3: str, opened: Opened, arena: Arena, shm: Path) -> None:
    store = opened(s3)
    result = save(store, snapshot(arena, 10, seed=1))
    again = save(store, snapshot(arena, 20, seed=1), base="10-1")
    assert again.bytes_written < result.bytes_written / 10
    assert [found.id for found in listing(opened(s3), JOB)] == ["20-1", "10-1"]
    assert verify(opened(s3), JOB, "10-1", result.digest).step == 10
    assert loaded(opened(s3), shm / "b", "20-1") == content(SMALL, 1)


def test_what_has_rotted_on_s3_is_read_from_the_mirror(
    s3: str, opened: Opened, folder: Path, arena: Arena, shm: Path
) -> None:
    mirror_url = f"file://{folder}/mirror"
    store = Store.open(s3, second=mirror_url)
    assert store.second is not None
    save(store, snapshot(arena, 10, seed=1))
    (manifest,) = listing(store, JOB)
    entries = [(f"jobs/{JOB}/bases/{entry.name}", entry.size) for entry in store.walk(f"jobs/{JOB}/bases")]
    last = names.manifest(JOB, manifest.id)
    copied = mirror(store, store.second, entries, check=whole, last=[(last, store.read(last, 1 << 20))])
    assert copied.files == len(entries)
    for (name, size), damage in zip(entries, (b"", b"x"), strict=False):
        store.replace(name, damage * size)
    with pytest.raises(CheckpointCorrupt):
        loaded(opened(s3), shm / "b", "10-1")
    assert loaded(store, shm / "c", "10-1") == content(SMALL, 1)
    assert verify(Store.open(mirror_url), JOB, "10-1").step == 10
    store.close()


def whole(name: str, stored: bytes) -> None:
    """Chunks lie as they are here: the name says what they hash to."""
    assert chunks.name(stored) in name


def test_an_object_of_many_parts(s3: str, opened: Opened) -> None:
    """The driver cuts from 64 MiB on; the condition then holds for the last of its requests."""
    store, large = opened(s3, Patience()), os.urandom(1 << 20) * 65
    assert store.put(NAME, large)
    assert not store.put(NAME, bytes(len(large)))
    assert store.size(NAME) == len(large)
    assert store.read(NAME, len(large) + 1) == large


RACERS = r"""
import os, sys
import s3fs
from holdfast.checkpoint.storage.store import Store
begin, wait = os.pipe()[::-1]
for number in range(8):
    if os.fork() == 0:
        os.close(begin)
        store = Store.open(sys.argv[1])
        store.size("jobs/job/manifests/1-1.json")
        os.write(1, b"ready\n")
        os.read(wait, 1)
        won = store.put("jobs/job/manifests/1-1.json", b"%d" % number * 1000)
        os.write(1, f"{number} {won}\n".encode())
        store.close()
        os._exit(0)
sys.stdin.readline()
os.close(begin)
for _ in range(8):
    os.wait()
"""


def test_of_many_processes_that_create_one_name_one_succeeds(s3: str, opened: Opened) -> None:
    command = [sys.executable, "-c", RACERS, s3]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as racers:
        assert racers.stdout is not None
        assert [racers.stdout.readline() for _ in range(8)] == ["ready\n"] * 8
        said = racers.communicate("go\n", timeout=60)[0].splitlines()
    results = dict(line.split() for line in said)
    assert sorted(results.values()) == ["False"] * 7 + ["True"]
    (winner,) = (number for number, won in results.items() if won == "True")
    assert opened(s3).read(NAME, 5000) == winner.encode() * 1000


UPLOAD_FAULTS: list[tuple[faults.Fault, str]] = [
    (faults.answer(503, "SlowDown"), "throttled"),
    (faults.answer(503, "ServiceUnavailable"), "server"),
    (faults.answer(429, "TooManyRequests"), "throttled"),
    (faults.answer(500, "InternalError"), "server"),
    (faults.answer(502, "BadGateway"), "server"),
    (faults.answer(409, "ConditionalRequestConflict"), "conflict"),
    (faults.reset_in_request, "connection"),
]


def test_an_upload_that_fails_is_made_again(s3: str, proxy: Proxy, opened: Opened) -> None:
    store = opened(s3)
    for number, (fault, kind) in enumerate(UPLOAD_FAULTS):
        before = store.stats.totals().retries.get(kind, 0)
        proxy.fail("PUT", fault, times=2)
        assert store.put(f"{NAME}{number}", DATA)
        assert (proxy.pending, proxy.seen["PUT"]) == (0, 3 * (number + 1))
        assert store.stats.totals().retries[kind] == before + 2
        assert store.read(f"{NAME}{number}", 1 << 20) == DATA
    assert store.stats.totals().bytes_written == len(UPLOAD_FAULTS) * len(DATA)


DOWNLOAD_FAULTS: list[tuple[faults.Fault, str]] = [
    (faults.answer(503, "SlowDown"), "throttled"),
    (faults.answer(500, "InternalError"), "server"),
    (faults.reset_in_answer, "connection"),
    (faults.cut_answer, "connection"),
]


def test_a_download_that_fails_is_made_again(s3: str, proxy: Proxy, opened: Opened) -> None:
    store = opened(s3)
    store.put(NAME, DATA)
    for fault, kind in DOWNLOAD_FAULTS:
        before = store.stats.totals().retries.get(kind, 0)
        proxy.fail("GET", fault, times=2)
        target = bytearray(len(DATA))
        assert store.read_into(NAME, memoryview(target)) == len(DATA)
        assert target == DATA
        assert proxy.pending == 0
        assert store.stats.totals().retries[kind] == before + 2


def test_a_connection_on_which_nothing_comes_is_given_up(s3: str, proxy: Proxy, opened: Opened) -> None:
    store = opened(s3, HASTY)
    proxy.fail("PUT", faults.half_open)
    assert store.put(NAME, DATA)
    proxy.fail("GET", faults.half_open)
    assert store.read(NAME, 1 << 20) == DATA
    assert store.stats.totals().retries["timeout"] >= 2


def test_a_look_and_a_listing_are_made_again(s3: str, proxy: Proxy, opened: Opened) -> None:
    store = opened(s3)
    store.put(NAME, DATA)
    proxy.fail("HEAD", faults.answer(503, ""))
    assert store.size(NAME) == len(DATA)
    proxy.fail("GET", faults.answer(500, "InternalError"))
    assert store.list(FOLDER) == ["1-1.json"]
    proxy.fail("DELETE", faults.answer(503, "SlowDown"))
    store.delete(NAME)
    assert proxy.pending == 0
    assert store.size(NAME) is None


def test_a_slow_connection_is_no_failure(s3: str, proxy: Proxy, opened: Opened) -> None:
    store = opened(s3, Patience())
    proxy.fail("PUT", faults.slow)
    assert store.put(NAME, DATA)
    proxy.fail("GET", faults.slow)
    assert store.read(NAME, 1 << 20) == DATA
    assert store.stats.totals().retries == {}


def test_uploads_keep_their_pace(s3: str) -> None:
    """They wait, and each byte is counted once: a pace that counts less is too fast, one that counts more too
    slow."""
    pace = Counted(4 << 20)
    store = Store.open(s3, pace=pace)
    began = time.monotonic()
    for number in range(3):
        store.put(f"x/{number}", bytes(1 << 20))
    assert time.monotonic() - began > 0.45
    assert sum(pace.taken) == 3 << 20
    store.close()


class Counted(UploadPace):
    """A pace that remembers what it let through."""

    def __init__(self, bytes_per_s: float) -> None:
        super().__init__(bytes_per_s)
        self.taken: list[int] = []

    def take(self, nbytes: int, stop: threading.Event | None = None) -> None:
        super().take(nbytes, stop)
        self.taken.append(nbytes)


def test_a_create_whose_answer_was_lost_is_ours(s3: str, proxy: Proxy, opened: Opened) -> None:
    store = opened(s3)
    proxy.fail("PUT", faults.lose_answer)
    assert store.put(NAME, DATA)
    assert store.stats.totals().retries == {"connection": 1}
    proxy.fail("PUT", faults.reset_in_request)
    assert not store.put(NAME, b"another's")
    assert store.read(NAME, 1 << 20) == DATA


@pytest.mark.parametrize(
    "fault", [faults.half_open, faults.answer(503, "SlowDown")], ids=["hung", "SlowDown"]
)
def test_what_never_passes_ends_at_the_deadline(
    s3: str, proxy: Proxy, opened: Opened, fault: faults.Fault
) -> None:
    store = opened(s3, Patience(deadline_s=1.0, attempt_s=0.4, pause_first_s=0.01, pause_max_s=0.2))
    proxy.refuses = lambda _: fault
    began = time.monotonic()
    with pytest.raises(StorageError, match=rf"{s3}: cannot write {NAME}: .*gave up after \d+ attempts in"):
        store.put(NAME, DATA)
    assert time.monotonic() - began < 60  # not for ever
    assert sum(store.stats.totals().gave_up.values()) == 1


def test_a_server_that_is_not_there(s3: str, opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(s3).put(NAME, DATA)  # what has to be imported takes seconds on a crowded machine
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(StorageError, match=r"cannot read .*127.0.0.1:1.*gave up after .*connection"):
        opened(s3, Patience(deadline_s=5.0, pause_max_s=1.0)).read(NAME, 5)


def test_closing_ends_what_hangs(s3: str, proxy: Proxy, opened: Opened) -> None:
    store = opened(s3, Patience())
    proxy.refuses = lambda _: faults.half_open
    said: list[str] = []

    def hang() -> None:
        with pytest.raises(StorageError) as caught:
            store.put(NAME, DATA)
        said.append(str(caught.value))

    thread = threading.Thread(target=hang)
    thread.start()
    until = time.monotonic() + 10
    while not proxy.seen and time.monotonic() < until:
        time.sleep(0.01)
    store.close()
    thread.join(5)
    assert not thread.is_alive()
    assert "stopped on request" in said[0]


MENDS = [
    (403, "RequestTimeTooSkewed", "this machine's clock is off"),
    (507, "XMinioStorageFull", "it is full: free space"),
    (403, "AccessDenied", "let these credentials list, read, write and delete there"),
    (403, "InvalidAccessKeyId", "the credentials are not accepted: fix the secret"),
    (400, "ExpiredToken", "the credentials have expired: renew the secret"),
]


def test_what_somebody_must_mend_is_said_at_once(s3: str, proxy: Proxy, opened: Opened) -> None:
    store = opened(s3)
    for status, code, mend in MENDS:
        fault = faults.answer(status, code)
        proxy.refuses = lambda _, fault=fault: fault  # type: ignore[misc]
        with pytest.raises(StorageError, match=rf"{s3}: cannot write {NAME}.*{code}.*; .*{mend}") as caught:
            store.put(NAME, DATA)
        assert mend in caught.value.fix
    for act in (lambda: store.read(NAME, 5), lambda: store.list("jobs"), lambda: store.size(NAME)):
        with pytest.raises(StorageError, match=r"credentials .*have expired: renew the secret"):
            act()
    assert store.stats.totals().retries == {}


def test_renewed_credentials_are_taken_up(
    s3: str, proxy: Proxy, opened: Opened, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = folder / "credentials"
    secret.write_text("[default]\naws_access_key_id = old\naws_secret_access_key = a\n")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(secret))
    expired = faults.answer(403, "ExpiredToken")
    proxy.refuses = lambda exchange: expired if "=old/" in exchange.header("Authorization") else None
    store = opened(s3)
    for _ in range(2):
        with pytest.raises(StorageError, match="the credentials have expired: renew the secret"):
            store.put(NAME, DATA)
    secret.write_text("[default]\naws_access_key_id = new\naws_secret_access_key = a\n")
    assert store.put(NAME, DATA)


def test_no_credentials(s3: str, opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    with pytest.raises(StorageError, match="no credentials are found: set AWS_ACCESS_KEY_ID"):
        opened(s3).put(NAME, DATA)


def test_a_bucket_that_does_not_exist(s3: str, opened: Opened) -> None:
    store = opened("s3://no-such-bucket/x")
    for act in (
        lambda: store.put(NAME, DATA),
        lambda: store.read(NAME, 5),
        lambda: store.size(NAME),
        lambda: store.list("jobs"),
        lambda: store.walk("jobs"),
        lambda: store.delete(NAME),
    ):
        with pytest.raises(StorageError, match=r"s3://no-such-bucket/x.*there is no such bucket: create it"):
            act()
    with pytest.raises(StorageError, match="there is no such bucket"):
        probe("s3://no-such-bucket/x", patience=QUICK)


MISSING = """
import sys
sys.modules["s3fs"] = None
from holdfast.checkpoint.storage.store import Store
Store.open("s3://bucket/x")
"""


def test_a_driver_that_is_missing_names_the_extra() -> None:
    done = subprocess.run([sys.executable, "-c", MISSING], check=False, capture_output=True, text=True)
    assert "StorageError: storage s3://bucket/x: its driver is missing" in done.stderr
    assert "(pip install 'holdfast[s3]')" in done.stderr
