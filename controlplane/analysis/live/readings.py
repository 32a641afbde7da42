"""Define what a job's diagnosis is made from: how each rank spent the steps of one window of time.

A window comes every few seconds, with one row per rank that reported. It may have 80,000 of them, so it comes
in columns, as agents report them; whoever has rows makes columns of them (`table.columns_of`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controlplane.analysis.links.measures import LinkMatrix
    from controlplane.analysis.live.resources.storage import NodeStorage
    from controlplane.analysis.robust import Floats
    from controlplane.core.records.diagnosis import GradientReport
    from controlplane.core.records.node_checks import DeviceSign

UNKNOWN = -1
"""The device of a rank, or one of its coordinates, that nobody has told."""


PHASES = ("data", "forward", "backward", "communication", "optimizer", "snapshot", "other")
OWN = ("forward", "backward", "optimizer", "other")
"""A rank's own work: neither waiting for samples or peers, nor copying state."""


class DiskReading(NamedTuple):
    """One file system of a node. `path`: a folder on it; `use`: what is kept there, in words."""

    node: str
    path: str
    use: str
    free_bytes: float
    total_bytes: float


class RankWindow(NamedTuple):
    """How one rank spent the steps that it completed in a window. Durations are sums over `steps`, in s.

    `holdfast.ipc.step_times` defines each phase. 0 for samples, tokens, flops and bytes: not known."""

    rank: int
    member: str
    node: str
    device: int  # local rank on its node; UNKNOWN
    domain: str  # failure domain of the node; "": not known
    dp_rank: int  # coordinates in the layout of the job; 0 where it has one only
    stage: int  # of the pipeline
    cp_rank: int
    tp_rank: int
    generation: int
    steps: int
    last_step: int  # the newest completed step; -1: none
    covered: int  # of the steps: those in which hooks told forward from backward
    wall_s: float
    data_s: float
    forward_s: float
    backward_s: float
    communication_s: float
    optimizer_s: float
    snapshot_s: float
    other_s: float
    cpu_s: float  # CPU time of the main thread in forward, backward and optimizer
    longest_s: float  # the longest step since the process began
    samples: float = 0
    tokens: float = 0
    flops: float = 0.0
    memory_bytes: float = 0
    memory_peak_bytes: float = 0
    memory_limit_bytes: float = 0  # at which the process is killed, or its device is full
    device_used: float = UNKNOWN  # share of the window in which the device computed: 0 to 1; UNKNOWN
    watched_s: float = 0.0  # for how long the kernel's counts were watched; 0: not at all
    ran_s: float = 0.0  # meanwhile, the main thread ran on a CPU
    queued_s: float = 0.0  # meanwhile, a computing thread was ready to run, and did not
    throttled_s: float = 0.0  # meanwhile, the quota of its cgroup held it, or others there, up
    cpu_limit: float = UNKNOWN  # how many CPUs its cgroup may use; 0: no limit; UNKNOWN
    memory_reserved_bytes: float = 0  # of a GPU: what torch's allocator holds, used or not
    compile_s: float = 0.0  # what the script declares within its steps; part of `other_s`
    evaluate_s: float = 0.0
    checkpoint_s: float = 0.0


SeatRow = tuple[Any, ...]
"""The first fields of a `RankWindow`: those in SEAT_FIELDS."""
SEAT_FIELDS = RankWindow._fields[: RankWindow._fields.index("generation")]
NUMBERS = RankWindow._fields[len(SEAT_FIELDS) :]
"""Everything that differs from window to window."""


@dataclass(frozen=True, slots=True)
class RankColumns:
    """The rows of a window as two tables: who each row is about, and its numbers.

    While nobody moves, windows may have the very same `seats`: then nobody looks at them again."""

    seats: Sequence[SeatRow]
    numbers: Floats  # a row for each of `seats`, a column for each of NUMBERS


class SlowRow(NamedTuple):
    """What one rank says of one of its slow steps. Durations in s."""

    rank: int
    node: str
    generation: int
    step: int
    usual_s: float
    wall_s: float
    phases_s: tuple[float, ...]  # in the order of PHASES


@dataclass(frozen=True, slots=True)
class RankWork:
    """What a rank says of its work and its device."""

    rank: int
    token_flops: float  # operations of one token in its pipeline stage; 0: not known
    peak_flops: float  # of its device, per second; 0: not known
    note: str  # how these two are known: "counted" or "declared"; or why one of them is not


class NodeSigns(NamedTuple):
    """What the leader knows of a node that may fail."""

    node: str
    score_ratio: float  # its decayed failure score to the limit of quarantine; 0: no failure
    failures: str = ""  # those that began on it, by cause, in words
    bad_devices: tuple[str, ...] = ()  # unhealthy ones
    held: str = ""  # why it takes no new ranks for a while, or counts as cut off; "": neither
    silent_s: float = 0.0  # its agent beats, and has reported no steps for so long; other nodes do
    devices: tuple[DeviceSign, ...] = ()  # what its sensors show
    not_known: str = "what its sensors show (its agent is older, or has not told yet)"  # "": nothing


@dataclass(frozen=True, slots=True)
class JobWindow:
    """What the ranks of a job have reported for one window of time; the rows come in any order.

    `began_s`, `ended_s`: when, on any clock that does not go back."""

    job: str
    generation: int
    began_s: float
    ended_s: float
    ranks: RankColumns
    ranks_expected: int  # ranks of this generation: 0 to `ranks_expected` - 1
    storage: tuple[NodeStorage, ...] = ()  # traffic of its nodes with their storages, where it is known
    links: LinkMatrix | None = None  # what nodes have measured on their links under suspicion; None: nothing
    work: tuple[RankWork, ...] = ()  # of those ranks that have told what they count and can
    nodes: tuple[NodeSigns, ...] = ()  # those of its ranks of which something is known
    checkpoints: int = 0  # how many were written until now; it begins anew with another leader
    checkpoint_took_s: float = 0.0  # how long the newest of them took
    checkpoint_every_s: float = 0.0  # from the start of one to the next; 0: not known, or it goes by steps
    disks: tuple[DiskReading, ...] = ()  # room on its nodes' file systems, where it is known
    # What ranks say of their end: kind, and step of the job; None: no rank of this generation has reported.
    ends: frozenset[tuple[str, int]] | None = None
    slow: tuple[SlowRow, ...] = ()  # steps that ranks found much slower than usual
    slow_more: int = 0  # such steps of ranks that nobody kept
    gradients: tuple[GradientReport, ...] = ()  # what ranks have measured of single steps


@dataclass(frozen=True, slots=True)
class Unjudged:
    """A rank whose row was left out of the diagnosis, and why."""

    rank: int
    reason: str
