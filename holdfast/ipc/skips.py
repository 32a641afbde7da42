"""Name why a snapshot was not taken: a code that decides, and a reason for people. And how far copies are.

Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum, auto


class SkipKind(Enum):
    """What stands in the way of a snapshot."""

    NO_ARENA = auto()  # the agent has given no shared memory yet
    OUTGROWN = auto()  # the state no longer fits into a slot: a larger arena is asked for
    UNRELEASED = auto()  # the slot to overwrite may be the newest that all ranks have
    BEING_READ = auto()  # the agent reads the slot to overwrite
    BEING_FILLED = auto()  # the agent brings a snapshot into the arena
    REFUSED = auto()  # the agent, the arena or the state itself does not allow one
    ANOMALY = auto()  # the numbers are wrong: nothing of this state is kept
    UNCOPIED = auto()  # other nodes are to have copies of the newer slot, and have none yet


class CopyState(IntEnum):
    """What a rank's arena says of the copies of its newest released snapshot."""

    NONE = 0  # no other node is to keep any, as far as the agent knows
    OWED = 1  # they are on their way to the nodes that are to keep them
    SETTLED = 2  # they have arrived, or one of these nodes is not reached


_PASSING = frozenset({SkipKind.NO_ARENA, SkipKind.OUTGROWN, SkipKind.UNRELEASED, SkipKind.BEING_READ})


@dataclass(frozen=True, slots=True)
class Skip:
    """A snapshot that was not taken."""

    kind: SkipKind
    reason: str

    @property
    def passing(self) -> bool:
        """Whether it may succeed a moment later, without anybody's doing."""
        return self.kind in _PASSING

    def __str__(self) -> str:
        return self.reason


NO_ARENA = Skip(SkipKind.NO_ARENA, "the agent has not provided shared memory yet")
