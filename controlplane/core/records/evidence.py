"""Define evidence: a failure, and when it was learned; how replicas compared, and what a replay said."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from controlplane.core.records.model import NO_RANK, Failure


@dataclass(frozen=True, slots=True)
class Evidence:
    """One failure that the core learned of at `learned_at` (s). `member` is "" when no member is dead."""

    learned_at: float
    failure: Failure
    member: str = ""
    node: str = ""
    rank: int = NO_RANK  # NO_RANK: it is about the whole job

    @property
    def injured_at(self) -> float:
        """When (s) the failure is believed to have happened."""
        return self.learned_at - self.failure.age_s


class Origin(StrEnum):
    """What made replicas of the state differ."""

    HARDWARE = "hardware"  # memory, or a device that computes wrongly
    SOFTWARE = "software"  # what the script does
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ReplayAnswer:
    """What made replicas differ. `why`: the row of the table that decided (failures/step_replays.py).

    `ranks`: those whose process, or whose program, it was; (): not known."""

    origin: Origin
    why: str
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplayPass:
    """Which state all ranks held at one time: `ranks` are those that did not hold what most did."""

    kind: str  # see failures/step_replays.py, also for `shift`
    shift: int
    common: str
    ranks: tuple[int, ...] = ()
    digests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplicasReported:
    """Ranks compared their replicas of the state after `step` steps (`--check-replicas-every`).

    `ranks`: those that hold what differs; (): all agree. `odd_ranks`: those of them that differ from the
    majority; (): nobody can say who is right. `tensors`: what differs, and `more` that are not named;
    `digests`: of the first of them, as `rank N: digest`. `uncovered`: state of which there is one copy.
    `replay`: why the steps since were not replayed, or how far that is; `passes`: what it gave."""

    node: str
    incarnation: int
    job: str
    member: str
    generation: int
    step: int
    agreed_step: int  # when all held the same for the last time
    ranks: tuple[int, ...] = ()
    odd_ranks: tuple[int, ...] = ()
    tensors: tuple[str, ...] = ()
    more: int = 0
    digests: tuple[str, ...] = ()
    buffers: bool = False  # only buffers differ, which a script may change on one rank alone, or gradients
    uncovered: tuple[str, ...] = ()
    replay: str = ""  # a code: see failures/step_replays.py
    passes: tuple[ReplayPass, ...] = ()
    gradients: str = ""  # of this step, after they were reduced: "agree", "differ"; "": not compared
