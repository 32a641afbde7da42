"""Share a rank's progress without a system call: one page of shared memory per member.

The agent creates the file, the rank writes, any process of the node reads. Each field is one aligned 8-byte
word, so a reader sees the old value or the new one, never half of one. It can be read while the rank is
stopped. Standard library only."""

from __future__ import annotations

import mmap
import os
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

PROGRESS_PAGE_BYTES = 4096
_WORD = struct.Struct("=q")
_FIELDS = (
    "generation",  # the rank's generation
    "step",  # the step that runs
    "completed",  # completed steps (its state is clean with this many)
    "phase",  # code of PHASES
    "step_started_ns",  # CLOCK_MONOTONIC
    "completed_ns",  # CLOCK_MONOTONIC of the last completion
    "resumed_generation",  # the newest generation in which it completed a step ...
    "resumed_ns",  # ... and when, for the first such step
    "activity",  # code of ACTIVITIES: what it is doing since the last mark
    "marked_ns",  # CLOCK_MONOTONIC of the last mark
    "limit_ns",  # how long the script allows this activity; 0: not declared
    "marks",  # number of marks; `gaps` gives the newest RING of them
    "ends",  # at which step the training ends (`holdfast.ipc.pages.training_end`)
)
PHASES = ("none", "between", "forward", "optimizer", "tail", "snapshot", "forming", "barrier", "finished")
"""What a rank is doing.

`between`: between two steps; `forward`: forward, backward and all-reduce; `tail`: after the optimizer, within
the step."""
ACTIVITIES = (
    "none", "first", "step", "compile", "checkpoint", "evaluate", "data", "after", "fault",
)  # fmt: skip
"""What a rank's progress is judged as.

`none`: it is not judged; `first`: its first step in a generation; `after`: between the last step and the end
of the function; `fault`: it waits for a decision on a fault. The others are as the script declares them."""
DECLARED = ("compile", "checkpoint", "evaluate", "data")
"""Activities that a script may declare with `session.phase`."""
RING = 64
"""Marks that the page keeps."""
_RING_AT = 1024
_GAP_MAX = (1 << 55) - 1


class ProgressPage:
    """One member's page. Fields are read and written as integers: `page.step = 7`. -1: not set."""

    generation: int
    step: int
    completed: int
    phase: int
    step_started_ns: int
    completed_ns: int
    resumed_generation: int
    resumed_ns: int
    activity: int
    marked_ns: int
    limit_ns: int
    marks: int
    ends: int

    def __init__(self, memory: mmap.mmap) -> None:
        object.__setattr__(self, "_memory", memory)

    @classmethod
    def create(cls, path: Path) -> ProgressPage:
        """Create a page at `path` with mode 0600 and all fields -1. Raises OSError, with the path."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, PROGRESS_PAGE_BYTES)
            page = cls(mmap.mmap(descriptor, PROGRESS_PAGE_BYTES))
        except OSError as error:  # the kernel does not say of which file
            raise OSError(error.errno, os.strerror(error.errno or 0), str(path)) from error
        finally:
            os.close(descriptor)
        for name in _FIELDS:
            setattr(page, name, -1)
        return page

    @classmethod
    def open(cls, path: Path, writable: bool = False) -> ProgressPage:
        """Open the page that another process created. Raises OSError or ValueError if there is none."""
        descriptor = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
        try:
            access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
            return cls(mmap.mmap(descriptor, PROGRESS_PAGE_BYTES, access=access))
        finally:
            os.close(descriptor)

    def mark(self, now_ns: int, activity: int, limit_ns: int = 0) -> None:
        """Record that an activity begins; the time of the one until now goes into the ring of gaps.

        `limit_ns`: how long the script allows it; 0: not declared. The activity `none` breaks off the one
        before. The time of that one is not recorded, because it does not show how long the activity takes."""
        memory: mmap.mmap = self._memory  # type: ignore[attr-defined]
        was, since, _, count = _MARK.unpack_from(memory, _MARK_AT)
        if since > 0 and activity:
            place = _RING_AT + count % RING * _WORD.size
            _WORD.pack_into(memory, place, was << 55 | min(now_ns - since, _GAP_MAX))
            count += 1
        _MARK.pack_into(memory, _MARK_AT, activity, now_ns, limit_ns, max(count, 0))

    def gaps(self, seen: int) -> tuple[int, list[tuple[str, float]]]:
        """The number of marks so far, and (activity, seconds) of those after the first `seen`, at most
        RING."""
        memory: mmap.mmap = self._memory  # type: ignore[attr-defined]
        count, found = self.marks, []
        for index in range(max(seen, count - RING, 0), count):
            (word,) = _WORD.unpack_from(memory, _RING_AT + index % RING * _WORD.size)
            if 0 <= word >> 55 < len(ACTIVITIES):
                found.append((ACTIVITIES[word >> 55], (word & _GAP_MAX) / 1e9))
        return max(count, 0), found

    @property
    def memory(self) -> mmap.mmap:
        """The page's memory, for the parts of it that have a module of their own (`step_times`)."""
        memory: mmap.mmap = self._memory  # type: ignore[attr-defined]
        return memory

    def close(self) -> None:
        """Unmap the page; the file stays."""
        self._memory.close()  # type: ignore[attr-defined]


def _word(index: int) -> property:
    offset = index * _WORD.size

    def read(page: ProgressPage) -> int:
        value: int = _WORD.unpack_from(page._memory, offset)[0]  # type: ignore[attr-defined]
        return value

    def write(page: ProgressPage, value: int) -> None:
        _WORD.pack_into(page._memory, offset, value)  # type: ignore[attr-defined]

    return property(read, write)


_MARK = struct.Struct("=4q")
_MARK_AT = _FIELDS.index("activity") * _WORD.size

for _index, _name in enumerate(_FIELDS):
    setattr(ProgressPage, _name, _word(_index))
