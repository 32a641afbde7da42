"""Paint a picture again and again in one place: on a terminal it fits the window, elsewhere it is whole."""

from __future__ import annotations

import shutil
import sys
from datetime import datetime
from typing import TYPE_CHECKING

from controlplane.cli.questions.colours import show
from holdfast.neutral import neutral, raw

if TYPE_CHECKING:
    from controlplane.cli.errors import UnreachableError

CLEAR = "\x1b[H\x1b[2J"
"""Cursor home, then clear."""
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

    The beginning stays: there is what matters most."""
    columns, lines = max(columns, SMALLEST[0]), max(lines, SMALLEST[1])
    rows = [_cut(row, columns) for row in neutral(text).splitlines()]
    if len(rows) < lines:
        return "\n".join(rows)
    kept = rows[: lines - 2]
    return "\n".join([*kept, f"... {len(rows) - len(kept)} more lines: -o wide"])


def _cut(row: str, columns: int) -> str:
    return row if len(row) <= columns else f"{row[: columns - 3]}..."
