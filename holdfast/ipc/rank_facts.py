"""Share what a rank knows of its work and its device: words in the member's progress page, beside its sums.

They lie apart from the sums of steps (`step_times`), so that agent and SDK of different versions still find
those. The rank writes them about once a second, when it reads its memory. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass, fields
from operator import attrgetter
from typing import TYPE_CHECKING

from holdfast.ipc.sealed_words import SealedWords

if TYPE_CHECKING:
    from holdfast.ipc.progress_page import ProgressPage

FACTS_AT = 3072
"""Offset of the facts in the progress page, in bytes."""

NOTES = (
    "",
    "counted",
    "declared",
    "no tracked module has parameters that are trained",
    "a tracked module has frozen parameters: what they cost is not known; give session.count(flops=...)",
    "the number of its parameters is hidden (FSDP1, ZeRO-3, lazy modules): declare `parameters`",
    "layers, hidden and sequence are not declared (session.declare_compute): attention is not known",
    "the peak of its device is not in the table: declare `peak_flops`",
    "the type that it computes in has no peak in the table (only bfloat16 and float16 have): declare `dtype` "
    "or `peak_flops`",
    "it trains on a CPU, whose peak is not known: declare `peak_flops`",
)
"""What the word `note` says: how the operations of a token and the peak of the device are known, or why not.
New notes are added at the end; an agent shows one that it does not know as unknown."""
COUNTED, DECLARED = NOTES.index("counted"), NOTES.index("declared")
(NO_PARAMETERS, FROZEN, HIDDEN_SHARDS, NO_SHAPE, NO_PEAK, NO_DTYPE, ON_CPU) = range(3, len(NOTES))


@dataclass(frozen=True, slots=True)
class RankFacts:
    """What a rank last knew. 0: not known."""

    token_flops: int = 0  # floating-point operations of one token, forward and backward, in its stage
    peak_flops: int = 0  # of its device, per second, in the type that it computes in
    note: int = 0  # index in NOTES
    compile_ns: int = 0  # sums since the session began, of what the script declares within its steps
    evaluate_ns: int = 0
    checkpoint_ns: int = 0
    memory_limit_bytes: int = 0  # the most that this process could use now: of its GPU, or its container
    memory_reserved_bytes: int = 0  # of a GPU: what torch's allocator holds, used or not
    ran_ns: int = 0  # since the process began: its training thread ran, or waited for a processor
    at_ns: int = 0  # CLOCK_MONOTONIC of `ran_ns`; 0: on a GPU, or the kernel does not tell


NAMES = tuple(field.name for field in fields(RankFacts))
_values = attrgetter(*NAMES)


class RankFactsPage(SealedWords):
    """The facts in one progress page."""

    def __init__(self, page: ProgressPage) -> None:
        super().__init__(page, FACTS_AT, len(NAMES))

    def write(self, facts: RankFacts) -> None:
        """Write the facts. Only the rank itself may call it."""
        self.put(_values(facts))

    def read(self) -> RankFacts | None:
        """The newest facts; None if there are none (an older SDK), or they are written each time we look."""
        words = self.words()
        return RankFacts(*words) if words is not None else None
