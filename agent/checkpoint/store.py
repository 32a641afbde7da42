"""Storage: a URL becomes a place that content is put to once, read back from, and never overwritten in."""

from __future__ import annotations

import difflib
import os
import re
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import fsspec

from agent.checkpoint.errors import CheckpointError, StorageError, storage_error
from agent.checkpoint.local import LocalBackend
from agent.checkpoint.remote import RemoteBackend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.checkpoint.chunks import BaseIndex
    from agent.checkpoint.names import Bytes

_PASSWORD = re.compile(r"(?<=://)([^/@:]*):[^/@]*@")
_LOCAL = ("file", "local")


class Backend(Protocol):
    """What a kind of storage must do. Names are relative and already checked (names.py)."""

    limits: tuple[str, ...]

    def put(self, name: str, data: Bytes) -> bool:
        """Create; False when it exists."""

    def replace(self, name: str, data: Bytes) -> None:
        """Create or overwrite, at once."""

    def flush(self) -> None:
        """Make all that was put durable."""

    def read(self, name: str, limit: int) -> bytes:
        """The first `limit` bytes."""

    def read_into(self, name: str, target: memoryview) -> int:
        """Read into memory; the size found."""

    def size(self, name: str) -> int | None:
        """Bytes, None when absent."""

    def list(self, folder: str) -> list[str]:
        """File names in a folder."""

    def delete(self, name: str) -> None:
        """Remove if there."""


class Store:
    """One storage. Every failure is a StorageError that names it; a missing name is FileNotFoundError."""

    def __init__(self, url: str, backend: Backend) -> None:
        self.url = _PASSWORD.sub(r"\1:...@", url)
        self.indexes: dict[str, BaseIndex] = {}  # by job: what is known of its present base
        self._backend = backend

    @classmethod
    def open(cls, url: str) -> Store:
        """The storage at an fsspec URL, or at a path. Touches nothing yet. Raises StorageError on an
        unknown scheme (with the nearest known one) or a driver that is not installed."""
        shown = _PASSWORD.sub(r"\1:...@", url)
        _check_scheme(url, shown)
        try:
            filesystem, root = fsspec.url_to_fs(url)
        except ImportError as error:
            raise StorageError(f"storage {shown}: its driver is missing: {error} (pip install)") from error
        except Exception as error:  # drivers raise what they like over a URL that they cannot use
            raise StorageError(f"storage {shown}: {str(error) or type(error).__name__}") from error
        if _is_local(filesystem):
            return cls(url, LocalBackend(Path(root)))
        return cls(url, RemoteBackend(filesystem, root))

    @property
    def limits(self) -> tuple[str, ...]:
        """What this storage cannot promise, in words."""
        return self._backend.limits

    def put(self, name: str, data: Bytes) -> bool:
        """Create `name`; False when it exists already, which is then left as it is."""
        with self._explained(f"cannot write {name}", writing=True):
            return self._backend.put(name, data)

    def replace(self, name: str, data: Bytes) -> None:
        """Give `name` this content, at once. For chunks that were found rotten, never for manifests."""
        with self._explained(f"cannot write {name}", writing=True):
            self._backend.replace(name, data)

    def flush(self) -> None:
        """Returns when all that was put survives a crash of the machine."""
        with self._explained("cannot make it durable", writing=True):
            self._backend.flush()

    def read(self, name: str, limit: int) -> bytes:
        """The content, at most `limit` bytes. Raises FileNotFoundError."""
        with self._explained(f"cannot read {name}"):
            return self._backend.read(name, limit)

    def read_into(self, name: str, target: memoryview) -> int:
        """Fill `target`; the size found, which differs from the target's when the content does not fit it."""
        with self._explained(f"cannot read {name}"):
            return self._backend.read_into(name, target)

    def size(self, name: str) -> int | None:
        """Bytes stored under `name`, None when there are none."""
        with self._explained(f"cannot look at {name}"):
            return self._backend.size(name)

    def list(self, folder: str) -> list[str]:
        """Names of the files in a folder."""
        with self._explained(f"cannot list {folder}"):
            return self._backend.list(folder)

    def delete(self, name: str) -> None:
        """Remove `name` if it is there."""
        with self._explained(f"cannot delete {name}"):
            self._backend.delete(name)

    @contextmanager
    def _explained(self, doing: str, *, writing: bool = False) -> Iterator[None]:
        try:
            yield
        except CheckpointError:
            raise
        except Exception as error:  # drivers raise what they like; all of it means: the storage failed
            if isinstance(error, FileNotFoundError) and not writing:
                raise
            raise storage_error(self.url, doing, error) from error


@dataclass(frozen=True, slots=True)
class Probe:
    """What a probe found. `limits`: what this storage cannot promise, in words; empty is best."""

    url: str
    limits: tuple[str, ...]


def probe(url: str) -> Probe:
    """Write, read back, create conditionally and delete at `url`. Raises StorageError with url and mend."""
    store = Store.open(url)
    name = f"probe/{uuid.uuid4().hex}"
    first, second = os.urandom(4096), os.urandom(4096)
    try:
        if not store.put(name, first):
            raise StorageError(f"storage {store.url}: says that a name just made up exists")
        store.flush()
        limits = [*store.limits, *_conditional(store, name, first, second)]
        store.delete(name)
        if store.size(name) is not None:
            limits.append("what is deleted stays visible for a while")
    except FileNotFoundError as error:
        raise StorageError(f"storage {store.url}: what was written cannot be found again") from error
    return Probe(store.url, tuple(limits))


def _conditional(store: Store, name: str, first: bytes, second: bytes) -> list[str]:
    if store.read(name, 8192) != first:
        raise StorageError(f"storage {store.url}: gives back other bytes than were written")
    created = store.put(name, second)
    if created or store.read(name, 8192) != first:
        return ["an id that exists can be overwritten: never let two clusters write here"]
    return []


def _check_scheme(url: str, shown: str) -> None:
    if not url:
        raise StorageError("storage '': no URL; give one such as file:///checkpoints or s3://bucket/path")
    if "://" not in url:
        return
    head, rest = url.split("://", 1)
    known = fsspec.available_protocols()
    for scheme in head.split("::"):
        if scheme not in known:
            near = difflib.get_close_matches(scheme, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}://?" if near else "file:// and s3:// are known, for example"
            raise StorageError(f"storage {shown}: unknown scheme {scheme!r}; {hint}")
    if head in _LOCAL and not rest.startswith("/"):
        raise StorageError(f"storage {shown}: not an absolute path; write {head}:///{rest}")


def _is_local(filesystem: Any) -> bool:
    protocol = filesystem.protocol
    return any(name in _LOCAL for name in ((protocol,) if isinstance(protocol, str) else protocol))
