"""Hold what the SDK knows of this rank: its place, how far it has trained, and which state it holds.

There is one `RankState` per Session. Components that act on a rank (reentry, agreement, data, telemetry)
receive it, or parts of it, and never the Session. Only the main thread writes it; the agent client's thread
reads single fields to compose its hello and its beats."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast import coordinates
from holdfast.anatomy.recorder import StepRecorder
from holdfast.errors import Interrupted, SessionError
from holdfast.groups import groups
from holdfast.snapshots.letting_go import LettingGo
from holdfast.snapshots.spacing import Spacing

if TYPE_CHECKING:
    import weakref
    from collections.abc import Callable

    import torch

    from holdfast.clean.guard import Guard
    from holdfast.coordinates import Coordinates
    from holdfast.environment import Environment
    from holdfast.groups.groups import Groups
    from holdfast.ipc.agent_client import AgentClient
    from holdfast.ipc.progress_marks import ProgressMarks
    from holdfast.ipc.progress_page import ProgressPage
    from holdfast.snapshots.snapshot import KeptState, SnapshotWriter
    from holdfast.state.functions import Functions
    from holdfast.state.tracked import TrackedState


@dataclass(slots=True)
class CleanState:
    """The state that this process could give to others: complete, at the boundary of a step."""

    step: int = -1  # completed steps that it holds; -1: no clean state. `held_step` in messages
    generation: int = 0  # the newest generation in which state was restored here; 0: none
    received: bool = False  # it contains steps that another process computed
    overwritten: bool = False  # a restore has begun here: what the script built may be partly gone


@dataclass(slots=True)
class FunctionEntry:
    """The elastic function that this process is in, or was in last."""

    inside: bool = False  # the function is running
    tracks_inside: bool = False  # it tracks its objects itself, again in each generation
    # Restores the state, at the first step or in `restore`; None: that is done.
    pending: Callable[[], None] | None = None
    fresh: bool = False  # the generation began with the function's first step, still incomplete
    last_step: int = -1  # the job's step at which the newest loop over steps ends; -1: no loop yet
    seed: int | None = None  # of the steps of that loop; None: the script seeds
    counted: int = 0  # how far the loops of this call have counted, in this generation
    first: int = -1  # the first rank of this generation that was in the function before; -1: none was
    told_between: bool = False  # the log says that it changes weights between two loops
    kept: KeptState | None = None  # a clean state whose objects are gone (`tracks_inside`)
    # The tracked modules of the previous generation, until they are freed.
    old_modules: list[weakref.ref[torch.nn.Module]] = field(default_factory=list)
    # DDP modules, bound to this generation's groups.
    wrapped: list[weakref.ref[torch.nn.Module]] = field(default_factory=list)
    # Seconds to form, seconds to restore, and when the first step began (monotonic, s); None after that step.
    timing: tuple[float, float, float] | None = None


@dataclass(eq=False)
class RankState:
    """Everything that the SDK knows of one rank. Steps are counted over all elastic functions of the job."""

    environment: Environment
    backend: str  # of torch.distributed
    seed: int | None  # of each step's random numbers; None: the script seeds
    functions: Functions  # which elastic functions are over
    tracked: TrackedState  # the objects whose state is kept
    guard: Guard  # knows with how many completed steps that state is clean
    snapshots: SnapshotWriter  # copies it into the arena
    groups: Groups  # the process groups of the current generation
    page: ProgressPage | None  # where this rank shows its progress; None: nobody watches
    progress: ProgressMarks  # writes that page
    spacing: Spacing = field(default_factory=lambda: Spacing(0))  # how often snapshots are taken
    letting_go: LettingGo = field(default_factory=LettingGo)  # which slot the next one overwrites
    times: StepRecorder = field(default_factory=StepRecorder)  # how its steps are spent
    agent: AgentClient | None = None  # None: training alone
    store_address: str = ""  # "host:port" of this rank's TCPStore; used while it is rank 0

    # place
    rank: int = 0
    world_size: int = 1
    generation: int = 0
    phase: str = "starting"
    chosen_device: torch.device | None = None

    # training
    completed: int = 0  # steps
    ended: int = 0  # steps whose bodies had ended when the newest generation was left
    uncommitted: list[int] = field(default_factory=list)  # complete steps not yet in the sample ledger
    skipped: tuple[tuple[int, int], ...] = ()  # batches [first, end) that no step consumes
    entry: FunctionEntry = field(default_factory=FunctionEntry)
    closed: str = ""  # why the session cannot be used any more; "": it can

    # The layout in a generation, for a place among so many ranks.
    _known_layout: tuple[tuple[int, int, int], Coordinates] | None = None

    replayed_as: int = -1  # the rank whose place it takes while steps are replayed; -1: none are

    # what this rank can give to others
    clean: CleanState = field(default_factory=CleanState)
    shard_id: str = ""  # names the part of the state that this rank holds
    announced_shard: str = ""  # the shard id last reported to the agent
    newest_snapshot: tuple[int, int] = (-1, 0)  # step and generation; (-1, 0): none
    lazy_stall_s: float = 0.0  # what the snapshot that is under way has cost at its boundary
    lazy_waits: bool = False  # the log says that steps wait for lazy copies
    owed_snapshots: int = 0  # snapshots put off because gradients crossed their boundaries
    # Judges what was measured of the steps so far, before a snapshot is taken of their state.
    judge: Callable[[], None] = lambda: None
    numeric_anomaly: bool = False  # a loss was NaN or Inf in this generation: no snapshot is taken
    inexact: list[str] = field(default_factory=list)  # what differs from an undisturbed run, in words

    @property
    def place(self) -> int:
        """The rank whose part of the work is done here: this one's, except in a replay."""
        return self.rank if self.replayed_as < 0 else self.replayed_as

    @property
    def seed_group(self) -> int:
        """The ranks that draw the same random numbers: those of one tensor parallel group."""
        return self.place // self.layout.tp

    @property
    def replaying(self) -> bool:
        """Whether steps run that do not count: they are replayed to learn why replicas differ."""
        return self.replayed_as >= 0

    @property
    def step(self) -> int:
        """Steps completed in the elastic function that runs, or ran last."""
        return self.functions.local(self.completed)

    @property
    def data_step(self) -> int:
        """The number of the data batch that this step consumes: `step`, unless batches are left out."""
        return self.functions.batch(self.completed, self.skipped)

    @property
    def layout(self) -> Coordinates:
        """The rank's coordinates in the job's layout. Raises SessionError before it has a place."""
        self.check_placed("layout")
        now = (self.generation, self.place, self.world_size)
        if self._known_layout is None or self._known_layout[0] != now:
            self._known_layout = now, coordinates.read(os.environ, self.place, self.world_size)
        return self._known_layout[1]

    @property
    def device(self) -> torch.device:
        """The device that the rank computes on."""
        if self.chosen_device is None:
            self.chosen_device = groups.device_for(self.backend, max(self.environment.local_rank, 0))
        return self.chosen_device

    def check_placed(self, what: str) -> None:
        """Raise SessionError for `session.<what>` before this process has a place in a generation."""
        if self.agent is not None and not self.generation:
            raise SessionError(
                f"session.{what}: this process has no rank yet, because a spare may get any: use it in the "
                "function under @session.elastic, or after it"
            )

    def check_interrupted(self) -> None:
        """Raise Interrupted if the current generation is known to be broken."""
        if self.agent is not None and self.agent.interrupted(self.generation):
            raise Interrupted
