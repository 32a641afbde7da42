"""Share the newest slow steps of a rank, each with its phases: a row of words in the member's progress page.

The rank writes it when a step is slow, which is seldom; its agent compares the count with that of its last
look, and takes what is new. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass, fields
from operator import attrgetter
from typing import TYPE_CHECKING

from holdfast.ipc.sealed_words import SealedWords

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.ipc.progress_page import ProgressPage

SLOW_AT = 3328
"""Offset of the row in the progress page, in bytes."""
KEPT = 4
"""Slow steps that the page holds: the newest ones."""


@dataclass(frozen=True, slots=True)
class SlowStep:
    """One step that took much longer than usual. Times in ns; phases as in `holdfast.ipc.step_times`."""

    step: int = 0  # the number of the step, from 0 over the whole job
    generation: int = 0
    usual_ns: int = 0  # what a step took before
    wall_ns: int = 0
    data_ns: int = 0
    forward_ns: int = 0
    backward_ns: int = 0
    communication_ns: int = 0
    optimizer_ns: int = 0
    snapshot_ns: int = 0
    other_ns: int = 0


NAMES = tuple(field.name for field in fields(SlowStep))
_values = attrgetter(*NAMES)


class SlowStepsPage(SealedWords):
    """The slow steps in one progress page."""

    def __init__(self, page: ProgressPage) -> None:
        super().__init__(page, SLOW_AT, 1 + KEPT * len(NAMES))

    def write(self, count: int, newest: Sequence[SlowStep]) -> None:
        """Write how many steps were slow since the process began, and the newest, oldest first. Only the rank
        itself may call it."""
        rows = [SlowStep()] * (KEPT - len(newest)) + list(newest)
        self.put((count, *(word for row in rows[-KEPT:] for word in _values(row))))

    def read(self) -> tuple[int, list[SlowStep]]:
        """How many steps were slow, and the newest of them, oldest first; (0, []) if none was, or the row is
        written each time we look."""
        words = self.words()
        if words is None or words[0] <= 0:
            return 0, []
        size = len(NAMES)
        rows = [SlowStep(*words[at : at + size]) for at in range(1, 1 + KEPT * size, size)]
        return words[0], rows[-min(words[0], KEPT) :]
