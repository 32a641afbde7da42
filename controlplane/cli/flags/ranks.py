"""An argument type for a list of ranks, as `0,3,8-11`."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_RANKS = re.compile(r"(?P<low>[0-9]{1,6})(-(?P<high>[0-9]{1,6}))?")


def rank_list(most: int) -> Callable[[str], tuple[int, ...]]:
    """Parse `0,3,8-11`, at most so many ranks. The parser raises ArgumentTypeError with what to give."""

    def read(text: str) -> tuple[int, ...]:
        found: set[int] = set()
        for piece in text.split(","):
            match = _RANKS.fullmatch(piece.strip())
            if match is None:
                raise argparse.ArgumentTypeError(f"{piece!r} is no rank: give ranks as 0,3 or 8-11")
            low, high = int(match["low"]), int(match["high"] or match["low"])
            if high < low or high - low >= most:
                raise argparse.ArgumentTypeError(f"{piece!r} is no range of 1 to {most} ranks")
            found.update(range(low, high + 1))
        if len(found) > most:
            raise argparse.ArgumentTypeError(f"{len(found)} ranks: {most} at most")
        return tuple(sorted(found))

    return read
