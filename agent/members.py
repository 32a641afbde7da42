"""The members of a node: one status each, kept where the next agent finds it."""

from __future__ import annotations

import dataclasses
import logging
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent.board import Board
from agent.checkpoint.arena import Arena, SlotState
from agent.checkpoint.shm import ArenaError
from controlplane.core.model import NO_STEP, JobSpec, MemberPhase, MemberStatus
from controlplane.wire import records
from controlplane.wire.shape import WireError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent.checkpoint.arena import SlotView
    from agent.paths import Paths
    from controlplane.core import events
    from controlplane.core.effects import Launch
    from controlplane.core.model import Generation

log = logging.getLogger("holdfast.agent")
ENDED = (MemberPhase.EXITED,)


@dataclass(slots=True)
class Member:
    """One member and what was ordered for it, as levels."""

    status: MemberStatus
    board: Board | None = None
    arena: Arena | None = None
    launch: Launch | None = None
    spec: JobSpec | None = None  # what its job was launched as
    ordered_to_run: bool = False
    form: Generation | None = None  # the newest it is to form
    formed: int = 0  # the newest it acknowledged
    interrupt: int = 0  # the newest generation it is to leave ...
    interrupt_reason: str = ""  # ... and why
    incident: str = ""  # that the newest interrupt or form is part of
    complete: dict[str, Any] | None = None  # the frame that ends it
    release: dict[str, Any] | None = None  # the newest of this generation
    kill_reason: str = ""
    world_size: int = 0  # of the generation that it formed last; 0: not known
    heard_at: float = 0.0  # monotonic s of the last word on its gate
    mute: bool = False  # the leader is asked about its silence
    reported: dict[str, float] = field(default_factory=dict)
    asks: dict[str, events.CheckpointAsked] = field(default_factory=dict)  # not answered yet, by request
    told: dict[str, dict[str, Any]] = field(default_factory=dict)  # frames, by the request they answer

    @property
    def name(self) -> str:
        """Its name, of all members that ever were."""
        return self.status.member

    @property
    def alive(self) -> bool:
        """Whether its process is not known to be gone."""
        return self.status.phase not in ENDED

    def step(self) -> int:
        """The step it is in, by its board."""
        step = self.board.step if self.board is not None else NO_STEP
        return step if step != NO_STEP else self.status.step

    def close(self) -> None:
        """Let go of its memory. The files stay."""
        for memory in (self.board, self.arena):
            if memory is not None:
                memory.close()
        self.board = self.arena = None


class Members:
    """All members of this node. `changed` hears every change of a status."""

    def __init__(self, paths: Paths, changed: Callable[[Member], None]) -> None:
        self._paths, self._changed = paths, changed
        self._all: dict[str, Member] = {}

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self._all.values()))

    def __len__(self) -> int:
        return len(self._all)

    def get(self, name: str) -> Member | None:
        """The member of this name, or None."""
        return self._all.get(name)

    def of(self, job: str) -> list[Member]:
        """The members of a job."""
        return [member for member in self._all.values() if member.status.job == job]

    def statuses(self) -> tuple[MemberStatus, ...]:
        """All statuses as they are now."""
        return tuple(_current(member) for member in self._all.values())

    def asks(self) -> list[events.CheckpointAsked]:
        """Checkpoints that living members' scripts ask for and no leader has told of."""
        return [asked for member in self._all.values() if member.alive for asked in member.asks.values()]

    def status(self, member: Member) -> MemberStatus:
        """One status as it is now."""
        return _current(member)

    def add(self, status: MemberStatus, spec: JobSpec | None = None) -> Member:
        """A new member of a job, with its board. Raises OSError when shared memory is full."""
        member = Member(status, Board.create(self._paths.board(status.member)), spec=spec)
        if spec is not None:
            self._paths.spec(status.member).write_bytes(records.pack(spec))
        self._all[status.member] = member
        self.update(member)
        return member

    def update(self, member: Member, **changes: Any) -> None:
        """Change fields of a status; what differs is kept for the next agent and reported at once."""
        member.status = dataclasses.replace(member.status, **changes)
        self.keep(member)
        self._changed(member)

    def note(self, member: Member, **changes: Any) -> None:
        """Change fields of a status that the next beat may carry."""
        member.status = dataclasses.replace(member.status, **changes)

    def remove(self, member: Member) -> None:
        """Forget a member and remove its shared memory."""
        del self._all[member.name]
        member.close()
        paths = self._paths
        for path in (paths.board, paths.stacks, paths.arena, paths.record, paths.spec):
            path(member.name).unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of all memory. The files stay."""
        for member in self._all.values():
            member.close()

    def recall(self) -> None:
        """Take up what an earlier agent left: statuses, boards, arenas. What cannot be read is removed."""
        for path in sorted(self._paths.memory.glob("*.json")):
            try:
                status = records.unpack(MemberStatus, path.read_bytes())
                member = Member(status, self._board(status.member), self._arena(status.member))
                member.spec = self._spec(status.member)
            except (WireError, OSError, ValueError) as error:
                log.warning("%s is dropped: %s", path, error)
                path.unlink(missing_ok=True)
                continue
            member.ordered_to_run = status.phase not in (MemberPhase.LAUNCHED, MemberPhase.WARM)
            formed = status.phase in (MemberPhase.FORMING, MemberPhase.RUNNING, MemberPhase.FINISHED)
            # Before that, a status may name the generation that the member was launched under.
            member.formed = status.generation if formed else 0
            survey(member)
            self._all[status.member] = member
        for path in self._paths.memory.iterdir():
            if path != self._paths.copies and path.name.rpartition(".")[0] not in self._all:
                path.unlink(missing_ok=True)

    def keep(self, member: Member) -> None:
        """Write a status to where the next agent finds it. Where it cannot be (no shared memory is left), that
        one knows less, and nobody else is harmed."""
        path = self._paths.record(member.name)
        draft = path.with_suffix(".new")
        try:
            draft.write_bytes(records.pack(member.status))
            os.replace(draft, path)
        except OSError as error:
            log.warning("the status of %s is not kept for another agent: %s", member.name, error)

    def _spec(self, name: str) -> JobSpec | None:
        path = self._paths.spec(name)
        return records.unpack(JobSpec, path.read_bytes()) if path.exists() else None

    def _board(self, name: str) -> Board | None:
        path = self._paths.board(name)
        return Board.open(path) if path.exists() else None

    def _arena(self, name: str) -> Arena | None:
        path = self._paths.arena(name)
        if not path.exists():
            return None
        try:
            return Arena.open(path, owner=True)
        except ArenaError as error:
            log.warning("the snapshots of %s are lost: %s", name, error)
            path.unlink()
            return None


def survey(member: Member) -> None:
    """Set in its status what a member's arena holds: the newest READY snapshot, and the other one."""
    try:
        held = _ready(member.arena) if member.arena is not None else []
    except ArenaError as error:
        log.warning("the snapshots of %s are lost: %s", member.name, error)
        held = []
    step, generation = (held[-1].step, held[-1].generation) if held else (NO_STEP, 0)
    before = [slot.step for slot in held[:-1] if slot.generation == generation and slot.step < step]
    former = next((slot for slot in held[:-1] if 0 < slot.generation < generation), None)
    member.status = dataclasses.replace(
        member.status,
        snapshot_step=step,
        snapshot_generation=generation,
        snapshot_before=max(before, default=NO_STEP),
        former_step=former.step if former else NO_STEP,
        former_generation=former.generation if former else 0,
    )


def _ready(arena: Arena) -> list[SlotView]:
    ready = [slot for slot in arena.slots if slot.state == SlotState.READY]
    return sorted(ready, key=lambda slot: (slot.generation, slot.step))


def _current(member: Member) -> MemberStatus:
    return dataclasses.replace(member.status, step=member.step())
