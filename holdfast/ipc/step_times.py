"""Share how a rank spends its steps: running sums in the member's progress page.

The rank adds up each complete step and writes the sums, every 2 ms at most; its agent reads them when it
likes, and gets the time spent between two looks by subtraction. So nothing is lost when the agent looks
seldom, and a rank never waits for it. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass, fields
from operator import attrgetter
from typing import TYPE_CHECKING

from holdfast.ipc.sealed_words import SealedWords

if TYPE_CHECKING:
    from holdfast.ipc.progress_page import ProgressPage

PHASES = ("data", "forward", "backward", "communication", "optimizer", "snapshot", "other")
"""What the time of a step is divided into.

`data`: waiting for samples; `communication`: waiting for other ranks, whatever ran beside it is not counted;
`snapshot`: copying state, or waiting for its memory, at the boundary after the step; `other`: everything that
no hook could tell. `forward` (with the loss), `backward` and `optimizer` are the rank's own work. The phases
add up to the wall time."""
SUMS_AT = 2048
"""Offset of the sums in the progress page, in bytes."""
FLOPS_UNIT = 1e6
"""Sums of floating point operations are kept in millions, so that a word holds them."""


@dataclass(frozen=True, slots=True)
class StepSums:
    """Sums over all steps that one process has completed, steps that ran again included. Times in ns.

    If fewer steps are covered than there are, the time of the others is divided as in those (an estimate),
    except for waits that are measured in every step (`holdfast.anatomy`)."""

    steps: int = 0
    last_step: int = -1  # the newest of them
    generation: int = 0  # in which it ran
    wall_ns: int = 0  # from the end of the step before (or the beginning of the loop) to its own end
    data_ns: int = 0
    forward_ns: int = 0
    backward_ns: int = 0
    communication_ns: int = 0
    optimizer_ns: int = 0
    snapshot_ns: int = 0
    other_ns: int = 0
    cpu_ns: int = 0  # CPU time of the main thread in forward, backward and optimizer
    covered: int = 0  # of the steps: those in which hooks told forward from backward
    longest_ns: int = 0  # the longest step so far
    samples: int = 0  # 0: not known
    tokens: int = 0  # as the script declares; 0: not declared
    flops: int = 0  # as the script declares, in units of FLOPS_UNIT; 0: not declared
    memory_bytes: int = 0  # in use now: of the device, or resident memory without one; 0: not known
    memory_peak_bytes: int = 0


NAMES = tuple(field.name for field in fields(StepSums))
"""The fields of StepSums, in the order in which they lie in the page."""
_values = attrgetter(*NAMES)


class StepTimesPage(SealedWords):
    """The sums in one progress page."""

    def __init__(self, page: ProgressPage) -> None:
        super().__init__(page, SUMS_AT, len(NAMES))

    def write(self, sums: StepSums) -> None:
        """Write the sums. Only the rank itself may call it; `put` takes the values of NAMES."""
        self.put(_values(sums))

    def read(self) -> StepSums | None:
        """The newest sums; None if the rank has completed no step, or is writing each time we look."""
        words = self.words()
        return StepSums(*words) if words is not None else None
