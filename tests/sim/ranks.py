"""Simulate rank processes: what the SDK sends its agent, and how it takes what the agent sends.

A rank holds a step counter and a lineage of state. What becomes of its messages is decided by the agent's own
core."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent.deciding.events import Greeted, RankReported
from controlplane.core.records.model import NO_RANK, NO_STEP, WHOLE_STATE, MemberPhase
from holdfast.ipc.messages.rank import Hello, from_rank
from holdfast.snapshots.letting_go import Holding, LettingGo, Slots, Told
from tests.sim.restores import copies_of, owed

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.core.records.model import Generation, JobSpec, Role
    from tests.sim.agents import Agent

IN_GROUP = (MemberPhase.FORMING, MemberPhase.RUNNING, MemberPhase.FINISHED)
WAITS = (MemberPhase.READY, MemberPhase.FINISHED)

COPY_S = 0.1
"""About how long a snapshot is copied beside the next step."""
COPY_FAILS_CHANCE = 0.02
BAD_END_CHANCE = 0.1
"""The chance that a script ends with an error after its function."""

Frame = dict[str, Any]
Slot = tuple[int, int]
"""The generation with which a snapshot is labelled, and its step."""


@dataclass(eq=False)
class Rank:
    """One process. `held`: the steps that its clean state has completed; `line`: the lineage of that
    state."""

    name: str
    spec: JobSpec
    agent: Agent
    role: Role
    phase: MemberPhase = MemberPhase.LAUNCHED
    elastic: bool = True
    generation: int = 0
    rank: int = NO_RANK
    world_size: int = 0  # of the generation that it was last given
    halt: int = 0  # it leaves this generation at the end of its step
    keep: int = 0  # and then takes a snapshot
    held: int = NO_STEP
    board: int = NO_STEP  # the step that it is in, or was in last
    marked_at: float = 0.0  # when it last made progress
    gaps: list[float] = field(default_factory=list)  # between its marks, since its agent's last look
    done: int = 0  # steps whose bodies have ended here
    line: str = ""
    slots: dict[Slot, str] = field(default_factory=dict)  # READY ones -> lineage; outlive the process
    built: bool = False  # it has been in a group, and so knows its shard
    held_in: int = 0  # the generation in which its state was put in place last
    holds: str = ""  # its shard in its newest group
    partial: tuple[str, int, int] = ("", 0, 0)  # checkpoint, share, shares: read for other ranks, too
    ready: set[int] = field(default_factory=set)  # all steps of this lineage of which it took snapshots
    released: int = NO_STEP
    void: int = NO_STEP
    kept_from: int = 0
    letting_go: LettingGo = field(default_factory=LettingGo)
    copying: tuple[Slot, str] | None = None  # a snapshot that is not READY yet, and its lineage
    stopped: bool = False  # SIGSTOP: silent
    hung_in: int = 0  # the generation in which it makes no progress
    wedged: bool = False  # it does not react to orders
    script: bool = False  # it runs the script, or is about to
    fence: int = 0  # generations up to this one are broken
    form: Generation | None = None  # the newest that it is ordered to form
    over: bool | None = None  # the job has ended: well or not
    behind: bool = False  # it may have returned from its function, and runs what the script has after it
    spoken: bool = False  # the SDK has sent its hello
    connected: bool = False
    kept: dict[str, Frame] = field(default_factory=dict)  # sent again after every reconnect
    waiting: list[Frame] = field(default_factory=list)  # sent while there was no agent

    @property
    def alive(self) -> bool:
        """Whether its process lives."""
        return self.phase is not MemberPhase.EXITED

    @property
    def hung(self) -> bool:
        """Whether it makes no progress in its generation."""
        return 0 < self.hung_in == self.generation and self.phase is MemberPhase.RUNNING

    @property
    def word(self) -> str:
        """The shard of the state that it holds."""
        return self.agent.world.word(self.rank, self.world_size)

    @property
    def ended(self) -> int | None:
        """No generation may begin beyond this step; None: its script allows interrupted tails of steps."""
        return self.done if self.agent.world.options.tails and self.held_in else None

    # -------------------------------------------------------------- what it sends

    def say(self, op: str, *, keep: bool = False, **fields: Any) -> None:
        """Send the agent a message; without an agent it waits. `keep`: send it again after every
        reconnect."""
        frame = {"op": op, **fields}
        if keep:
            self.kept.pop(_key(frame), None)
            self.kept[_key(frame)] = frame
        if self.connected:
            self.agent.hear(RankReported(self.name, from_rank(frame)))
        else:
            self.waiting.append(frame)

    def greet(self) -> None:
        """Connect to the agent with a hello, then send what was kept and what waits."""
        if self.connected or not self.alive or self.stopped or not (self.spoken and self.agent.up):
            return
        self.connected = True
        hello = {
            "op": "hello", "store": f"{self.agent.name}:{self.name}", "phase": self.phase.value,
            "generation": self.generation, "step": self.held,
            "held_step": self.held if self.phase in WAITS else NO_STEP, "held_generation": self.held_in,
            "ended_step": self.ended,
        }  # fmt: skip
        self.agent.hear(Greeted(self.name, Hello.decode(hello)))
        waiting = [f for f in self.waiting if self.kept.get(_key(f), f) is f]
        again = [*(f for f in self.kept.values() if not any(f is each for each in waiting)), *waiting]
        self.waiting = []
        for frame in again:
            self.agent.hear(RankReported(self.name, from_rank(frame)))

    def beat(self) -> None:
        """Beat, from the SDK's own thread.

        The network of these schedules loses what a stream would not, so messages that need an answer are sent
        again."""
        if self.connected and not self.stopped:
            self.agent.hear(RankReported(self.name, from_rank({"op": "beat", "step": self.held})))
            for frame in [f for f in self.kept.values() if f["op"] in ("fault", "replicas", "checkpoint")]:
                self.agent.hear(RankReported(self.name, from_rank(frame)))

    def begin(self) -> None:
        """The script has come to the SDK, and waits at the barrier."""
        if self.stopped or self.phase is not MemberPhase.STARTING:
            return
        self.spoken = True
        self.greet()
        if self.agent.world.early_words:
            self._track(self.word)
        elif self.agent.world.silent_word:
            self._track(WHOLE_STATE)
        self.wait()

    def _track(self, word: str) -> None:
        self.say("tracked", keep=True, bytes=self.agent.world.state_bytes, shard=word)

    def wait(self) -> None:
        """Wait at the barrier."""
        self.phase = MemberPhase.READY
        self.kept.pop("finished", None)
        self.say(
            "ready", keep=True, generation=self.generation, held_step=self.held,
            held_generation=self.held_in, step=self.held, ended_step=self.ended,
        )  # fmt: skip
        self._move()

    def placed(self, step: int, line: str, number: int) -> None:
        """Its group has met, and its state is in place."""
        self.held, self.board, self.line, self.phase = step, step, line, MemberPhase.RUNNING
        self.done = step
        self.built, self.holds, self.held_in = True, self.word, number
        self.ready = {s for s in self.ready if s <= step}
        self.letting_go.restart()
        self.marked_at = self.agent.world.clock.now
        self.say("running", generation=number, step=step)
        self._track(self.word)

    def finish(self) -> None:
        """train() has returned: take a snapshot of the final state as soon as there is room."""
        self.phase = MemberPhase.FINISHED
        self.save()
        self.say("finished", keep=True, generation=self.generation, step=self.held)

    def ask(self, request: str) -> None:
        """Ask for a checkpoint of the current state."""
        self.say("checkpoint", keep=True, request=request, step=self.held, generation=self.generation)

    def save(self, *, agreed: bool = False) -> None:
        """Take a snapshot, if a slot may be overwritten. `agreed`: all ranks take this one."""
        self.settle()
        if not agreed:
            self.letting_go.force(self.held)
        if not self._make_room():
            return
        self.copying = ((self.generation, self.held), self.line)
        if agreed and self.letting_go.on:
            self.agent.later(COPY_S, self, self.settle)
        else:
            self.settle()

    def settle(self) -> None:
        """End the copy that is under way. It may have failed."""
        if self.copying is None or self.stopped or not self.alive:
            return
        (slot, line), self.copying = self.copying, None
        if self.letting_go.on and self.agent.world.rng.random() < COPY_FAILS_CHANCE:
            return
        generation, step = slot
        self.slots[slot] = line
        self.ready.add(step)
        if self.letting_go.is_offered(step):
            self.letting_go.offered(step, self.told, self.agent.world.clock.now)
            self.say(
                "snapshot", keep=True, generation=generation, step=step, slot=0, stall_s=0.0,
                offered=self.letting_go.on,
            )  # fmt: skip

    def row(self, completed: int) -> Holding:
        """What it says of its slots in the exchange that precedes a snapshot."""
        told, now = self.told, self.agent.world.clock.now
        size = self.world_size
        return self.letting_go.row(self._slots(), told, completed=completed, world_size=size, now=now)

    @property
    def told(self) -> Told:
        """What it has heard of the coordinator."""
        return Told(self.released, self.void, self.kept_from)

    def _slots(self) -> Slots:
        own = [slot for slot in self.slots if slot[0] == self.generation]
        ready = ((slot[1], (self.name, slot) in self.agent.reads) for slot in own)
        return Slots.of(ready, former=len(own) < len(self.slots), copies=copies_of(self))

    def _make_room(self) -> bool:
        """Empty the slot that may be overwritten (see holdfast.ipc.arena). False: there is none."""
        if (self.generation, self.held) not in self.slots and len(self.slots) == 2:
            chosen = self._overwritable()
            if chosen is None:
                return False
            del self.slots[chosen]
        return True

    @property
    def has_slot(self) -> bool:
        """Whether it could take a snapshot now, and no other node is owed what it would keep."""
        chosen = self._overwritable() if len(self.slots) == 2 else (0, 0)
        return chosen is not None and (chosen != min(self.slots, default=None) or not owed(self))

    def _overwritable(self) -> Slot | None:
        older, newer = sorted(self.slots)
        now = self.agent.world.clock.now
        told = self.letting_go.limits(self._slots(), self.told, now)
        if newer[1] <= told.released:
            chosen = older
        elif newer[0] < self.generation or newer[1] <= told.void:
            chosen = newer
        else:
            return None
        return None if (self.name, chosen) in self.agent.reads else chosen

    def fill(self, step: int, line: str, label: int) -> None:
        """Have an agent put a state into a slot of the arena."""
        if (label, step) not in self.slots and len(self.slots) == 2:
            del self.slots[min(self.slots)]
        self.slots[label, step] = line

    def slot(self, step: int, label: int) -> Slot | None:
        """The slot of a step; the one with this label if both are of that step."""
        found = sorted(slot for slot in self.slots if slot[1] == step)
        return next((slot for slot in found if slot[0] == label), found[-1] if found else None)

    # -------------------------------------------------------------- what it receives

    def hear(self, frame: Frame) -> None:
        """Take a message of the agent: note orders as levels, and follow them where that is possible."""
        if not self.stopped and self.alive:
            HEARD[frame["op"]](self, frame)

    def hear_form(self, generation: Generation) -> None:
        """It has a place in this generation."""
        if self.stopped or not self.alive:
            return
        if self.form is None or generation.number > self.form.number:
            self.form = generation
            self.released = min(self.released, generation.resume.step)
            self.void, self.kept_from = NO_STEP, 0
        self._move()

    def _interrupt(self, frame: Frame) -> None:
        number = frame["generation"]
        if not frame.get("gentle"):
            self.fence = max(self.fence, number)
            self._heed()
        elif self.generation == number and not self.wedged:
            self.halt, self.keep = number, number if frame["keep"] else self.keep

    def _release(self, frame: Frame) -> None:
        if frame["step"] >= self.released:
            self.released, self.kept_from = frame["step"], frame["kept_from"]
        self.void = max(self.void, frame["void"])
        self.room()

    def room(self) -> None:
        """Use the room that there may be now for what waits to be kept."""
        if self.phase is MemberPhase.FINISHED and (self.generation, self.held) not in self.slots:
            self.save()

    def _told(self, frame: Frame) -> None:
        self.kept.pop(f"checkpoint {frame['request']}", None)

    def _return(self, frame: Frame) -> None:
        """Let the script go on, for a moment or long, to a good or a bad end."""
        if self.phase is not MemberPhase.FINISHED or self.generation > frame["generation"] or self.behind:
            return
        world, self.behind = self.agent.world, True
        badly = world.faults_on and world.rng.random() < BAD_END_CHANCE
        longest_s = world.rng.choice((0.1, 3.0))
        if self.held < world.steps and not badly:
            self.agent.later(longest_s, self, self._next)
        else:
            self.agent.later(longest_s, self, lambda: self.agent.exit(self, code=3 if badly else 0))

    def _next(self) -> None:
        """Come to the next function with what the script has built: a state of its own."""
        if not self.stopped:
            self.behind, self.held, self.board = False, self.held + 1, self.held + 1
            self.done = self.held
            self.line = f"{self.line.split(' of ')[0]} of generation {self.generation}"
            self.wait()

    def _complete(self, frame: Frame) -> None:
        self.over = frame["ok"]
        self._move()

    def revive(self) -> None:
        """React to orders again, also to those that it ignored meanwhile."""
        self.wedged = False
        self._heed()

    def _heed(self) -> None:
        """Let its main thread notice that its generation is broken."""
        if self.phase in IN_GROUP and 0 < self.generation <= self.fence and not self.wedged:
            self.agent.later(0.05, self, lambda: self._stop(self.fence))

    def _stop(self, upto: int) -> None:
        world = self.agent.world
        if self.phase not in IN_GROUP or self.generation > upto or self.stopped or self.behind:
            return
        if self.phase is MemberPhase.RUNNING and world.rng.random() < world.dirty_chance:
            self.held = NO_STEP
        self.leave_group()

    def leave_group(self) -> None:
        """Go back to the barrier, with a snapshot of the current state if that was ordered."""
        self.settle()
        if self.keep >= self.generation > 0 and self.held > 0 and not self.stopped:
            self.save()
        self.wait()

    def _move(self) -> None:
        """Go from the barrier into the newest generation, or to the end."""
        form = self.form
        if self.behind:
            return  # its script does not react
        if self.over is not None and (self.phase is MemberPhase.FINISHED or self.phase is MemberPhase.READY):
            well = self.over or self.phase is MemberPhase.FINISHED
            self.agent.later(0.05, self, lambda: self.agent.exit(self, code=0 if well else 1))
        elif form is not None and self.phase is MemberPhase.READY:
            if form.number > max(self.generation, self.fence):
                self._enter(form)

    def _enter(self, form: Generation) -> None:
        seat = next(seat for seat in form.seats if seat.member == self.name)
        for op in ("ready", "fault", "replicas"):
            self.kept.pop(op, None)
        if self.world_size != form.world_size:
            self.built = False  # from now on it holds another part
        self.generation, self.rank, self.world_size = form.number, seat.rank, form.world_size
        self.phase = MemberPhase.FORMING
        self.say("forming", generation=form.number)
        self.agent.world.group(form).join(seat.rank, self)


def _key(frame: Frame) -> str:
    """Key of a message: only the newest of one kind is kept; of those with a request, each."""
    request = frame.get("request")
    return f"{frame['op']} {request}" if request else str(frame["op"])


HEARD: dict[str, Callable[[Rank, Frame], None]] = {
    "interrupt": Rank._interrupt,
    "release": Rank._release,
    "checkpoint_told": Rank._told,
    "return": Rank._return,
    "complete": Rank._complete,
}
