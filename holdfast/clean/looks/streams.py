"""Tell how far files, buffers and answers over HTTP are read."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Hashable

READ = "read"


def bits_of(value: Any) -> Hashable:
    """How far this is read, for what nothing is written to; None: it is not known, or no stream."""
    kind = type(value)
    if issubclass(kind, io.BytesIO | io.StringIO):
        return _of_buffer(value)
    return _of_file(value) if issubclass(kind, io.IOBase) else None


def _of_buffer(buffer: Any) -> Hashable:
    """The place in a buffer behind which there is more: it is read, not written to."""
    if buffer.closed:
        return None
    place, binary = buffer.tell(), isinstance(buffer, io.BytesIO)
    size = buffer.getbuffer().nbytes if binary else len(buffer.getvalue())
    return (READ, place) if place < size else None


def _of_file(file: Any) -> Hashable:
    """A text that is iterated over does not say how far it is read; then how much of it has been fetched. A
    pipe does not say it at all: how much waits in it depends on who writes."""
    try:
        if not file.readable() or file.writable():
            return None
        fetched = os.lseek(file.fileno(), 0, os.SEEK_CUR)
    except (OSError, ValueError):  # a pipe, a connection, or closed
        return _of_answer(file)
    try:
        return READ, file.tell()
    except OSError:
        return READ, -1 - fetched


def _of_answer(file: Any) -> Hashable:
    """How much of an answer over HTTP is left, if its sender has said so."""
    left = (vars(file).get(name) for name in _LEFT) if hasattr(file, "__dict__") else ()
    found = tuple(each for each in left if type(each) is int)
    return (READ, *found) if found else None


_LEFT = ("length", "chunk_left", "_fp_bytes_read")
"""Where http.client and urllib3 keep it."""
