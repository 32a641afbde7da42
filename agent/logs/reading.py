"""Read a part of a log in blocks, while its process may go on writing. Blocking: for a thread."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from agent.host import holes
from controlplane.core.records.logs import NO_END

if TYPE_CHECKING:
    from pathlib import Path

    from controlplane.core.records.logs import ReadLog

BLOCK_BYTES = 32 << 10


class LogSlice:
    """The part of a log that was asked for. `at` is the next byte to read.

    `since_bytes`: nothing before this byte was asked for. Raises OSError when there is nothing to read."""

    def __init__(self, path: Path, order: ReadLog, since_bytes: int) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(self._descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(f"{path} is no regular file")
            end = status.st_size if order.end_bytes == NO_END else min(order.end_bytes, status.st_size)
            first = max(order.from_bytes, since_bytes, holes.begin(self._descriptor))
            self.at = max(first, self._last_lines(first, end, order.tail))
        except BaseException:
            self.close()
            raise
        self._end = NO_END if order.end_bytes == NO_END else order.end_bytes

    def next(self) -> tuple[int, bytes]:
        """The place of the next block, and the block: as much as there is; b"" when there is no more now."""
        self.at = max(self.at, holes.begin(self._descriptor))  # what we were too slow for is gone meanwhile
        nbytes = BLOCK_BYTES if self._end == NO_END else min(BLOCK_BYTES, self._end - self.at)
        data = os.pread(self._descriptor, nbytes, self.at) if nbytes > 0 else b""
        place, self.at = self.at, self.at + len(data)
        return place, data

    def close(self) -> None:
        """Close the log."""
        os.close(self._descriptor)

    def _last_lines(self, first: int, end: int, lines: int) -> int:
        """Where the last `lines` lines before `end` begin, not before `first`."""
        if lines == NO_END:
            return first
        at, found = end, 0
        while at > first:
            begin = max(first, at - BLOCK_BYTES)
            data = os.pread(self._descriptor, at - begin, begin)
            place = len(data)
            while (place := data.rfind(b"\n", 0, place)) >= 0:
                if begin + place + 1 == end:
                    continue  # the end of the last line
                found += 1
                if found == lines:
                    return begin + place + 1
            at = begin
        return first if lines else end
