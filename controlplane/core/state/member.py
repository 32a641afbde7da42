"""Define what the core remembers of one member: one process of one life."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.core.records.model import NO_RANK, MemberPhase, Role

if TYPE_CHECKING:
    from controlplane.core.records.effects import Launch
    from controlplane.core.records.model import (
        Failure,
        MemberStatus,
    )


@dataclass(slots=True)
class Member:
    """One rank process of one life. `failure` says why it counts as dead; dead members keep their place in
    the book while their agent lists them, for the snapshot they left."""

    name: str
    job: str
    node: str
    role: Role
    rank: int = NO_RANK
    launch: Launch | None = None  # repeated until its effect is seen; None for an adopted member
    status: MemberStatus | None = None
    kept: tuple[tuple[int, int], ...] = ()  # (generation, step) of its READY slots, as told last, ascending
    shard_before: tuple[int, str] = (0, "")  # (generation, shard): told before it was to hold another one
    seen_seq: int = -1  # the newest report of it
    seen_at: float = 0.0  # when (s) its agent last spoke of it
    entered: int = 0  # newest generation that it was seen in
    failure: Failure | None = None
    died_at: float = 0.0  # when (s) it was judged dead
    done: bool = False  # FINISHED was seen: its exit is no failure
    started: int = 0  # newest generation in which it completed a step
    stop_by: float = 0.0  # its node came back: it is not killed as stuck before
    inferred_start: tuple[int, float] = (0, 0.0)  # (generation, when) its status showed such a step
    waits_for: str = ""  # what keeps its node from starting it, as was told last
    launch_by: float = 0.0  # its launcher must have started it by then; 0: not asked yet
    number: int = 0  # in which order the book took them in
    adopted: bool = False  # known by its agent's word alone: before it has a seat, it says nothing of the job

    @property
    def dead(self) -> bool:
        """It takes part in nothing any more."""
        return self.failure is not None

    @property
    def phase(self) -> MemberPhase:
        """As its agent said last; LAUNCHED before it has said anything."""
        return self.status.phase if self.status else MemberPhase.LAUNCHED

    @property
    def generation(self) -> int:
        """The newest generation that it was told to form; 0 when none. An agent may show the generation
        that a member was launched under before it has formed any: that one does not count."""
        if self.status is None:
            return 0
        shown = self.status.generation
        if self.entered >= shown:
            return shown
        under = self.launch.generation.number if self.launch and self.launch.generation else 0
        return shown if shown > under else 0

    @property
    def alive(self) -> bool:
        """A process is there, as far as its agent has said."""
        return self.status is not None and self.status.phase is not MemberPhase.EXITED
