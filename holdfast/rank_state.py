"""Hold what the SDK knows of this rank: its place, how far it has trained, and which state it holds.

There is one `RankState` per Session. Whatever acts on a rank (reentry, agreement, data, telemetry) is given
it, or less, and never the Session. The main thread alone writes it; the agent client's thread reads single
fields for its hello and its beats."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast import coordinates
from holdfast.errors import Interrupted, SessionError
from holdfast.groups import groups

if TYPE_CHECKING:
    import weakref
    from collections.abc import Callable

    import torch

    from holdfast.clean.guard import Guard
    from holdfast.coordinates import Coordinates
    from holdfast.environment import Environment
    from holdfast.groups.groups import Groups
    from holdfast.ipc.agent_client import AgentClient
    from holdfast.ipc.progress_marks import Progress
    from holdfast.ipc.progress_page import ProgressPage
    from holdfast.snapshots.snapshot import Kept, Snapshots
    from holdfast.state.functions import Functions
    from holdfast.state.tracked import Tracked


@dataclass(slots=True)
class CleanState:
    """The state that this process could give to others: complete, and of a step's boundary."""

    step: int = -1  # completed steps that it holds; -1: there is none. `held_step` in the agent's messages
    generation: int = 0  # the newest generation in which a state was put in place; 0: none was
    received: bool = False  # steps have gone into it that this process did not compute
    overwritten: bool = False  # a state has begun to come in: what the script built may be gone, in part


@dataclass(slots=True)
class Entry:
    """The elastic function that this process is in, or was in last."""

    inside: bool = False  # it runs now
    tracks_inside: bool = False  # it tracks its objects itself, anew in each generation
    pending: Callable[[], None] | None = None  # puts the state in place, with the first step or restore()
    fresh: bool = False  # the generation has begun with the function's first step, which is not complete
    last_step: int = -1  # the job's step with which the newest loop over steps ends
    kept: Kept | None = None  # a clean state that has outlived its objects (`tracks_inside`)
    old_modules: list[weakref.ref[torch.nn.Module]] = field(default_factory=list)  # of the generation before
    wrapped: list[weakref.ref[torch.nn.Module]] = field(
        default_factory=list
    )  # DDP modules, tied to its groups
    timing: tuple[float, float, float] | None = None  # form s, restore s, when it began; until the first step


@dataclass(eq=False)
class RankState:
    """Everything that the SDK knows of one rank. Steps are the job's, over all elastic functions."""

    environment: Environment
    backend: str  # of torch.distributed
    seed: int | None  # of each step's random numbers; None: the script seeds for itself
    functions: Functions  # which elastic functions are over
    tracked: Tracked  # the objects whose state is kept
    guard: Guard  # knows with how many steps that state is clean
    snapshots: Snapshots  # copies it into the arena
    groups: Groups  # the process groups of a generation
    page: ProgressPage | None  # the progress page; None: nobody watches
    progress: Progress  # marks on that page
    agent: AgentClient | None = None  # None: trains alone
    store_address: str = ""  # where this rank serves the TCPStore, for the generations whose rank 0 it is

    # place
    rank: int = 0
    world_size: int = 1
    generation: int = 0
    phase: str = "starting"
    chosen_device: torch.device | None = None

    # training
    completed: int = 0  # steps
    ended: int = 0  # steps whose bodies had ended when the newest generation was left
    uncommitted: list[int] = field(default_factory=list)  # complete steps that the sample ledger has not yet
    skipped: tuple[tuple[int, int], ...] = ()  # batches [first, end) that are left out
    entry: Entry = field(default_factory=Entry)
    closed: str = ""  # why the session cannot be used any more

    # what can be given to others
    clean: CleanState = field(default_factory=CleanState)
    shard_id: str = ""  # of the state that this rank holds
    announced_shard: str = ""  # the shard id that the agent was given
    newest_snapshot: tuple[int, int] = (-1, 0)  # its step and generation
    owed_snapshots: int = 0  # due at boundaries that carried gradients, and put off
    numeric_anomaly: bool = False  # a loss was NaN or Inf in this generation: nothing of it is kept
    inexact: list[str] = field(default_factory=list)  # what is not as it would be in an undisturbed run

    @property
    def step(self) -> int:
        """The completed steps of the elastic function that runs, or ran last."""
        return self.functions.local(self.completed)

    @property
    def data_step(self) -> int:
        """Which batch of the data this step consumes: its own number, unless batches are left out."""
        return self.functions.batch(self.completed, self.skipped)

    @property
    def layout(self) -> Coordinates:
        """The rank's coordinates in the job's layout. Raises SessionError before it has a place."""
        self.check_placed("layout")
        return coordinates.read(os.environ, self.rank, self.world_size)

    @property
    def device(self) -> torch.device:
        """The device that the rank computes on."""
        if self.chosen_device is None:
            self.chosen_device = groups.device_for(self.backend, max(self.environment.local_rank, 0))
        return self.chosen_device

    def check_placed(self, what: str) -> None:
        """Raise SessionError on `session.<what>` before the rank has a place in a generation."""
        if self.agent is not None and not self.generation:
            raise SessionError(
                f"session.{what}: this process has no place yet, a spare may get any: ask for it in the "
                "function under @session.elastic, or after it"
            )

    def check_interrupted(self) -> None:
        """Raise Interrupted when this generation is known to be broken."""
        if self.agent is not None and self.agent.interrupted(self.generation):
            raise Interrupted
