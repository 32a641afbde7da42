"""Paint a picture again and again in one place: on a terminal it fits the window, elsewhere it is whole."""

from __future__ import annotations

import re
import shutil
import sys
from datetime import datetime
from typing import TYPE_CHECKING

from controlplane.cli.questions.colours import show
from controlplane.reporting.lines import without_middle
from holdfast.neutral import neutral, raw

if TYPE_CHECKING:
    from controlplane.cli.errors import UnreachableError

CLEAR = "\x1b[H\x1b[2J"
"""Cursor home, then clear."""
NAMES = ("JOB", "NODE", "MEMBER")
"""The columns of tables that are made narrower where a table is wider than the window."""
NAME_LEAST = 16
"""To so many characters: the beginning and the end of a name tell it from others."""
SMALLEST = (40, 4)
"""A window that says it is smaller is taken for one of this size (columns, lines)."""


def paint(text: str, *, whole: bool = False) -> None:
    """Print a picture; on a terminal in the place of the one before. `whole`: cut nothing."""
    if sys.stdout.isatty():
        raw(sys.stdout).write(CLEAR)
        text = text if whole else fit(text, *shutil.get_terminal_size((80, 24)))
    show(text)


class LastPicture:
    """What is shown again and again: while nobody answers, the last picture stays, and says since when."""

    def __init__(self, *, whole: bool) -> None:
        self._whole, self._text, self._since = whole, "", ""

    def show(self, text: str) -> None:
        """Show a new one."""
        self._text, self._since = text, ""
        paint(text, whole=self._whole)

    def stays(self, error: UnreachableError) -> None:
        """Show the last one again, with the reason. Raises the error when there was none."""
        if not self._text:
            raise error
        self._since = self._since or f"{datetime.now():%H:%M:%S}"
        why = f"No answer since {self._since}, trying again; below is what was then."
        paint(f"{why}\n{error}\n\n{self._text}", whole=self._whole)


def fit(text: str, columns: int, lines: int) -> str:
    """Cut a picture to so many columns and lines, the last of which stays free for the cursor.

    The beginning stays: there is what matters most. Names in tables lose their middle first."""
    columns, lines = max(columns, SMALLEST[0]), max(lines, SMALLEST[1])
    blocks = [_narrowed(block.splitlines(), columns) for block in neutral(text).split("\n\n")]
    rows = [_cut(row, columns) for row in "\n\n".join(map("\n".join, blocks)).splitlines()]
    if len(rows) < lines:
        return "\n".join(rows)
    kept = rows[: lines - 2]
    return "\n".join([*kept, f"... {len(rows) - len(kept)} more lines: -o wide"])


def _cut(row: str, columns: int) -> str:
    return row if len(row) <= columns else f"{row[: columns - 3]}..."


def _narrowed(rows: list[str], columns: int) -> list[str]:
    """The rows of a table with narrower names, if it is too wide; of other text, as they are."""
    for heading in NAMES:
        excess = max(map(len, rows), default=0) - columns
        top = next((at for at, row in enumerate(rows) if re.search(rf"(^|  ){heading}(?=  )", row)), None)
        if excess <= 0 or top is None:
            continue
        found = re.search(rf"(?:^|  )({heading} *)  ", rows[top])
        assert found is not None
        begin, end = found.span(1)
        width = max(end - begin - excess, NAME_LEAST)
        if width < end - begin:
            rows = rows[:top] + [
                f"{row[:begin]}{without_middle(row[begin:end].rstrip(), width):{width}}{row[end:]}"
                for row in rows[top:]
            ]
    return rows
