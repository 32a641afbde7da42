"""A file system of fsspec over a folder that fails on demand. It takes the place of failing disks and
networks: only the faults are simulated, the code that meets them is real."""

from __future__ import annotations

import errno
import os
from collections import deque
from typing import Any, ClassVar

import fsspec
from fsspec.implementations.local import LocalFileSystem

SCHEME = "faulty"


class Faulty(LocalFileSystem):  # type: ignore[misc]
    """`plan` says, by operation, how its next calls end: with an errno, an exception, or well (None).
    Writes leave half of their content behind when they fail, as a full disk does."""

    protocol = SCHEME
    cachable = False
    plan: ClassVar[dict[str, deque[int | Exception | None]]] = {}
    calls: ClassVar[dict[str, int]] = {}

    @classmethod
    def fail(cls, operation: str, *faults: int | Exception | None) -> None:
        cls.plan.setdefault(operation, deque()).extend(faults)

    @classmethod
    def reset(cls) -> None:
        cls.plan, cls.calls = {}, {}

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        fault = self._next("pipe_file")
        with self.open(path, "xb" if mode == "create" else "wb") as file:
            file.write(value if fault is None else value[: len(value) // 2])
        self._raise(fault, path)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> Any:
        self._raise(self._next("cat_file"), path)
        return super().cat_file(path, start, end, **kwargs)

    def info(self, path: str, **kwargs: Any) -> Any:
        self._raise(self._next("info"), path)
        return super().info(path, **kwargs)

    def rm_file(self, path: str) -> None:
        self._raise(self._next("rm_file"), path)
        super().rm_file(path)

    def _next(self, operation: str) -> int | Exception | None:
        self.calls[operation] = self.calls.get(operation, 0) + 1
        faults = self.plan.get(operation)
        return faults.popleft() if faults else None

    def _raise(self, fault: int | Exception | None, path: str) -> None:
        if isinstance(fault, Exception):
            raise fault
        if fault is not None:
            raise OSError(fault, os.strerror(fault), path)


fsspec.register_implementation(SCHEME, Faulty, clobber=True)
EIO, ENOSPC, EROFS, ECONNRESET = errno.EIO, errno.ENOSPC, errno.EROFS, errno.ECONNRESET
