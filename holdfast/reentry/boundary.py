"""Do what follows a complete step: report to the agent, compare ranks, take a snapshot if one is due."""

from __future__ import annotations

import dataclasses
import logging
import time
from typing import TYPE_CHECKING

from holdfast.anatomy.phases import SNAPSHOT
from holdfast.ipc import recovery_log
from holdfast.ipc.messages.rank import Started
from holdfast.ipc.messages.replicas import DIFFER, RUNNING
from holdfast.reentry import snapshotting
from holdfast.state import compiled

if TYPE_CHECKING:
    from holdfast.ipc.agent_client import AgentClient
    from holdfast.ipc.messages.replicas import ReplicasCompared
    from holdfast.rank_state import RankState
    from holdfast.reentry.runtime import Runtime

_OWED_LOGGED = 3
"""After so many snapshots that were put off, the log says why there are none."""
log = logging.getLogger("holdfast.sdk")


def after_step(runtime: Runtime, agent: AgentClient, now_ns: int) -> None:
    """Report a complete step, compare state with the other ranks, and take a snapshot if one is due."""
    spacing = runtime.state.spacing
    spacing.step_ends(now_ns / 1e9)
    _conclude(runtime, agent, now_ns)
    spacing.step_begins(time.monotonic())


def _conclude(runtime: Runtime, agent: AgentClient, now_ns: int) -> None:
    state = runtime.state
    first = state.entry.timing
    if first is not None:
        state.entry.timing = None
        _started(state, agent, first, now_ns)
    compared = runtime.equality.at_boundary()
    if compared is not None:
        _report_replicas(runtime, agent, compared)
    if runtime.generators is not None:
        runtime.generators.at_boundary()
    if first is not None:
        snapshotting.ask_for_room(state, agent)
    if state.guard.carries:
        _postpone(state)
        return
    if runtime.requests.due:
        state.progress.show("snapshot")
        with state.times.within(SNAPSHOT):
            runtime.requests.step_ended()
        state.progress.show("between")
    elif _is_due(state):
        holds = state.environment.holds
        if holds is not None and holds.holding(state.completed):  # who holds it waits for the checkpoint
            state.letting_go.force(state.completed)
        state.progress.show("snapshot")
        with state.times.within(SNAPSHOT):
            _take_snapshot(runtime, agent)
        state.progress.show("between")
    state.owed_snapshots = 0


def _take_snapshot(runtime: Runtime, agent: AgentClient) -> None:
    """Take a snapshot, unless the ranks have agreed that none does; report why there is none.

    Not of the additional ones that `--snapshot-every auto` makes: the next chance is near."""
    state = runtime.state
    skip = runtime.turns.refused
    if skip is None:
        skip = snapshotting.snapshot(state, agent, agreed=True, lazily=state.environment.snapshot_lazily)
    if skip is not None and state.spacing.due_in_any_case(state.completed):
        snapshotting.report(state, agent, skip)


def _report_replicas(runtime: Runtime, agent: AgentClient, compared: ReplicasCompared) -> None:
    """Report how replicas compare. If they differ, and the policy is to act, run the steps again where that
    can be done, and wait for the coordinator's order to go back: what would be trained on damaged state is
    lost. The difference is reported first: a replay may never end."""
    state = runtime.state
    refused = ""
    if compared.ranks:
        alone = "only_gradients" if compared.gradients == DIFFER else "only_buffers"
        refused = alone if compared.buffers else runtime.replay.refused()
        compared = dataclasses.replace(compared, replay=refused or RUNNING)
    agent.send(compared, keep=True)
    if compared.ranks:
        log.error(
            "step %d: replicas that held the same after step %d differ in %s (%s)",
            compared.step - 1,
            compared.agreed_step - 1,
            ", ".join(compared.tensors),
            "; ".join(compared.digests),
        )
    if compared.ranks and not compared.buffers and state.environment.corrupt_acts:
        if not refused:
            outcome, passes = runtime.replay.run(compared.agreed_step)
            agent.send(dataclasses.replace(compared, replay=outcome, passes=passes), keep=True)
        runtime.anomalies.wait_for_decision()


def _is_due(state: RankState) -> bool:
    """Whether a snapshot is due, by the step's number or because one was put off.

    The snapshot after a function's last step is not taken here, but together with the function's result."""
    due = state.spacing.due(state.completed) or (state.spacing.every > 0 and state.owed_snapshots > 0)
    return due and bool(state.tracked.objects) and not _ends(state)


def _postpone(state: RankState) -> None:
    """Put a due snapshot off, because gradients cross this boundary. The third time in a row is logged."""
    if state.spacing.due_in_any_case(state.completed):
        state.owed_snapshots += 1
        if state.owed_snapshots == _OWED_LOGGED:
            log.warning(
                "no snapshot for %d steps: each step leaves gradients for the next one. If that is not "
                "intended, clear them with zero_grad() after the optimizer's step",
                state.spacing.every_max * (_OWED_LOGGED - 1),
            )


def _ends(state: RankState) -> bool:
    """Whether this was the last step of its loop."""
    return state.completed == state.entry.last_step


def _started(state: RankState, agent: AgentClient, first: tuple[float, float, float], now_ns: int) -> None:
    """Report the first complete step of a generation, with the durations of the recovery."""
    form_s, restore_s, begun = first
    if state.page is not None:
        state.page.resumed_ns = now_ns
        state.page.resumed_generation = state.generation
    if state.completed - 1 > state.functions.base:  # since a failure some process has met other calls
        state.inexact += compiled.notes(state.rank)
    inexact, state.inexact = "; ".join(state.inexact), []
    agent.send(Started(state.generation, state.completed, form_s, restore_s, now_ns / 1e9 - begun, inexact))
    recovery_log.over(agent, state.generation, state.completed)


def skip(runtime: Runtime, windows: tuple[tuple[int, int], ...]) -> None:
    """Leave these batches out from now on, and record that in the ledger."""
    state, ledger = runtime.state, runtime.streams.ledger
    if ledger is not None:
        for first, end in windows:
            if (first, end) not in state.skipped:
                ledger.skipped(first, end, state.generation, state.rank)
    state.skipped = windows
