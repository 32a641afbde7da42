"""Stop a job whose failure will certainly come again, where the policy is to act on that.

The first cause of an incident is found outside of the core, in the logs of its ranks, a moment after the
incident was judged. By then new processes may be starting, or training already. They would fail again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.lifecycle import ending
from controlplane.core.records.model import JobPhase
from controlplane.core.records.notes import NoteKind
from controlplane.core.recovery import barrier

if TYPE_CHECKING:
    from controlplane.core.records.diagnosis import CauseFound
    from controlplane.core.state.cluster_state import ClusterState

CERTAIN = 0.95
"""The confidence from which on it is certain that a cause comes again: that of
`analysis.failure_logs.policy.CERTAIN`, which the table of causes and repeated failures at one place reach. A
guess never stops a job."""


def found(state: ClusterState, event: CauseFound) -> None:
    """Take the first cause of an incident. It ends the job if the policy is to act, nothing but a change by
    people can help, and this is still the job's newest incident."""
    job = state.jobs.get(event.job)
    if job is None or job.recovery.incidents != event.incident:
        state.drop(NoteKind.STALE_CAUSE, event.job, f"incident {event.incident} is not its newest one")
        return
    certain = not event.restart and event.advice_confidence >= CERTAIN
    if state.settings.restart_policy != "act" or not certain or job.ended or job.ending is not None:
        return
    reason = f"starting it again would fail again: {event.advice}"
    if job.phase is not JobPhase.LEAVING:
        barrier.interrupt(state, job, reason)
    ending.end(state, job, JobPhase.FAILED, reason)
