"""Define what the core remembers of one member: one process, from its launch to its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.core.records import step_beats
from controlplane.core.records.model import NO_RANK, NO_STEP, MemberPhase, Role

if TYPE_CHECKING:
    from controlplane.core.records.effects import Launch
    from controlplane.core.records.model import (
        Failure,
        MemberStatus,
    )
    from controlplane.core.records.step_beats import Steps

_NO_STEPS = (NO_STEP, NO_STEP, NO_STEP)


@dataclass(slots=True)
class Member:
    """One process of a job, rank or spare. `failure` says why it counts as dead.

    A dead member is kept while its agent lists it, for the snapshots in its arena."""

    name: str
    job: str
    node: str
    role: Role
    rank: int = NO_RANK
    # Its order, repeated until its effect is seen; None: not of this leader, or refused.
    launch: Launch | None = None
    # As its agent reported last, but for newer steps; None: not reported yet. Read `status` or `steps`.
    told: MemberStatus | None = None
    _newer: Steps | None = None  # steps newer than those of `told`; None: it has the newest
    words: int = 0  # how many whole statuses it had: grows with each
    kept: tuple[tuple[int, int], ...] = ()  # (generation, step) of the READY slots of its arena, ascending
    # (generation, shard id) that it reported before its id became unknown.
    shard_before: tuple[int, str] = (0, "")
    seen_seq: int = -1  # sequence number of its newest status
    seen_at: float = 0.0  # when (s) its agent last sent its status
    entered: int = 0  # newest generation that it was seen in
    failure: Failure | None = None
    died_at: float = 0.0  # when (s) it was judged dead
    done: bool = False  # it was FINISHED: its exit is no failure
    started: int = 0  # newest generation in which it completed a step
    stop_by: float = 0.0  # since its node came back, it has until then (s) to stop; then it is stuck
    # (generation, when) its status showed a step, without a MemberStarted.
    inferred_start: tuple[int, float] = (0, 0.0)
    waits_for: str = ""  # why its node cannot start it yet, as journaled last; "": nothing
    launch_by: float = 0.0  # its launcher must have started it by then (s); 0: no order was sent yet
    number: int = 0  # order in which members were added to the job
    # Known only from its agent, not from an order or a generation. Until it has a seat, nothing is concluded
    # from it about the job.
    adopted: bool = False

    @property
    def status(self) -> MemberStatus | None:
        """As its agent reported last; None: not reported yet."""
        if self._newer is not None and self.told is not None:
            self.told, self._newer = step_beats.moved(self.told, self._newer), None
        return self.told

    @status.setter
    def status(self, status: MemberStatus | None) -> None:
        self.told, self._newer = status, None
        self.words += 1

    @property
    def steps(self) -> Steps:
        """The steps that its status shows; cheaper than the status, which is made for who reads it."""
        if self._newer is not None:
            return self._newer
        return step_beats.steps_of(self.told) if self.told is not None else _NO_STEPS

    def move(self, steps: Steps) -> None:
        """Take new steps; all else in its status is as before."""
        self._newer = steps

    @property
    def dead(self) -> bool:
        """Whether it was judged dead: it takes no further part."""
        return self.failure is not None

    @property
    def phase(self) -> MemberPhase:
        """As its agent reported last; LAUNCHED before that."""
        return self.told.phase if self.told else MemberPhase.LAUNCHED

    @property
    def generation(self) -> int:
        """The newest generation that it was told to form; 0 when none.

        An agent may report the generation under which a member was launched before it has formed any. That
        one does not count."""
        if self.told is None:
            return 0
        shown = self.told.generation
        if self.entered >= shown:
            return shown
        under = self.launch.generation.number if self.launch and self.launch.generation else 0
        return shown if shown > under else 0

    @property
    def alive(self) -> bool:
        """Whether its process lives, as far as its agent has reported."""
        return self.told is not None and self.told.phase is not MemberPhase.EXITED
