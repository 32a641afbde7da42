"""Describe one member of a node: its status, and the orders for it as levels.

A level is the newest order of its kind, kept until its effect is seen. It is repeated with every hello of the
rank, so a lost message costs a reconnect and no protocol. Statuses are levels too: every beat carries all of
them to the leader."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from controlplane.core.records.model import NO_STEP, MemberPhase, MemberStatus
from holdfast.ipc.messages import agent as agent_msg

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controlplane.core.records import events
    from controlplane.core.records.effects import Launch
    from controlplane.core.records.model import Generation, JobSpec, Placement

FORMED = (MemberPhase.FORMING, MemberPhase.RUNNING, MemberPhase.FINISHED)
"""Phases in which a status names the generation that its member has formed."""

_EARLY = (MemberPhase.LAUNCHED, MemberPhase.WARM)


@dataclass(slots=True)
class LocalMember:
    """One member of the node, with the newest order of each kind for it.

    Generation numbers start at 1; 0 stands for none."""

    status: MemberStatus
    page: Any = None
    """Its progress page in shared memory, owned by the daemon; None when it has none."""
    arena: Any = None
    """The arena with its snapshots, owned by the daemon; None when it has none."""
    launch: Launch | None = None
    """The order to launch it, repeated while its process cannot be made; None for a member of an earlier
    agent."""
    spec: JobSpec | None = None
    """The job as it was when this member was launched; None when the record of it is gone."""
    ordered_to_run: bool = False
    """Whether its interpreter was ordered to become the script; until then it only waits, warm."""
    tries: int = 0
    """Failed attempts to make its process; the pause before the next one grows with it."""
    form: Generation | None = None
    """The newest generation that it is ordered to form."""
    formed: int = 0
    """The newest generation that it has acknowledged."""
    interrupt: int = 0
    """The newest generation that it is ordered to leave."""
    interrupt_reason: str = ""
    """Why it must leave that generation."""
    incident: str = ""
    """The incident that the newest interrupt or form is part of; "" for none."""
    complete: agent_msg.Complete | None = None
    """The message that its job is over; None while the job goes on."""
    returned: int = 0
    """The generation from whose elastic function it may return."""
    release: agent_msg.Release | None = None
    """The newest release of snapshots in this generation."""
    kill_reason: str = ""
    """Why the agent killed it; "" when it did not."""
    world_size: int = 0
    """The world size of the generation that it formed last; 0: unknown."""
    last_message_at: float = 0.0
    """When it last sent a message, in s on the clock of `now`."""
    failed_at: float = 0.0
    """When its failure was noted, on the same clock; until then, when it was added."""
    mute: bool = False
    """Its beats have stopped and the leader has been asked what to do with it."""
    reported: dict[str, float] = field(default_factory=dict)
    """The newest value of each number that its script has reported, by name."""
    watches: bool = False
    """It measures its gradients, and its loss with them (`session.watch`)."""
    asks: dict[str, events.CheckpointAsked] = field(default_factory=dict)
    """Its checkpoint requests that no leader has answered yet, by request id."""
    answers: dict[str, agent_msg.CheckpointTold] = field(default_factory=dict)
    """The answers to its checkpoint requests, by request id, for a rank that asks again."""

    @property
    def name(self) -> str:
        """Its name: `<job>.<n>`, never used again for another process."""
        return self.status.member

    @property
    def local_rank(self) -> int:
        """The number of its device on this node; -1: not known."""
        seats = self.form.seats if self.form is not None else ()
        mine = (seat.local_rank for seat in seats if seat.member == self.name)
        return next(mine, self.launch.local_rank if self.launch is not None else -1)

    @property
    def behind(self) -> bool:
        """Whether it may have returned from its elastic function in this generation.

        What it does then is its script's own business, and exit code 0 is right."""
        status = self.status
        return status.phase is MemberPhase.FINISHED and 0 < self.returned == status.generation

    @property
    def alive(self) -> bool:
        """Whether its process is not known to be gone."""
        return self.status.phase is not MemberPhase.EXITED


def recalled(status: MemberStatus, spec: JobSpec | None) -> LocalMember:
    """A member of an earlier agent, as far as its last stored status tells."""
    formed = status.generation if status.phase in FORMED else 0
    # Before FORMING, a status may name the generation under which the member was launched: not one that it
    # formed.
    return LocalMember(status, spec=spec, ordered_to_run=status.phase not in _EARLY, formed=formed)


def survey(status: MemberStatus, held: Sequence[tuple[int, int]]) -> MemberStatus:
    """Enter into a status which snapshots an arena holds.

    `held`: generation and step of each READY one, ascending. The newest goes into `snapshot_*`; an older one
    of the same generation into `snapshot_before`; the newest of an earlier generation into `former_*`. 0 and
    NO_STEP stand for none."""
    generation, step = held[-1] if held else (0, NO_STEP)
    before = [earlier for origin, earlier in held[:-1] if origin == generation and earlier < step]
    former = next(((origin, left) for origin, left in held[:-1] if 0 < origin < generation), (0, NO_STEP))
    return dataclasses.replace(
        status,
        snapshot_step=step,
        snapshot_generation=generation,
        snapshot_before=max(before, default=NO_STEP),
        former_step=former[1],
        former_generation=former[0],
    )


def return_message(member: LocalMember) -> agent_msg.Return:
    """The order to return from the elastic function."""
    return agent_msg.Return(member.returned)


def seat_of(member: str, generation: Generation) -> Placement:
    """A member's place in a generation. Raises ValueError when it has none."""
    for seat in generation.seats:
        if seat.member == member:
            return seat
    raise ValueError(f"{member} has no seat in generation {generation.number}")


def interrupt_message(member: LocalMember) -> agent_msg.Interrupt:
    """The order to leave the newest generation that the member is to leave."""
    return agent_msg.Interrupt(member.interrupt, member.interrupt_reason, member.incident)
