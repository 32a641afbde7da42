"""Use any fsspec file system as storage: retry transient errors, and never wait for ever."""

from __future__ import annotations

import random
import threading
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from fsspec.asyn import AsyncFileSystem
from fsspec.spec import AbstractFileSystem

from holdfast import removal
from holdfast.checkpoint.format import names
from holdfast.checkpoint.format.names import StoredFile
from holdfast.checkpoint.storage import causes, drivers, pacing
from holdfast.checkpoint.storage.retrying import PATIENCE, Attempts, Patience
from holdfast.checkpoint.storage.stats import Stats

if TYPE_CHECKING:
    from holdfast.checkpoint.format.names import Bytes


BUNDLE_BYTES = 56 << 20
"""Seven chunks of 8 MiB. So 1 GiB takes 19 requests, and as many when it is read."""


class RemoteBackend:
    """Files under one path of a file system. A put is durable when it returns."""

    def __init__(
        self,
        filesystem: Any,
        root: str,
        *,
        patience: Patience = PATIENCE,
        stats: Stats | None = None,
        pace: pacing.UploadPace = pacing.uploads,
    ) -> None:
        self.limits = _limits(filesystem)
        self.bundle_bytes = BUNDLE_BYTES if isinstance(filesystem, AsyncFileSystem) else 0
        """On object stores (all of them async) a request takes longer than many bytes."""
        self._files, self._root = filesystem, root.rstrip("/")
        self._patience, self._stats, self._pace = patience, stats or Stats(), pace
        self._stop = threading.Event()
        self._options = drivers.put_options(filesystem)
        self._calls = drivers.StorageCalls(filesystem, self._stop)
        self._random = random.Random()
        self._stale = False  # the credentials were refused: renew them first
        self._renewing = threading.Lock()

    def put(self, name: str, data: Bytes) -> bool:
        """Create `name` with this content; False if it exists."""
        path, content = self._path(name), bytes(data)
        self._pace.take(len(content), self._stop)
        attempts = self._attempts(len(content))

        def create(limit_s: float) -> bool:
            self._parents(path)
            try:
                self._call("pipe_file", limit_s, path, content, mode="create", **self._options)
            except OSError as error:
                if not _exists(error):
                    raise
                return attempts.failed > 0 and self._is_ours(path, content, limit_s)
            return True

        try:
            return attempts.run(create)
        except Exception:
            self._remove_torn(name, content)
            raise

    def stage(self, name: str, data: Bytes) -> bool:
        """The same as `put`."""
        return self.put(name, data)

    def settle(self, name: str) -> None:
        """Do nothing: what is visible is durable."""

    def replace(self, name: str, data: Bytes) -> None:
        """Give `name` this content, whatever it had."""
        path, content = self._path(name), bytes(data)
        self._pace.take(len(content), self._stop)

        def overwrite(limit_s: float) -> None:
            self._parents(path)
            self._call("pipe_file", limit_s, path, content, mode="overwrite", **self._options)

        self._attempts(len(content)).run(overwrite)

    def flush(self) -> None:
        """Do nothing: `put` returns when the storage has acknowledged."""

    def foresee(self, name: str) -> None:
        """Do nothing: a file is found and read in one request."""

    def read(self, name: str, limit: int, start: int) -> bytes:
        """The content from byte `start` on, at most `limit` bytes of it."""
        if limit <= 0:
            return b""
        path = self._path(name)
        return self._attempts(limit).run(lambda limit_s: self._read(path, limit, limit_s, start))

    def read_into(self, name: str, target: memoryview, start: int) -> int:
        """Read into `target`. Returns the bytes from there on, or the target's plus one if there are more."""
        content = self.read(name, len(target) + 1, start)
        fits = min(len(content), len(target))
        target[:fits] = content[:fits]
        return len(content)

    def size(self, name: str) -> int | None:
        """Its size in bytes; None if it does not exist."""
        path = self._path(name)

        def look(limit_s: float) -> int | None:
            self._files.invalidate_cache()
            try:
                found = self._call("info", limit_s, path)
            except FileNotFoundError as error:
                if causes.coded(error, "NoSuchBucket"):
                    raise
                return None
            return int(found["size"]) if found["type"] == "file" else None

        return self._attempts().run(look)

    def walk(self, folder: str) -> list[StoredFile]:
        """All files below a folder, sorted; [] if there is no such folder."""
        path = self._path(folder)

        def entries(limit_s: float) -> list[StoredFile]:
            self._files.invalidate_cache()
            try:
                found = self._call("find", limit_s, path, detail=True)
            except FileNotFoundError as error:
                if causes.coded(error, "NoSuchBucket"):
                    raise
                return []
            skip = len(self._files._strip_protocol(path)) + 1
            return sorted(
                StoredFile(name[skip:], int(info["size"]), _modified_s(info)) for name, info in found.items()
            )

        return self._attempts().run(entries, whole=True)

    def _entries(self, folder: str, kind: str) -> list[str]:
        path = self._path(folder)

        def entries(limit_s: float) -> list[str]:
            self._files.invalidate_cache()
            try:
                found = self._call("ls", limit_s, path, detail=True)
            except FileNotFoundError as error:
                if causes.coded(error, "NoSuchBucket"):
                    raise
                return []
            names = (entry["name"].rstrip("/") for entry in found if entry["type"] == kind)
            return sorted(name.rsplit("/", 1)[-1] for name in names)

        return self._attempts().run(entries, whole=True)

    def folders(self, folder: str) -> list[str]:
        """Names of the folders in a folder; [] if there is no such folder."""
        return self._entries(folder, "directory")

    def list(self, folder: str) -> list[str]:
        """Names of the files in a folder, without the folder; [] if there is no such folder."""
        return self._entries(folder, "file")

    def delete(self, name: str) -> None:
        """Remove it, if it exists."""
        path = self._path(name)

        def remove(operation: str, limit_s: float) -> None:
            try:
                self._call(operation, limit_s, path)
            except FileNotFoundError as error:
                if causes.coded(error, "NoSuchBucket"):
                    raise

        removal.stored(
            name, names.is_ours, lambda how: self._attempts().run(lambda limit_s: remove(how, limit_s))
        )

    def prune(self, folder: str) -> None:
        """Do nothing: folders are only parts of names."""

    def sweep(self, older_than_s: float) -> int:
        """Do nothing: there are no drafts."""
        return 0

    def close(self) -> None:
        """End what runs and every pause, and close the connections. The storage cannot be used afterwards."""
        self._stop.set()
        self._calls.cancel()
        drivers.close(self._files)

    def _attempts(self, nbytes: int = 0) -> Attempts:
        """The attempts of an operation that moves `nbytes`: the more bytes, the more time."""
        patience = self._patience.of(nbytes, self._pace.bytes_per_s)
        return Attempts(patience, self._stats, self._stop, self._random)

    def _call(self, operation: str, limit_s: float, *args: Any, **kwargs: Any) -> Any:
        self._renew(limit_s)
        try:
            return self._calls.call(operation, limit_s, *args, **kwargs)
        except Exception as error:
            self._stale = self._stale or causes.access(error)
            raise

    def _renew(self, limit_s: float) -> None:
        with self._renewing:
            if self._stale:
                drivers.renew(self._calls, self._files, limit_s)
                self._stale = False

    def _read(self, path: str, limit: int, limit_s: float, start: int = 0) -> bytes:
        try:
            content: bytes = self._call("cat_file", limit_s, path, start=start, end=start + limit)
        except OSError as error:
            if causes.coded(error, "InvalidRange", "416"):  # the file ends before that range
                return b""
            raise
        return content[:limit]

    def _is_ours(self, path: str, content: bytes, limit_s: float) -> bool:
        """Whether what exists comes from an attempt of ours whose answer was lost.

        Where files grow while they are written, it may be only the beginning: then the whole replaces it."""
        found = self._read(path, len(content) + 1, limit_s)
        if found == content:
            return True
        if isinstance(self._files, AsyncFileSystem) or not content.startswith(found):
            return False
        self._call("pipe_file", limit_s, path, content, mode="overwrite")
        return True

    def _remove_torn(self, name: str, content: bytes) -> None:
        """Where files grow while they are written, remove the beginning that a failed write has left.

        A name must stand for whole content. (An object store shows an object only when it is complete.)"""
        if isinstance(self._files, AsyncFileSystem):
            return
        path = self._path(name)
        with suppress(OSError):  # the failed write is what gets reported
            found = self._files.cat_file(path)
            if len(found) < len(content) and content.startswith(found):
                removal.stored(name, names.is_ours, lambda how: getattr(self._files, how)(path))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _parents(self, path: str) -> None:
        if not isinstance(self._files, AsyncFileSystem):  # object stores (all of them async) have no folders
            self._files.makedirs(path.rsplit("/", 1)[0], exist_ok=True)


def _modified_s(info: dict[str, Any]) -> float | None:
    for key in ("LastModified", "last_modified", "mtime", "updated", "created"):
        value = info.get(key)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, int | float):
            return float(value)
    return None


def _exists(error: OSError) -> bool:
    return isinstance(error, FileExistsError) or causes.coded(error, "PreconditionFailed", "412")


def _limits(filesystem: Any) -> tuple[str, ...]:
    limits = []
    kind = type(filesystem)
    own = (
        kind._pipe_file is not AsyncFileSystem._pipe_file
        if issubclass(kind, AsyncFileSystem)
        else (kind.pipe_file is not AbstractFileSystem.pipe_file)
    )
    if not own:
        limits.append("two writers of one id at the same moment could overwrite each other")
    if not drivers.awaited(filesystem) and "memory" not in drivers.protocols(filesystem):
        limits.append("a hanging connection is ended only by the driver's own timeouts")
    if "memory" in drivers.protocols(filesystem):
        limits.append("everything stored is lost when this process ends")
    return tuple(limits)
