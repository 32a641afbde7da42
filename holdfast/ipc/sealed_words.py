"""Share a row of words in a member's progress page, so that a reader never sees half of a write.

A row does not fit into one aligned word, so a counter stands before and after it, which the writer sets first
and last. A reader looks at the last one first and at the first one last: if both are equal, nothing was
written meanwhile; else it looks again. Standard library only."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.ipc.progress_page import ProgressPage

_WORD = struct.Struct("=q")
_TRIES = 4


class SealedWords:
    """A row of `count` signed words at the offset `at` (bytes) of one progress page."""

    def __init__(self, page: ProgressPage, at: int, count: int) -> None:
        self._memory = page.memory
        self._values, self._layout = struct.Struct(f"={count}q"), struct.Struct(f"={count + 2}q")
        self._first_at, self._at = at, at + _WORD.size
        self._last_at = self._at + self._values.size
        # A session after another one in this process goes on counting.
        (self._count,) = _WORD.unpack_from(self._memory, self._last_at)

    def put(self, values: Sequence[int]) -> None:
        """Write the row. Only the rank itself may call it."""
        self._count += 1
        self._layout.pack_into(self._memory, self._first_at, self._count, *values, self._count)

    def words(self) -> tuple[int, ...] | None:
        """The newest row; None if none was written, or one is being written each time we look."""
        for _ in range(_TRIES):
            (last,) = _WORD.unpack_from(self._memory, self._last_at)
            values = self._values.unpack_from(self._memory, self._at)
            (first,) = _WORD.unpack_from(self._memory, self._first_at)
            if first == last:
                return values if last > 0 else None
        return None
