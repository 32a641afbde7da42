"""Write a rank's output to its log, and train on when the disk of the log is full. Standard library only."""

from __future__ import annotations

import errno
import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class LogOutput(io.FileIO):
    """A descriptor that is written to. What finds no room on the disk is dropped, counted, and told in the
    log as soon as there is room again: a `print` that fails would end the training."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._lost_bytes = 0

    def write(self, data: Buffer, /) -> int:
        """Write, or drop for want of room. Returns how many bytes are done with. Raises OSError."""
        nbytes = memoryview(data).nbytes
        try:
            if self._lost_bytes:
                told = f"\nholdfast: {self._lost_bytes} bytes of output are lost here: the disk was full\n"
                super().write(told.encode())
                self._lost_bytes = 0
            done = super().write(data) or 0
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            done = 0
        self._lost_bytes += nbytes - done
        return nbytes
