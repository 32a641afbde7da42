"""Put together the parts of a Session: the rank's state, and the components that act on it.

A component receives the RankState and the components it needs, never the Runtime. The functions of this
package, which drive a rank through steps and generations, receive the Runtime if they need several."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from holdfast.agreement.equality import Equality
from holdfast.agreement.generators import Generators
from holdfast.clean.guard import Guard
from holdfast.data.streams import SampleStreams
from holdfast.groups import flight_recorder
from holdfast.groups.groups import Groups, choose_backend
from holdfast.ipc import traces
from holdfast.ipc.progress_marks import ProgressMarks
from holdfast.rank_state import RankState
from holdfast.reentry import snapshotting
from holdfast.reentry.after_step import AfterStep
from holdfast.reentry.checkpoint_requests import CheckpointRequests
from holdfast.reentry.collectives import CollectiveProof
from holdfast.reentry.misuse import MisuseChecks
from holdfast.snapshots.snapshot import SnapshotWriter
from holdfast.state import functions
from holdfast.state.tracked import TrackedState
from holdfast.telemetry.numeric_anomalies import NumericAnomalies
from holdfast.telemetry.reporting import Reports

if TYPE_CHECKING:
    from holdfast.environment import Environment
    from holdfast.state.functions import Functions


class Runtime:
    """One rank's state and components. The arguments are Session's."""

    def __init__(
        self, environment: Environment, *, seed: int | None, backend: str | None, data_change: str
    ) -> None:
        state = self.state = _state(environment, seed, choose_backend(backend))
        self.generators = Generators(state) if seed is None else None
        if self.generators is not None:
            state.snapshots.random = self.generators.found
        ask_for_room = functools.partial(snapshotting.ask_for_room, state)
        self.equality = Equality(state, ask_for_room)
        self.streams = SampleStreams(state, data_change)
        state.tracked.contract = self.streams.text
        self.anomalies = NumericAnomalies(state)
        self.reports = Reports()
        self.collectives = CollectiveProof(state)
        self.mistakes = MisuseChecks(state, self.collectives)
        self.after_step = AfterStep(state)
        self.requests = CheckpointRequests(state)


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
        rank=max(environment.rank, 0),
        world_size=environment.world_size,
        generation=generation,
        phase=phase,
        completed=done.completed,
        ended=done.completed,
    )
    state.snapshots.functions = done.text
    state.clean.generation = done.held_in
    state.guard.on_optimizer = lambda _: state.progress.show("optimizer")
    state.guard.on_tail = lambda _: state.progress.show("tail")
    return state
