"""Define what a flight recorder dump says, as checked plain records. Times in ns since 1970, by the rank's
clock; ranks are global."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Progress(StrEnum):
    """How far a rank has come in an operation. `ENDED`: completed, or retired by a backend that records no
    completion."""

    SCHEDULED = "scheduled"
    STARTED = "started"
    ENDED = "ended"


class Gap(StrEnum):
    """Why there is no usable dump of a rank."""

    ABSENT = "absent"
    EMPTY = "empty"
    STALE = "stale"
    UNREADABLE = "unreadable"


class HandleUse(StrEnum):
    """What the script does with a transfer that it has begun: it waits for it, or has; it holds the handle
    and has not waited yet; it has dropped the handle, and gloo gives up what was not transferred by then.
    Where nobody records that (NCCL), what is open counts as waited for."""

    WAITED = "waited"
    HELD = "held"
    DROPPED = "dropped"


Sizes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Transfer:
    """The two ends of a send or receive, as ranks within the group; None: it is not recorded.

    `tag`: what gloo matches both ends by; 0 where the backend knows none. `place`: its number among those
    from source to target with this tag, the same on both ends; 0: not recorded (NCCL)."""

    sends: bool
    source: int | None
    target: int | None
    tag: int = 0
    place: int = 0


@dataclass(frozen=True, slots=True)
class FlightEntry:
    """One recorded operation of one rank.

    `number` counts all operations of the process; `sequence` the collectives of the group; `p2p_sequence` the
    group's sends and receives on this rank."""

    number: int
    group: str  # the rank's own name of the group
    pg_id: int
    sequence: int
    p2p_sequence: int
    operation: str  # without the backend: all_reduce
    progress: Progress
    created_ns: int
    newest_ns: int  # created, started or completed, whichever is last
    input_sizes: Sizes = ()
    output_sizes: Sizes = ()
    input_dtypes: tuple[str, ...] = ()
    output_dtypes: tuple[str, ...] = ()
    transfer: Transfer | None = None
    source: str = ""  # `train.py:41 (step)`, the innermost frame outside of torch; "": not recorded
    timeout_ms: int = 0
    sure_end: bool = True  # False: it has ended, perhaps by failing
    handle: HandleUse = HandleUse.WAITED

    @property
    def open(self) -> bool:
        """Whether the operation has not ended."""
        return self.progress is not Progress.ENDED


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A process group as one rank recorded it. No `ranks`: torch did not record them."""

    name: str
    description: str
    ranks: tuple[int, ...] = ()  # in the order of the group's own ranks


@dataclass(frozen=True, slots=True)
class GroupCounters:
    """torch's counters of one group: the newest operation that was enqueued, and completed."""

    enqueued: int
    completed: int


@dataclass(frozen=True, slots=True)
class FlightDump:
    """The dump of one rank, entries in the order of calls. `counters`: by the process's own id of a group."""

    rank: int
    file: str
    entries: tuple[FlightEntry, ...]
    groups: tuple[GroupRecord, ...] = ()
    counters: dict[int, GroupCounters] = field(default_factory=dict)

    @property
    def newest_ns(self) -> int:
        """When anything was last recorded; 0: nothing was."""
        return max((each.newest_ns for each in self.entries), default=0)


@dataclass(frozen=True, slots=True)
class MissingDump:
    """A rank without a usable dump, and why."""

    rank: int
    why: Gap
    reason: str


@dataclass(frozen=True, slots=True)
class DumpFolder:
    """What a folder of dumps holds: those that could be read, one for each rank, and those that could not."""

    dumps: tuple[FlightDump, ...]
    unreadable: tuple[MissingDump, ...] = ()
