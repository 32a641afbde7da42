"""Paint a picture again and again in one place: on a terminal it fits the window, elsewhere it is whole."""

from __future__ import annotations

import shutil
import sys

from controlplane.cli.questions.colours import show
from holdfast.neutral import neutral, raw

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
