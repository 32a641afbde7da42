"""Wait, while training is held, for what may first need some more of its steps."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HELD_S, FREE_S = 20.0, 3.0
"""How long training is held at a time, and how long it goes on in between."""


def in_some_hold(hold: Path, found: Callable[[], bool]) -> Callable[[], bool]:
    """Begin to hold training (by the file `hold`). Returns whether it is held and `found` is true.

    While a full checkpoint is owed, nothing is deleted before it begins. A hold may have come at just that
    moment: then training makes some more steps, and is held again."""
    turned = time.monotonic()
    hold.touch()

    def look() -> bool:
        nonlocal turned
        if hold.exists() and found():
            return True
        if time.monotonic() - turned > (HELD_S if hold.exists() else FREE_S):
            turned = time.monotonic()
            hold.unlink() if hold.exists() else hold.touch()
        return False

    return look
