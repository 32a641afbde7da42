"""Simulated rank processes and the groups they form. They hold a step counter and a lineage of state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from controlplane.core.model import (
    NO_RANK,
    NO_STEP,
    Cause,
    Failure,
    Generation,
    JobSpec,
    MemberPhase,
    MemberStatus,
    Role,
)
from tests.sim.restores import source_line

if TYPE_CHECKING:
    from tests.sim.agents import Agent
    from tests.sim.world import World

IN_GROUP = (MemberPhase.FORMING, MemberPhase.RUNNING, MemberPhase.FINISHED)


@dataclass(eq=False)
class Rank:
    """One process. `held`: steps its state is clean with; `line`: which run of states that is."""

    name: str
    spec: JobSpec
    agent: Agent
    role: Role
    phase: MemberPhase = MemberPhase.LAUNCHED
    elastic: bool = True
    generation: int = 0
    rank: int = NO_RANK
    world_size: int = 0  # of the generation that it was told of last
    halt: int = 0  # leaves this generation at the end of its step
    keep: int = 0  # and takes a snapshot then
    held: int = NO_STEP
    line: str = ""
    slots: dict[int, str] = field(default_factory=dict)  # step -> lineage; the arena outlives the process
    labels: dict[int, int] = field(default_factory=dict)  # step -> the generation its slot is labelled with
    built: bool = False  # it has been in a group, and so knows what it holds
    held_in: int = 0  # the generation in which its state was put in place last
    holds: str = ""  # the shard that it held in its newest group
    wrong: tuple[int, int] = (0, 0)  # the generation and step in which it found its numbers wrong
    partial: tuple[str, int, int] = ("", 0, 0)  # checkpoint, share, shares: read for others too
    ready: set[int] = field(default_factory=set)  # steps of this line of its life that it ever kept
    asks: dict[str, tuple[int, int]] = field(default_factory=dict)  # request -> (step, generation)
    released: int = NO_STEP
    void: int = NO_STEP
    failure: Failure | None = None
    stopped: bool = False  # SIGSTOP: silent
    hung_in: int = 0  # the generation in which it gets no further
    stalled_in: int = 0  # the generation in which its agent found it past its deadline
    wedged: bool = False  # does not come when it is called
    script: bool = False  # runs the script (or is about to)
    plain_left: int = 0
    fence: int = 0  # generations up to this one are broken
    launched_under: int = 0

    @property
    def alive(self) -> bool:
        """The process is there."""
        return self.phase is not MemberPhase.EXITED

    @property
    def hung(self) -> bool:
        """It gets no further in its generation."""
        return 0 < self.hung_in == self.generation and self.phase is MemberPhase.RUNNING

    @property
    def stalled(self) -> bool:
        """Its agent says that it gets no further."""
        return 0 < self.stalled_in == self.generation and self.phase is MemberPhase.RUNNING

    @property
    def word(self) -> str:
        """Which shard of the state it holds."""
        return self.agent.world.word(self.rank, self.world_size)

    def fill(self, step: int, line: str, label: int) -> None:
        """An agent puts a state into a slot of the arena."""
        if step not in self.slots and len(self.slots) == 2:
            del self.slots[min(self.slots)]
        self.slots[step], self.labels[step] = line, label
        self.agent.report(self)

    def status(self) -> MemberStatus:
        """As its agent reports it."""
        waits = self.phase in (MemberPhase.READY, MemberPhase.FINISHED)
        spoken = self.elastic and self.phase in (MemberPhase.READY, *IN_GROUP)
        held = sorted((self.labels[step], step) for step in self.slots)
        label, newest = held[-1] if held else (0, NO_STEP)
        before = max((step for at, step in held[:-1] if at == label and step < newest), default=NO_STEP)
        former, left = next(((at, step) for at, step in held if at < label), (0, NO_STEP))
        known = self.built or (self.agent.world.early_words and spoken)
        silent = self.agent.world.silent_word if spoken else ""
        return MemberStatus(
            member=self.name,
            job=self.spec.job,
            phase=self.phase,
            elastic=spoken,
            role=self.role,
            generation=max(self.generation, self.launched_under),
            rank=self.rank,
            step=self.held if self.phase is MemberPhase.RUNNING else NO_STEP,
            held_step=self.held if waits else NO_STEP,
            held_generation=self.held_in if waits else 0,
            pid=1,
            store=f"{self.agent.name}:{self.name}" if spoken else "",
            snapshot_step=newest,
            snapshot_generation=label,
            snapshot_before=before,
            former_step=left,
            former_generation=former,
            shard=self.word if known else silent,
            failure=self.failure,
            state_bytes=self.agent.world.state_bytes,
            stalled_s=3.0 if self.stalled else 0.0,
        )

    def finish(self) -> None:
        """train() has returned: the final state is kept as soon as there is room."""
        self.phase = MemberPhase.FINISHED
        self.save()
        self.agent.report(self)

    def save(self) -> None:
        """Take a snapshot, if a slot may be overwritten."""
        if self.snapshot():
            self.agent.snapshot_ready(self, self.held)

    def snapshot(self) -> bool:
        """Copy the state into the slot that may be overwritten; False when neither may."""
        self.ready.add(self.held)
        if self.held in self.slots:
            self.labels[self.held] = self.generation
            return True
        if len(self.slots) == 2:
            newer = max(self.slots)
            if self.released >= newer:
                del self.slots[min(self.slots)]
            elif newer <= self.void:
                del self.slots[newer]
            else:
                self.ready.discard(self.held)
                return False
        self.slots[self.held] = self.line
        self.labels[self.held] = self.generation
        return True


class Group:
    """One generation in the living processes: they meet, restore, and step together."""

    def __init__(self, world: World, generation: Generation) -> None:
        self.world = world
        self.generation = generation
        self.members: dict[int, Rank] = {}
        self.formed = False
        self.line = ""  # of every state that is computed in it

    @property
    def whole(self) -> bool:
        """Every seat is here and can take part in a collective."""
        here = len(self.members) == self.generation.world_size and all(
            rank.phase in IN_GROUP and rank.generation == self.generation.number and not rank.stopped
            for rank in self.members.values()
        )
        return here and not self.parted

    @property
    def parted(self) -> bool:
        """Two of its nodes do not reach each other."""
        nodes = list(dict.fromkeys(rank.agent.name for rank in self.members.values()))
        return not self.world.parts.whole(nodes)

    def join(self, seat: int, rank: Rank) -> None:
        """A rank is at the meeting place."""
        self.members[seat] = rank
        if self.whole and not self.formed:
            self.world.clock.after(self.world.rng.uniform(0.02, 0.2), self._form)

    def _form(self) -> None:
        if not self.whole or self.formed:
            return
        resume = self.generation.resume
        line = source_line(self)
        self.world.safety.formed(self, line)
        self.formed = True
        self.line = f"{line.split(' of ')[0]} of generation {self.generation.number}"
        for rank in self.members.values():
            rank.held, rank.line, rank.phase = resume.step, line, MemberPhase.RUNNING
            rank.built, rank.holds, rank.held_in = True, rank.word, self.generation.number
            rank.slots = {s: ln for s, ln in rank.slots.items() if s <= resume.step}
            rank.ready = {s for s in rank.ready if s <= resume.step}
            rank.agent.report(rank)
            if rank.held >= self.world.steps:
                rank.finish()
        self.world.clock.after(self.world.step_s, self._step)

    def _step(self) -> None:
        """All reduce together; each then finishes its own optimizer a moment later."""
        for rank in self.members.values():
            if rank.halt >= self.generation.number and rank.phase is MemberPhase.RUNNING:
                rank.agent.leave_group(rank)
        if not self.whole or any(r.phase is not MemberPhase.RUNNING for r in self.members.values()):
            self._break()
            return
        if any(rank.hung for rank in self.members.values()):
            self.world.clock.after(self.world.step_s, self._step)
            return
        self.world.safety.stepped(self)
        for rank in self.members.values():
            delay = self.world.rng.uniform(0.0, 0.05)
            self.world.clock.after(delay, lambda r=rank: self._finish(r))  # type: ignore[misc]
        self.world.clock.after(self.world.step_s, self._step)

    def _finish(self, rank: Rank) -> None:
        number = self.generation.number
        if rank.phase is not MemberPhase.RUNNING or rank.generation != number or rank.stopped:
            return
        rank.held, rank.line = rank.held + 1, self.line
        self.world.safety.completed(rank)
        if rank.held == self.generation.resume.step + 1:
            rank.agent.started(rank)
        if rank.held >= self.world.steps:
            rank.finish()
        elif rank.held % rank.spec.snapshot_every == 0 or rank.held in self.world.ask_steps:
            rank.save()
        if rank.held in self.world.ask_steps:
            request = f"{rank.name} at {rank.held} in {number}"
            rank.asks[request] = (rank.held, number)
            rank.agent.ask(rank, request)

    def _break(self) -> None:
        """A peer is gone: some of its neighbours see their connection break, the others hang."""
        silent = any(rank.stopped for rank in self.members.values())
        for rank in self.members.values():
            still = rank.phase is MemberPhase.RUNNING and rank.generation == self.generation.number
            sees = rank.rank == 0 and self.parted  # nobody is dead: somebody's connection breaks at last
            if still and not rank.stopped and not silent and (sees or self.world.rng.random() < 0.5):
                rank.failure = Failure(Cause.BROKEN, "connection closed by peer")
                rank.agent.report(rank)
