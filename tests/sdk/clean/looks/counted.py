"""A module of a script, with a variable that its own functions and classes change."""

from __future__ import annotations

COUNT = 0
NAMES = ["a", "b"]


def count() -> int:
    """How often this was called."""
    global COUNT
    COUNT += 1
    return COUNT


class Mixer:
    """Counts likewise."""

    def rate(self) -> float:
        return 1 / count()
