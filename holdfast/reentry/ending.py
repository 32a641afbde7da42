"""End an elastic function: keep its result with its final state, and return from it on all ranks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from holdfast.ipc.messages.rank import Finished
from holdfast.reentry import joining, snapshotting, stepping
from holdfast.telemetry import own_reports

if TYPE_CHECKING:
    from holdfast.ipc.agent_client import AgentClient
    from holdfast.ipc.skips import Skip
    from holdfast.rank_state import RankState
    from holdfast.reentry.runtime import Runtime

_LAST_SNAPSHOT_S = 60.0  # seconds that the end of training waits for room for its snapshot
_POLL_S = 0.05


def settle_numbers(runtime: Runtime) -> None:
    """Report what is wrong with the numbers of the last steps, if anything is.

    Reports reach the coordinator in order, so it decides about that before it hears that this rank has
    finished."""
    own_reports.settle(runtime.state, runtime.reports, runtime.anomalies, runtime.gradients)


def keep_value(state: RankState, name: str, result: Any) -> None:
    """Agree with the other ranks on the function's result, and keep it if there is one."""
    found = joining.same_value(state, result)
    if found.any:
        state.completed = state.functions.end(
            name, state.completed, found.value, found.refused, kept=found.kept
        )


def report_finished(state: RankState, agent: AgentClient) -> Skip | None:
    """Report that the function is over here, with its final state. Returns why there is no snapshot of that;
    None when there is one."""
    skip = snapshotting.last(state, agent)
    state.clean.step = state.ended = state.completed
    agent.send(Finished(state.generation, state.completed), keep=True)
    state.phase = "finished"
    state.progress.show("finished")
    return skip


def wait_for_room(state: RankState, agent: AgentClient, skip: Skip | None) -> None:
    """Retry the last snapshot: its slot becomes free once the coordinator knows that all ranks have
    finished."""
    deadline = time.monotonic() + _LAST_SNAPSHOT_S
    while skip is not None and not over(state, agent) and time.monotonic() < deadline:
        if agent.interrupted(state.generation):
            return
        agent.wait(lambda orders: orders.interrupted >= state.generation, _POLL_S)
        skip = snapshotting.snapshot(state, agent)
    if skip is not None:
        snapshotting.report(state, agent, skip)


def over(state: RankState, agent: AgentClient) -> bool:
    """Whether the ranks may return from the function that they have finished, or the job is over."""
    return agent.orders.complete is not None or agent.orders.returned >= state.generation


def leave(runtime: Runtime, agent: AgentClient, name: str) -> None:
    """Leave the function and its groups: all ranks have finished, and the final state is safe."""
    state = runtime.state
    known = state.functions
    runtime.requests.end("the training has ended without an answer about the checkpoint")
    state.groups.dissolve()
    agent.forget("finished")
    known.leave(name, state.completed)
    known.generation, known.completed = state.generation, state.completed
    known.held_in = state.clean.generation
    stepping.between(state)
