"""Open a URL as a store: content is put once, read back, and never overwritten."""

from __future__ import annotations

import difflib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import fsspec

from holdfast.checkpoint.errors import CheckpointError, StorageError
from holdfast.checkpoint.storage import causes, drivers, pacing
from holdfast.checkpoint.storage.local import DRAFT_AGE_S, LocalBackend
from holdfast.checkpoint.storage.remote import RemoteBackend
from holdfast.checkpoint.storage.retrying import PATIENCE, GaveUpError, Patience
from holdfast.checkpoint.storage.stats import READ, WRITE, Stats
from holdfast.checkpoint.storage.wording import shown, storage_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.checkpoint.format.chunks import BaseIndex
    from holdfast.checkpoint.format.names import Bytes, StoredFile

_LOCAL = ("file", "local")


class Backend(Protocol):
    """What a kind of storage must do. Names are relative and already checked (names.py)."""

    limits: tuple[str, ...]
    bundle_bytes: int

    def put(self, name: str, data: Bytes) -> bool:
        """Create `name`; False if it exists."""

    def stage(self, name: str, data: Bytes) -> bool:
        """Create `name`; its content is durable at the next `flush`. False if it exists."""

    def settle(self, name: str) -> None:
        """Make it durable at the next `flush`, whoever put it."""

    def replace(self, name: str, data: Bytes) -> None:
        """Create or overwrite it, at once."""

    def flush(self) -> None:
        """Make everything that was put durable."""

    def foresee(self, name: str) -> None:
        """Prepare for a read of this file, if it exists."""

    def read(self, name: str, limit: int, start: int) -> bytes:
        """At most `limit` bytes, from byte `start` on."""

    def read_into(self, name: str, target: memoryview, start: int) -> int:
        """Read into memory, from byte `start` on; returns the bytes found from there on."""

    def size(self, name: str) -> int | None:
        """Its size in bytes; None if it does not exist."""

    def folders(self, folder: str) -> Sequence[str]:
        """Names of the folders in a folder."""

    def walk(self, folder: str) -> Sequence[StoredFile]:
        """All files below it, at any depth."""

    def list(self, folder: str) -> list[str]:
        """Names of the files in a folder."""

    def delete(self, name: str) -> None:
        """Remove it, if it exists."""

    def prune(self, folder: str) -> None:
        """Remove empty folders below this one, and itself if it is empty."""

    def sweep(self, older_than_s: float) -> int:
        """Remove drafts older than this; returns how many."""

    def close(self) -> None:
        """Release what is held; the storage is not used afterwards."""


class Store:
    """One storage. Every failure is a StorageError that names it; a missing name is FileNotFoundError.

    - `url`: for people, without secrets.
    - `second`: the mirror, asked if this storage lacks a file or has it damaged; None: there is none.
    - `bundle_bytes`: the most bytes of a bundle of chunks; 0: each chunk is a file of its own.
    - `stats`: counters."""

    def __init__(self, url: str, backend: Backend, stats: Stats | None = None) -> None:
        self.url = shown(url)
        self.indexes: dict[str, BaseIndex] = {}  # by job, what is known of its present base
        self.second: Store | None = None
        self.stats = stats or Stats()
        self.bundle_bytes = backend.bundle_bytes
        self._backend = backend
        self._reads = pacing.UploadPace()

    @classmethod
    def open(
        cls,
        url: str,
        *,
        second: str = "",
        patience: Patience = PATIENCE,
        pace: pacing.UploadPace = pacing.uploads,
        bundle_bytes: int | None = None,
    ) -> Store:
        """The storage at an fsspec URL or a path, and with `second` its mirror. Touches nothing yet.

        `bundle_bytes`: the most bytes of a bundle; 0: no bundles; None: as it suits the storage.

        Raises StorageError for an unknown scheme (naming the nearest known one) or a driver that is not
        installed."""
        _check_scheme(url, shown(url))
        filesystem, root = drivers.connect(url, shown(url), patience, pace)
        stats = Stats()
        backend: Backend
        if _is_local(filesystem):
            backend = LocalBackend(Path(root), pace=pace)
        else:
            backend = RemoteBackend(filesystem, root, patience=patience, stats=stats, pace=pace)
        store = cls(url, backend, stats)
        if bundle_bytes is not None:
            store.bundle_bytes = bundle_bytes
        store.second = cls.open(second, patience=patience, pace=pace) if second else None
        return store

    def slowed(self, reads: pacing.UploadPace) -> Store:
        """This storage, read no faster than that. Connections, statistics and known bases are shared."""
        other = Store(self.url, self._backend, self.stats)
        other.indexes, other.second, other._reads = self.indexes, self.second, reads
        other.bundle_bytes = self.bundle_bytes
        return other

    @property
    def limits(self) -> tuple[str, ...]:
        """What this storage cannot promise, in words."""
        return self._backend.limits

    def put(self, name: str, data: Bytes) -> bool:
        """Create `name`; False if it exists already, which is then left as it is."""
        with self._explained(f"cannot write {name}", writing=True), self.stats.transfer(WRITE):
            made = self._backend.put(name, data)
        if made:
            self.stats.moved(WRITE, len(data))
        return made

    def stage(self, name: str, data: Bytes) -> bool:
        """Like `put`, but a crash of the machine before the next `flush` may tear the content.

        For content that is verified at every read, and that nothing names before that flush."""
        with self._explained(f"cannot write {name}", writing=True), self.stats.transfer(WRITE):
            made = self._backend.stage(name, data)
        if made:
            self.stats.moved(WRITE, len(data))
        return made

    def settle(self, name: str) -> None:
        """Make `name` durable at the next `flush`, whoever put it. Raises FileNotFoundError."""
        with self._explained(f"cannot look at {name}"):
            self._backend.settle(name)

    def replace(self, name: str, data: Bytes) -> None:
        """Give `name` this content at once. For chunks that were found rotten, never for manifests."""
        with self._explained(f"cannot write {name}", writing=True), self.stats.transfer(WRITE):
            self._backend.replace(name, data)
        self.stats.moved(WRITE, len(data))

    def flush(self) -> None:
        """Return when everything that was put survives a crash of the machine."""
        with self._explained("cannot make it durable", writing=True), self.stats.transfer(WRITE):
            self._backend.flush()

    def foresee(self, name: str) -> None:
        """Prepare for a read of `name`; nothing happens if it does not exist.

        If finding a file takes reads of its own, they are made now and do not wait behind bulk reads."""
        with self._explained(f"cannot look at {name}"):
            self._backend.foresee(name)

    def read(self, name: str, limit: int, start: int = 0) -> bytes:
        """The content from byte `start` on, at most `limit` bytes. Raises FileNotFoundError."""
        with self._explained(f"cannot read {name}"), self.stats.transfer(READ):
            content = self._backend.read(name, limit, start)
        self._has_read(len(content))
        return content

    def read_into(self, name: str, target: memoryview, start: int = 0) -> int:
        """Fill `target` from byte `start` on. Returns the bytes found from there on: fewer than the target's
        if the file is short, more if it is longer."""
        with self._explained(f"cannot read {name}"), self.stats.transfer(READ):
            size = self._backend.read_into(name, target, start)
        self._has_read(min(size, len(target)))
        return size

    def size(self, name: str) -> int | None:
        """Bytes stored under `name`; None if it does not exist."""
        with self._explained(f"cannot look at {name}"):
            return self._backend.size(name)

    def folders(self, folder: str) -> Sequence[str]:
        """Names of the folders in a folder."""
        with self._explained(f"cannot list {folder}"):
            return self._backend.folders(folder)

    def walk(self, folder: str) -> Sequence[StoredFile]:
        """All files below a folder at any depth, by name, in one pass: cheaper than asking for each."""
        with self._explained(f"cannot list {folder}"):
            return self._backend.walk(folder)

    def list(self, folder: str) -> list[str]:
        """Names of the files in a folder."""
        with self._explained(f"cannot list {folder}"):
            return self._backend.list(folder)

    def delete(self, name: str) -> None:
        """Remove `name` if it is there."""
        with self._explained(f"cannot delete {name}"):
            self._backend.delete(name)

    def prune(self, folder: str) -> None:
        """Remove empty folders below this one, and itself if it is empty then."""
        with self._explained(f"cannot delete {folder}"):
            self._backend.prune(folder)

    def sweep(self, older_than_s: float = DRAFT_AGE_S) -> int:
        """Remove what killed writers left more than `older_than_s` seconds ago. Returns how many files."""
        with self._explained("cannot sweep drafts"):
            return self._backend.sweep(older_than_s)

    def close(self) -> None:
        """Close connections. What runs or pauses in other threads ends with a StorageError."""
        with self._explained("cannot close"):
            self._backend.close()
        if self.second is not None:
            self.second.close()

    def _has_read(self, nbytes: int) -> None:
        self.stats.moved(READ, nbytes)
        self._reads.take(nbytes)

    @contextmanager
    def _explained(self, doing: str, *, writing: bool = False) -> Iterator[None]:
        try:
            yield
        except CheckpointError:
            raise
        except Exception as error:  # drivers may raise anything; all of it means that the storage failed
            absent = isinstance(error, FileNotFoundError) and not causes.coded(error, "NoSuchBucket")
            if absent and not writing:
                raise
            tried = error.tried if isinstance(error, GaveUpError) else ""
            raise storage_error(self.url, doing, error, tried) from error


def _check_scheme(url: str, shown: str) -> None:
    if not url:
        raise StorageError("storage '': no URL; give one such as file:///checkpoints or s3://bucket/path")
    if "://" not in url:
        return
    head, rest = url.split("://", 1)
    known = [*fsspec.available_protocols(), *fsspec.registry]
    for scheme in head.split("::"):
        if scheme not in known:
            near = difflib.get_close_matches(scheme, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}://?" if near else "supported are file:// and s3://, for example"
            raise StorageError(f"storage {shown}: unknown scheme {scheme!r}; {hint}")
    if head in _LOCAL and not rest.startswith("/"):
        raise StorageError(
            f"storage {shown}: not an absolute path; write {head}:///{shown.split('://', 1)[1]}"
        )


def _is_local(filesystem: Any) -> bool:
    return any(name in _LOCAL for name in drivers.protocols(filesystem))
