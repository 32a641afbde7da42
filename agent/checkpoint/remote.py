"""Any other fsspec file system as storage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fsspec.asyn import AsyncFileSystem
from fsspec.spec import AbstractFileSystem

if TYPE_CHECKING:
    from agent.checkpoint.names import Bytes


class RemoteBackend:
    """Files under one path of a file system. A put is durable when it returns."""

    def __init__(self, filesystem: Any, root: str) -> None:
        self._files = filesystem
        self._root = root.rstrip("/")
        self.limits = _limits(filesystem)

    def put(self, name: str, data: Bytes) -> bool:
        """Create `name` with this content; False when it exists."""
        path = self._path(name)
        self._parents(path)
        try:
            self._files.pipe_file(path, bytes(data), mode="create")
        except FileExistsError:
            return False
        return True

    def replace(self, name: str, data: Bytes) -> None:
        """Give `name` this content, whatever it had."""
        path = self._path(name)
        self._parents(path)
        self._files.pipe_file(path, bytes(data), mode="overwrite")

    def flush(self) -> None:
        """Nothing is left to do: `put` returns when the store has acknowledged."""

    def read(self, name: str, limit: int) -> bytes:
        """The content, `limit` bytes of it at most."""
        if limit <= 0:
            return b""
        content: bytes = self._files.cat_file(self._path(name), start=0, end=limit)
        return content[:limit]

    def read_into(self, name: str, target: memoryview) -> int:
        """Read into `target`; its size, or one byte more than the target has when it is longer."""
        content = self.read(name, len(target) + 1)
        fits = min(len(content), len(target))
        target[:fits] = content[:fits]
        return len(content)

    def size(self, name: str) -> int | None:
        """Its size in bytes, None when there is none."""
        self._files.invalidate_cache()
        try:
            size: int | None = self._files.info(self._path(name))["size"]
        except FileNotFoundError:
            return None
        return size

    def list(self, folder: str) -> list[str]:
        """Names of the files in a folder, without the folder; none when there is no such folder."""
        self._files.invalidate_cache()
        try:
            entries = self._files.ls(self._path(folder), detail=True)
        except FileNotFoundError:
            return []
        return sorted(entry["name"].rsplit("/", 1)[-1] for entry in entries if entry["type"] == "file")

    def delete(self, name: str) -> None:
        """Remove it; nothing happens when it is not there."""
        try:
            self._files.rm_file(self._path(name))
        except FileNotFoundError:
            return

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _parents(self, path: str) -> None:
        if not isinstance(self._files, AsyncFileSystem):  # object stores, all of them async, have no folders
            self._files.makedirs(path.rsplit("/", 1)[0], exist_ok=True)


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
    if "memory" in _protocols(filesystem):
        limits.append("what is stored ends with this process")
    return tuple(limits)


def _protocols(filesystem: Any) -> tuple[str, ...]:
    protocol = filesystem.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)
