"""Share at which step the training ends: one word in the member's progress page, so that none is half new.

The rank writes it when a loop over steps begins, or whenever a trainer knows more. Standard library only."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.ipc.progress_page import ProgressPage

KINDS = ("none", "job", "loop", "several", "open", "beyond", "trainer")
"""What ends at the step, or why that is not known.

- `none`: no loop over steps has begun. `job`: the script names the steps of the whole job.
- `loop`: the loop that runs ends there; the script has run no other.
- `several`: the script runs several loops, and names no total. `open`: nothing says where the loop ends.
- `beyond`: the loop that runs ends after the total that the script names.
- `trainer`: a trainer says it in units of its own; the step is about right, and gets better."""
NONE, JOB, LOOP, SEVERAL, OPEN, BEYOND, TRAINER = KINDS
OLDER_SDK, NEWER_SDK = "older SDK", "newer SDK"
"""What a reader sees of a rank whose SDK does not write the word, and of one whose kind it does not know."""
STEP_MAX = 1 << 53
_KIND_BITS = 4


def write(page: ProgressPage, kind: str, step: int = 0) -> None:
    """Write what ends, and at which step of the job; 0: not known. Only the rank itself may call it."""
    page.ends = min(max(step, 0), STEP_MAX) << _KIND_BITS | KINDS.index(kind)


def read(page: ProgressPage) -> tuple[str, int]:
    """What ends, and at which step of the job; 0: not known. No word is an error."""
    word = page.ends
    if word < 0:
        return OLDER_SDK, 0
    number, step = word & (1 << _KIND_BITS) - 1, word >> _KIND_BITS
    if number >= len(KINDS) or step > STEP_MAX:
        return NEWER_SDK, 0
    kind = KINDS[number]
    return kind, step if kind in (JOB, LOOP, TRAINER) else 0
