"""Answer the checkpoint requests of scripts, each one once its outcome is known.

A request names a step of one generation. It ends as committed, failed (begun and not committed) or skipped
(never begun, and why). Every request gets an answer, whatever happens to the job, because the script waits
for it. The answer is sent once per stream of the node, and again when the agent repeats the request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.checkpoint import releasing, skipping, voiding
from controlplane.core.records import effects as fx
from controlplane.core.records.model import JobPhase
from controlplane.core.records.words import some_of
from controlplane.core.state.saving import CheckpointRequest, Stage

if TYPE_CHECKING:
    from controlplane.core.records import events as ev
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job

ASKS_KEPT = 256
"""Requests remembered per job, so that a repeated request gets the same answer again."""

FINAL = ("committed", "failed", "skipped")
"""Outcomes of a checkpoint that answer the requests for it."""

TRAINS = (JobPhase.RUNNING, JobPhase.FORMING)
"""Phases in which every rank may still come to hold a requested step."""


def asked(state: ClusterState, event: ev.CheckpointAsked) -> None:
    """Record a script's request for a checkpoint. A repeated one only has its answer sent again."""
    job = state.jobs.get(event.job)
    if job is None or event.member not in job.members:
        whom = f"job {event.job}" if job is None else f"{event.member} of job {event.job}"
        reason = f"{whom} is unknown to this coordinator"
        state.emit(fx.CheckpointTold(event.node, event.job, event.member, event.request, "skipped", reason))
        return
    ask = job.checkpoints.asks.get((event.member, event.request))
    if ask is None:
        ask = CheckpointRequest(
            event.node, event.member, event.request, event.step, event.generation, state.now
        )
        job.checkpoints.asks[event.member, event.request] = ask
        _forget_old(job)
    job.sent_on_stream.drop(ask.key)
    state.touch(job)


def _forget_old(job: Job) -> None:
    answered = [key for key, ask in job.checkpoints.asks.items() if ask.outcome]
    for key in answered[: max(0, len(job.checkpoints.asks) - ASKS_KEPT)]:
        job.sent_on_stream.drop(job.checkpoints.asks.pop(key).key)


def reconcile(state: ClusterState, job: Job) -> None:
    """Decide the requests that can be decided, and send each answer once per stream of its node."""
    for ask in job.checkpoints.asks.values():
        if not ask.outcome:
            _judge(state, job, ask)
        if ask.outcome and ask.key not in job.sent_on_stream and state.up(ask.node):
            job.sent_on_stream.put(ask.key, state.now)
            state.emit(
                fx.CheckpointTold(
                    ask.node, job.name, ask.member, ask.request, ask.outcome, ask.reason, ask.checkpoint
                )
            )


def wanted(job: Job) -> list[int]:
    """Return the requested steps that every rank holds and of which no checkpoint has begun."""
    if job.phase is not JobPhase.RUNNING or job.generation is None or not job.spec.storage:
        return []
    number = job.generation.number
    open_asks = [ask for ask in job.checkpoints.asks.values() if not ask.outcome and ask.generation == number]
    steps = dict.fromkeys(ask.step for ask in open_asks if ask.checkpoint not in job.checkpoints.savings)
    return [step for step in steps if releasing.held_by_all(job, step)]


def _judge(state: ClusterState, job: Job, ask: CheckpointRequest) -> None:
    saving, record = job.checkpoints.savings.get(ask.checkpoint), job.checkpoints.records.get(ask.checkpoint)
    if saving is not None and saving.stage is not Stage.COPY:
        return
    if record is not None and record.bad:
        ask.outcome, ask.reason = "failed", record.bad
    elif record is not None and record.published:
        ask.outcome, ask.reason = "committed", f"step {record.step}, {record.kind}"
    elif reason := _hopeless(state, job, ask):
        ask.outcome, ask.reason = "skipped", reason
    else:
        state.wake(job, min(state.now + state.settings.long_retry_s, ask.at + state.settings.ask_timeout_s))


def _hopeless(state: ClusterState, job: Job, ask: CheckpointRequest) -> str:
    """Return why no checkpoint of this step can begin any more; "" when one still may."""
    if not job.spec.storage:
        return "the job has no storage: give it one with --storage URL"
    if job.ended:
        return "the job has ended"
    if job.generation_number != ask.generation or job.phase not in TRAINS:
        return f"generation {ask.generation} broke before every rank held step {ask.step}"
    return "" if releasing.held_by_all(job, ask.step) else _lacking(state, job, ask)


def _lacking(state: ClusterState, job: Job, ask: CheckpointRequest) -> str:
    """Return why not every rank will hold this step; "" while they may. Gives up after `ask_timeout_s`."""
    if reason := skipping.no_room(job):
        return reason
    absent = [str(mb.rank) for mb in job.seated() if voiding.left_out(job, mb, ask.step)]
    if absent:
        ranks = f"rank{'s' if len(absent) > 1 else ''} {some_of(absent)}"
        return f"{ranks} made no snapshot of step {ask.step}: there was no room, or it did not ask for it"
    if state.now >= ask.at + state.settings.ask_timeout_s:
        return f"not every rank held step {ask.step} within {state.settings.ask_timeout_s:.0f} s"
    return ""


def settle(job: Job, name: str, outcome: str, reason: str) -> None:
    """Take the outcome of the checkpoint `name` as the answer of all open requests for it."""
    for ask in job.checkpoints.asks.values():
        if ask.checkpoint == name and not ask.outcome and outcome in FINAL:
            ask.outcome, ask.reason = outcome, reason


def close(state: ClusterState, job: Job, why: str = "the job has ended") -> None:
    """Answer every open request, because the job or its training is over (`why`)."""
    for ask in job.checkpoints.asks.values():
        if ask.outcome:
            continue
        begun = ask.checkpoint in job.checkpoints.savings
        ask.outcome = "failed" if begun else "skipped"
        ask.reason = why + (" before it was committed" if begun else "")
    reconcile(state, job)
