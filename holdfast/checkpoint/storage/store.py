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
    from holdfast.checkpoint.format.names import Bytes, Entry

_LOCAL = ("file", "local")


class Backend(Protocol):
    """What a kind of storage must do. Names are relative and already checked (names.py)."""

    limits: tuple[str, ...]

    def put(self, name: str, data: Bytes) -> bool:
        """Create; False when it exists."""

    def stage(self, name: str, data: Bytes) -> bool:
        """Create, content durable at the next `flush`; False when it exists."""

    def settle(self, name: str) -> None:
        """Have the next `flush` make it durable, whoever put it."""

    def replace(self, name: str, data: Bytes) -> None:
        """Create or overwrite, at once."""

    def flush(self) -> None:
        """Make all that was put durable."""

    def foresee(self, name: str) -> None:
        """It will be read soon, if it is there."""

    def read(self, name: str, limit: int) -> bytes:
        """The first `limit` bytes."""

    def read_into(self, name: str, target: memoryview) -> int:
        """Read into memory; the size found."""

    def size(self, name: str) -> int | None:
        """Bytes, None when absent."""

    def folders(self, folder: str) -> Sequence[str]:
        """Names of the folders in a folder."""

    def walk(self, folder: str) -> Sequence[Entry]:
        """All files at any depth."""

    def list(self, folder: str) -> list[str]:
        """File names in a folder."""

    def delete(self, name: str) -> None:
        """Remove if there."""

    def prune(self, folder: str) -> None:
        """Remove empty folders, from this one down."""

    def sweep(self, older_than_s: float) -> int:
        """Remove drafts older than that; how many."""

    def close(self) -> None:
        """Release what is held; the storage is not used afterwards."""


class Store:
    """One storage. Every failure is a StorageError that names it; a missing name is FileNotFoundError.

    `second`: another storage that may hold the same names, asked where this one lacks or spoilt one."""

    def __init__(self, url: str, backend: Backend, stats: Stats | None = None) -> None:
        self.url = shown(url)
        self.indexes: dict[str, BaseIndex] = {}  # by job: what is known of its present base
        self.second: Store | None = None
        self.stats = stats or Stats()
        self._backend = backend
        self._reads = pacing.Pace()

    @classmethod
    def open(
        cls,
        url: str,
        *,
        second: str = "",
        patience: Patience = PATIENCE,
        pace: pacing.Pace = pacing.uploads,
    ) -> Store:
        """The storage at an fsspec URL, or at a path, and with `second` the one that mirrors it. Touches
        nothing yet. Raises StorageError on an unknown scheme (with the nearest known one) or a driver that is
        not installed."""
        _check_scheme(url, shown(url))
        filesystem, root = drivers.connect(url, shown(url), patience, pace)
        stats = Stats()
        backend: Backend
        if _is_local(filesystem):
            backend = LocalBackend(Path(root), pace=pace)
        else:
            backend = RemoteBackend(filesystem, root, patience=patience, stats=stats, pace=pace)
        store = cls(url, backend, stats)
        store.second = cls.open(second, patience=patience, pace=pace) if second else None
        return store

    def slowed(self, reads: pacing.Pace) -> Store:
        """This storage, read no faster than that. It shares connections, statistics and what is known."""
        other = Store(self.url, self._backend, self.stats)
        other.indexes, other.second, other._reads = self.indexes, self.second, reads
        return other

    @property
    def limits(self) -> tuple[str, ...]:
        """What this storage cannot promise, in words."""
        return self._backend.limits

    def put(self, name: str, data: Bytes) -> bool:
        """Create `name`; False when it exists already, which is then left as it is."""
        with self._explained(f"cannot write {name}", writing=True), self.stats.transfer(WRITE):
            made = self._backend.put(name, data)
        if made:
            self.stats.moved(WRITE, len(data))
        return made

    def stage(self, name: str, data: Bytes) -> bool:
        """Like `put`, but a crash of the machine before the next `flush` may tear the content: for what is
        verified whenever it is read, and named by nothing before that flush."""
        with self._explained(f"cannot write {name}", writing=True), self.stats.transfer(WRITE):
            made = self._backend.stage(name, data)
        if made:
            self.stats.moved(WRITE, len(data))
        return made

    def settle(self, name: str) -> None:
        """Have the next `flush` make `name` durable, whoever put it. Raises FileNotFoundError."""
        with self._explained(f"cannot look at {name}"):
            self._backend.settle(name)

    def replace(self, name: str, data: Bytes) -> None:
        """Give `name` this content, at once. For chunks that were found rotten, never for manifests."""
        with self._explained(f"cannot write {name}", writing=True), self.stats.transfer(WRITE):
            self._backend.replace(name, data)
        self.stats.moved(WRITE, len(data))

    def flush(self) -> None:
        """Returns when all that was put survives a crash of the machine."""
        with self._explained("cannot make it durable", writing=True), self.stats.transfer(WRITE):
            self._backend.flush()

    def foresee(self, name: str) -> None:
        """`name` will be read soon: where finding a file takes reads of its own, they are made now, and do
        not wait behind those of other content. Nothing happens when it is not there."""
        with self._explained(f"cannot look at {name}"):
            self._backend.foresee(name)

    def read(self, name: str, limit: int) -> bytes:
        """The content, at most `limit` bytes. Raises FileNotFoundError."""
        with self._explained(f"cannot read {name}"), self.stats.transfer(READ):
            content = self._backend.read(name, limit)
        self._has_read(len(content))
        return content

    def read_into(self, name: str, target: memoryview) -> int:
        """Fill `target`; the size found, which differs from the target's when the content does not fit it."""
        with self._explained(f"cannot read {name}"), self.stats.transfer(READ):
            size = self._backend.read_into(name, target)
        self._has_read(min(size, len(target)))
        return size

    def size(self, name: str) -> int | None:
        """Bytes stored under `name`, None when there are none."""
        with self._explained(f"cannot look at {name}"):
            return self._backend.size(name)

    def folders(self, folder: str) -> Sequence[str]:
        """Names of the folders in a folder."""
        with self._explained(f"cannot list {folder}"):
            return self._backend.folders(folder)

    def walk(self, folder: str) -> Sequence[Entry]:
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
        """Remove the folders below this one, and itself, as far as nothing is in them."""
        with self._explained(f"cannot delete {folder}"):
            self._backend.prune(folder)

    def sweep(self, older_than_s: float = DRAFT_AGE_S) -> int:
        """Remove what killed writers left behind, older than that; how many files."""
        with self._explained("cannot sweep drafts"):
            return self._backend.sweep(older_than_s)

    def close(self) -> None:
        """Close connections; what runs or pauses in other threads ends with a StorageError."""
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
        except Exception as error:  # drivers raise what they like; all of it means: the storage failed
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
            hint = f"did you mean {near[0]}://?" if near else "file:// and s3:// are known, for example"
            raise StorageError(f"storage {shown}: unknown scheme {scheme!r}; {hint}")
    if head in _LOCAL and not rest.startswith("/"):
        raise StorageError(
            f"storage {shown}: not an absolute path; write {head}:///{shown.split('://', 1)[1]}"
        )


def _is_local(filesystem: Any) -> bool:
    return any(name in _LOCAL for name in drivers.protocols(filesystem))
