"""Describe one member of a node: its status, and the orders for it, kept as levels."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from controlplane.core.records.model import NO_STEP, MemberPhase, MemberStatus
from holdfast.ipc.messages import agent as told

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controlplane.core.records import events
    from controlplane.core.records.effects import Launch
    from controlplane.core.records.model import Generation, JobSpec, Placement

FORMED = (MemberPhase.FORMING, MemberPhase.RUNNING, MemberPhase.FINISHED)
"""Phases in which a status names the generation that its member has formed."""

_EARLY = (MemberPhase.LAUNCHED, MemberPhase.WARM)


@dataclass(slots=True)
class Member:
    """One member, and the orders for it as levels: the newest of each kind."""

    status: MemberStatus
    page: Any = None  # the shell's: its page of shared memory, None without
    arena: Any = None  # the shell's: where its snapshots are, None without
    launch: Launch | None = None
    spec: JobSpec | None = None  # what its job was launched as
    ordered_to_run: bool = False
    tries: int = 0  # in vain, to make its process
    form: Generation | None = None  # the newest it is to form
    formed: int = 0  # the newest it acknowledged
    interrupt: int = 0  # the newest generation it is to leave ...
    interrupt_reason: str = ""  # ... and why
    incident: str = ""  # that the newest interrupt or form is part of
    complete: told.Complete | None = None  # that ends it
    returned: int = 0  # the generation whose function it may return from
    release: told.Release | None = None  # the newest of this generation
    kill_reason: str = ""
    world_size: int = 0  # of the generation that it formed last; 0: not known
    heard_at: float = 0.0  # s of the last word on its gate, on the clock of `now`
    mute: bool = False  # the leader is asked about its silence
    reported: dict[str, float] = field(default_factory=dict)
    asks: dict[str, events.CheckpointAsked] = field(default_factory=dict)  # not answered yet, by request
    answers: dict[str, told.CheckpointTold] = field(default_factory=dict)  # by the request they answer

    @property
    def name(self) -> str:
        """Its name, of all members that ever were."""
        return self.status.member

    @property
    def behind(self) -> bool:
        """Whether it was told to return from its function. What it does then is its own matter, and to exit
        with code 0 is right."""
        status = self.status
        return status.phase is MemberPhase.FINISHED and 0 < self.returned == status.generation

    @property
    def alive(self) -> bool:
        """Whether its process is not known to be gone."""
        return self.status.phase is not MemberPhase.EXITED


def recalled(status: MemberStatus, spec: JobSpec | None) -> Member:
    """A member that an earlier agent knew, as far as its last status tells."""
    formed = status.generation if status.phase in FORMED else 0
    # Before that, a status may name the generation that the member was launched under.
    return Member(status, spec=spec, ordered_to_run=status.phase not in _EARLY, formed=formed)


def survey(status: MemberStatus, held: Sequence[tuple[int, int]]) -> MemberStatus:
    """Set in a status what an arena holds: the newest READY snapshot, and the other one. `held`: generation
    and step of each, ascending."""
    generation, step = held[-1] if held else (0, NO_STEP)
    before = [earlier for born, earlier in held[:-1] if born == generation and earlier < step]
    former = next(((born, left) for born, left in held[:-1] if 0 < born < generation), (0, NO_STEP))
    return dataclasses.replace(
        status,
        snapshot_step=step,
        snapshot_generation=generation,
        snapshot_before=max(before, default=NO_STEP),
        former_step=former[1],
        former_generation=former[0],
    )


def return_message(member: Member) -> told.Return:
    """Have a member return from its elastic function."""
    return told.Return(member.returned)


def seat_of(member: str, generation: Generation) -> Placement:
    """A member's place in a generation. Raises ValueError when it has none."""
    for seat in generation.seats:
        if seat.member == member:
            return seat
    raise ValueError(f"{member} has no seat in generation {generation.number}")


def interrupt_message(member: Member) -> told.Interrupt:
    """Have a member leave the newest generation that it is to leave."""
    return told.Interrupt(member.interrupt, member.interrupt_reason, member.incident)
