"""Remember how far a log had been written at which time, and as which rank of which generation.

What a script prints has no times of its own. So the agent notes the size of each log now and then; a part of
the log that is asked for by time or generation is found by these marks. They are kept in a file beside the
logs, for the next agent. Old marks are thinned out: their number is bounded, however long a job runs."""

from __future__ import annotations

import json
import math
import os
from typing import TYPE_CHECKING

from controlplane.core.records.logs import LogMark
from holdfast import removal

if TYPE_CHECKING:
    from pathlib import Path

MARKS_MAX = 4096
"""With one mark per second these cover about an hour; older ones lie further and further apart."""
CHANGES_SHOWN_MAX = 500
"""Changes of rank or generation that are listed, the newest."""


class LogIndex:
    """The marks of one member's log, ascending."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.marks: list[LogMark] = _read(path)

    @property
    def rank(self) -> int:
        """The last rank that its process had; -1: none."""
        return next((mark.rank for mark in reversed(self.marks) if mark.rank >= 0), -1)

    @property
    def begun_s(self) -> float:
        """When its process was ordered (Unix time)."""
        return self.marks[0].at_s if self.marks else 0.0

    def note(self, mark: LogMark) -> None:
        """Append a mark, if it says anything new. Raises OSError."""
        last = self.marks[-1] if self.marks else None
        if last is not None:
            same = (mark.rank, mark.generation) == (last.rank, last.generation)
            if mark.from_bytes < last.from_bytes or (same and mark.from_bytes == last.from_bytes):
                return
        self.marks.append(mark)
        if len(self.marks) > MARKS_MAX:
            self._thin_out()
        else:
            with self._path.open("a") as file:
                file.write(_line(mark))

    def changes(self) -> tuple[LogMark, ...]:
        """The marks at which the rank or the generation changed, the newest of them."""
        pairs = zip(self.marks, [None, *self.marks], strict=False)
        found = [mark for mark, before in pairs if _new(mark, before)]
        return tuple(found[-CHANGES_SHOWN_MAX:])

    def since(self, at_s: float) -> int:
        """The byte from which on everything was written at this time (Unix, s) or later, as exactly as the
        marks tell: a little more, never less."""
        return max((mark.from_bytes for mark in self.marks if mark.at_s <= at_s), default=0)

    def _thin_out(self) -> None:
        """Drop every second mark that only says when."""
        kept, before = [], None
        for number, mark in enumerate(self.marks):
            if number % 2 or _new(mark, before):
                kept.append(mark)
            before = mark
        self.marks = kept[-MARKS_MAX:]
        draft = self._path.with_name(removal.draft_name(self._path.name))
        draft.write_text("".join(map(_line, self.marks)))
        os.replace(draft, self._path)


def _new(mark: LogMark, before: LogMark | None) -> bool:
    return before is None or (mark.rank, mark.generation) != (before.rank, before.generation)


def _line(mark: LogMark) -> str:
    return json.dumps([mark.from_bytes, mark.at_s, mark.rank, mark.generation]) + "\n"


def _read(path: Path) -> list[LogMark]:
    """The marks in a file; a line that a crash cut off, or that is no mark, is left out."""
    found: list[LogMark] = []
    try:
        lines = path.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return found
    for line in lines:
        try:
            from_bytes, at_s, rank, generation = json.loads(line)
            mark = LogMark(int(from_bytes), float(at_s), int(rank), int(generation))
        except (ValueError, TypeError):
            continue
        if mark.from_bytes >= 0 and math.isfinite(mark.at_s):
            found.append(mark)
    return found
