"""Compose what a rank reports about itself to its agent: hello, beats, numbers.

It runs in the agent client's thread. Two things are read in the training thread: what the last steps of a
function have left behind, before the rank reports that it has finished, as nobody would act on it later; and
measurements that a snapshot must not be newer than (`judge`)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from holdfast.ipc.messages.gradients import Gradients
from holdfast.ipc.messages.rank import VERSION, Beat, Hello, Report
from holdfast.telemetry.gradient_reading import loss_of

if TYPE_CHECKING:
    from holdfast.ipc.messages.rank import RankMessage
    from holdfast.rank_state import RankState
    from holdfast.telemetry.gradient_watch import GradientWatch
    from holdfast.telemetry.numeric_anomalies import NumericAnomalies
    from holdfast.telemetry.reporting import Reports


def hello(state: RankState) -> Hello:
    """The hello: which member this is, its phase and generation, and its clean step (-1: none)."""
    held = state.clean.step if state.phase in ("ready", "finished") else -1
    return Hello(
        version=VERSION,
        member=state.environment.member,
        pid=os.getpid(),
        store=state.store_address,
        phase=state.phase,
        generation=state.generation,
        step=state.completed,
        held_step=held,
        held_generation=state.clean.generation,
        ended_step=ended(state),
    )


def ended(state: RankState) -> int | None:
    """The newest step at which a generation may begin without leaving out code that this rank has to run.

    None: no limit, because the script lets the tails of steps be cut, or because this process has trained
    nothing."""
    return None if state.guard.skippable or not state.clean.generation else state.ended


def beat(state: RankState, reports: Reports, anomalies: NumericAnomalies, gradients: GradientWatch) -> Beat:
    """The beat: this process lives, and its progress. Sends the script's reported numbers first, and what was
    measured of its gradients."""
    with reports.turn:
        _send_report(state, reports, anomalies)
        _send_offer(state, reports)
        _send_gradients(state, gradients, wait=False)
    return Beat(state.phase, state.generation, state.completed)


def settle(state: RankState, reports: Reports, anomalies: NumericAnomalies, gradients: GradientWatch) -> None:
    """Report all numbers of the steps so far, and what is wrong with them. Waits for the GPU if it must."""
    with reports.turn:
        _send_report(state, reports, anomalies)
        _send_offer(state, reports)
        anomalies.settle()
        _send_gradients(state, gradients, wait=True)


def judge(state: RankState, reports: Reports, gradients: GradientWatch) -> None:
    """Judge the gradients of all steps so far, if the script wants the job to go back or stop when they are
    not finite. The training thread calls this before each snapshot.

    So no snapshot holds what a measured NaN has spoiled; and as a rank overwrites an older snapshot only when
    all ranks have the newer one, some snapshot from before the NaN is left on all of them. On a GPU it waits
    for nothing that the snapshot's own copy does not wait for."""
    if gradients.acts:
        with reports.turn:
            _send_gradients(state, gradients, wait=True)


def send(state: RankState, message: RankMessage) -> None:
    """Send a message to the agent, if there is one."""
    if state.agent is not None:
        state.agent.send(message)


def _send_gradients(state: RankState, gradients: GradientWatch, *, wait: bool) -> None:
    for measured in gradients.read(wait=wait):
        send(state, measured)


def _send_offer(state: RankState, reports: Reports) -> None:
    offered = reports.take_offer()
    if offered is not None and state.agent is not None:
        generation, step, value = offered
        loss, loss_state = loss_of(value)
        state.agent.send(Gradients(generation, step, loss=loss, loss_state=loss_state))


def _send_report(state: RankState, reports: Reports, anomalies: NumericAnomalies) -> None:
    shown = reports.read(anomalies.reported)
    if shown and state.agent is not None:
        state.agent.send(Report(state.completed, shown))
