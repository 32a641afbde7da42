"""Name the first of many in a sentence, and say how many more there are."""

from __future__ import annotations

NAMED_MAX = 12


def shown(names: list[str], most: int = NAMED_MAX) -> tuple[str, str]:
    """The first names, and how many more there are."""
    return ", ".join(names[:most]), f" and {len(names) - most} more" if names[most:] else ""
