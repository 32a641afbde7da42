"""Open and close the sessions of this process: one at a time has an agent, and none in a forked child."""

from __future__ import annotations

import contextlib
import functools
import os
import weakref
from typing import TYPE_CHECKING

from holdfast.errors import SessionError
from holdfast.groups import flight_recorder, waiting
from holdfast.ipc.agent_client import AgentClient
from holdfast.reentry import misuse
from holdfast.telemetry import own_reports

if TYPE_CHECKING:
    from holdfast.reentry.runtime import Runtime

_living: weakref.WeakSet[Runtime] = weakref.WeakSet()


def begin(runtime: Runtime) -> None:
    """Connect a new session to its agent, if there is one. Raises SessionError."""
    if runtime.state.environment.agent_socket:
        # The default group may come from an earlier session that no longer exists. Then this session has
        # taken over that session's groups: they are not the script's.
        misuse.check_no_group((runtime.state.groups, *(other.state.groups for other in list(_living))))
        _make_way()
        _connect(runtime)
    _living.add(runtime)


def _make_way() -> None:
    """Close earlier sessions that have an agent: the script makes another one. Raises SessionError."""
    for other in list(_living):
        if other.state.agent is None or other.state.closed:
            continue
        if other.state.entry.inside:
            raise SessionError(
                "Session: another Session is in its elastic function, and only one can be used at a time: "
                "use that one, or make this one after its function has returned"
            )
        other.state.closed = "the script has made another Session since, and only one can be used at a time"
        close(other)


def _connect(runtime: Runtime) -> None:
    """Serve this rank's TCPStore and start the connection to the agent."""
    state = runtime.state
    state.store_address = state.groups.serve(
        lambda: state.agent.inodes() if state.agent is not None else set()
    )
    agent = state.agent = AgentClient(
        state.environment.agent_socket,
        functools.partial(own_reports.hello, state),
        functools.partial(own_reports.beat, state, runtime.reports, runtime.anomalies, runtime.gradients),
        state.groups.sever,
    )
    agent.describe = flight_recorder.collectives
    agent.recorded = state.groups.flight_record.text
    agent.profile = runtime.profiler.ask
    state.groups.heed(agent.interrupted)
    agent.start()


def close(runtime: Runtime) -> None:
    """Release everything that a session holds."""
    state = runtime.state
    state.closed = state.closed or "session.close() was called"
    runtime.requests.end("the session has been closed")
    if state.functions.joined is None:  # else a generation waits for this process's next session
        state.groups.dissolve()
    runtime.mistakes.close()
    runtime.profiler.leave("the session has been closed")
    if state.agent is not None:
        state.agent.close()
    state.snapshots.detach()
    runtime.calls.close()
    if state.times.on:
        waiting.around = contextlib.nullcontext
    state.times.close()
    for thing in (runtime.streams.ledger, state.page):
        if thing is not None:
            thing.close()
    runtime.streams.ledger = state.page = None
    state.progress.close()


def _after_fork_in_child() -> None:
    """Release, in a DataLoader's worker, the connections to the agent and to peers: they are the parent's."""
    for runtime in list(_living):
        runtime.state.groups.neutralise()
        if runtime.state.agent is not None:
            runtime.state.agent.neutralise()


os.register_at_fork(after_in_child=_after_fork_in_child)
