"""Put together the parts of a Session: the rank's state, and the components that act on it.

A component receives the RankState and the components it needs, never the Runtime. The functions of this
package, which drive a rank through steps and generations, receive the Runtime if they need several."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Protocol

from holdfast.agreement.beginnings import Beginnings
from holdfast.agreement.collectives import CollectiveProof
from holdfast.agreement.equality import Equality
from holdfast.agreement.generators import Generators
from holdfast.agreement.snapshot_turns import SnapshotTurns
from holdfast.anatomy.calls import ModuleCalls
from holdfast.anatomy.facts import FactsWriter
from holdfast.anatomy.memory import used
from holdfast.anatomy.phases import COMMUNICATION
from holdfast.anatomy.recorder import StepRecorder
from holdfast.clean.again.made_again import CalledAgain
from holdfast.clean.forgotten import ForgottenState
from holdfast.clean.guard import Guard
from holdfast.data import drawn
from holdfast.data.streams import SampleStreams
from holdfast.groups import flight_recorder, waiting
from holdfast.groups.groups import Groups, choose_backend
from holdfast.ipc import traces
from holdfast.ipc.pages.slow_steps import SlowStepsPage
from holdfast.ipc.progress_marks import ProgressMarks
from holdfast.ipc.rank_facts import RankFactsPage
from holdfast.ipc.step_times import StepTimesPage
from holdfast.rank_state import RankState
from holdfast.reentry import snapshotting
from holdfast.reentry.callbacks import AfterStep, FormationCallbacks
from holdfast.reentry.checkpoint_requests import CheckpointRequests
from holdfast.reentry.misuse import MisuseChecks
from holdfast.replay.running import StepReplay
from holdfast.snapshots.snapshot import SnapshotWriter
from holdfast.snapshots.spacing import Spacing
from holdfast.state import functions
from holdfast.state.tracked import TrackedState
from holdfast.telemetry import own_reports
from holdfast.telemetry.gradient_watch import GradientWatch
from holdfast.telemetry.numeric_anomalies import NumericAnomalies
from holdfast.telemetry.profiling import StepProfiler
from holdfast.telemetry.reporting import Reports
from holdfast.telemetry.step_loss import StepLoss
from holdfast.telemetry.training_end import TrainingEnd

if TYPE_CHECKING:
    import torch

    from holdfast.environment import Environment
    from holdfast.ipc.progress_page import ProgressPage
    from holdfast.state.functions import Functions


class BegunSteps(Protocol):
    """A loop over steps (step_loop.py), as far as its owner needs it."""

    total: int
    running: bool

    def left(self) -> bool:
        """Whether there are steps left."""

    def begin(self) -> int:
        """Begin the next step, and return its number."""

    def end(self) -> None:
        """Complete it."""

    def leave(self) -> None:
        """Leave the loop."""


class Runtime:
    """One rank's state and components. The arguments are Session's."""

    def __init__(
        self,
        environment: Environment,
        *,
        seed: int | None,
        backend: str | None,
        data_change: str,
        total_steps: int | None,
    ) -> None:
        state = self.state = _state(environment, seed, choose_backend(backend))
        self.generators = Generators(state) if seed is None else None
        if self.generators is not None:
            state.snapshots.random = self.generators.found
        ask_for_room = functools.partial(snapshotting.ask_for_room, state)
        self.turns = SnapshotTurns(state)
        self.streams = SampleStreams(state, data_change)
        state.tracked.contract = self.streams.text
        self.replay = StepReplay(state, self.streams)
        self.anomalies = NumericAnomalies(state)
        self.gradients = GradientWatch(
            state, self.anomalies.notice, functools.partial(drawn.described, self.streams)
        )
        self.anomalies.on_notice = self.gradients.noticed
        state.guard.on_begun = self._before_optimizer
        state.guard.before_writing = functools.partial(snapshotting.settle, state)
        self.reports = Reports()
        self.step_loss = StepLoss(state, self.reports, self.gradients)
        self.training_end = TrainingEnd(state, total_steps)
        state.judge = functools.partial(own_reports.judge, state, self.reports, self.gradients)
        self.profiler = StepProfiler(functools.partial(own_reports.send, state))
        self.collectives = CollectiveProof(state)
        self.mistakes = MisuseChecks(state, self.collectives)
        self.after_step = AfterStep(state)
        self.forgotten = ForgottenState(
            state.tracked, self.streams.placed, functools.partial(self.streams.from_script, "has_workers")
        )
        self.beginnings = Beginnings(state, self.forgotten.values)
        state.tracked.beginnings = self.beginnings.text
        self.equality = Equality(
            state, ask_for_room, self.turns, streams=self.streams.in_use, beginnings=self.beginnings
        )
        self.again = CalledAgain(state, self.forgotten, self.beginnings.made)
        self.formations = FormationCallbacks(state)
        self.own_steps: BegunSteps | None = None  # of a script that begins and ends them itself
        self.requests = CheckpointRequests(state)
        self.calls = ModuleCalls(state.times)
        self.waiting = functools.partial(state.times.within, COMMUNICATION)
        _watch_phases(state, self.calls)
        if state.times.on:
            waiting.around = self.waiting

    def _before_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        self.gradients.before_optimizer(optimizer)  # it may leave the step out
        self.equality.before_optimizer(optimizer)


_groups: dict[str, Groups] = {}
"""By member, the groups of its newest session: a generation may be waiting in them for this process."""


def _groups_of(environment: Environment, backend: str, done: Functions) -> Groups:
    """The groups of the previous session if they can be used, else new ones."""
    found = _groups.get(environment.member) if environment.agent_socket else None
    if found is None or found.backend != backend:
        found, done.joined = Groups(environment.address, backend), None
    if environment.agent_socket:
        _groups[environment.member] = found
    return found


def _state(environment: Environment, seed: int | None, backend: str) -> RankState:
    """The state of a rank that has just made its Session."""
    tracked, page = TrackedState(), environment.open_page()
    done = functions.of(environment.member if environment.agent_socket else "")
    phase, generation = done.place()
    traces.register(environment.page_path)
    flight_recorder.enable()
    state = RankState(
        environment=environment,
        backend=backend,
        seed=seed,
        functions=done,
        tracked=tracked,
        guard=Guard(tracked),
        snapshots=SnapshotWriter(tracked),
        groups=_groups_of(environment, backend, done),
        page=page,
        progress=ProgressMarks(page),
        spacing=_spacing(environment),
        times=_recorder(environment, page, tracked),
        rank=max(environment.rank, 0),
        world_size=environment.world_size,
        generation=generation,
        phase=phase,
        completed=done.completed,
        ended=done.completed,
    )
    state.snapshots.functions = done.text
    state.clean.generation = done.held_in
    return state


def _spacing(environment: Environment) -> Spacing:
    checked = environment.corrupt_acts and environment.check_replicas_every
    return Spacing(environment.snapshot_every, automatic=environment.snapshot_auto, multiple_of=checked or 1)


def _recorder(environment: Environment, page: ProgressPage | None, tracked: TrackedState) -> StepRecorder:
    if page is None or not environment.anatomy:
        return StepRecorder()
    facts = FactsWriter(RankFactsPage(page), lambda: tracked.modules)
    return StepRecorder(StepTimesPage(page), memory=used, facts=facts, slow=SlowStepsPage(page))


def _watch_phases(state: RankState, calls: ModuleCalls) -> None:
    """Show when an optimizer steps, and time it."""

    def begins(_: object) -> None:
        state.progress.show("optimizer")
        if state.times.measuring:
            calls.optimizer_begins()

    def ends(_: object) -> None:
        if state.times.measuring:
            calls.optimizer_ends()
        state.progress.show("tail")

    state.guard.on_optimizer, state.guard.on_tail = begins, ends
