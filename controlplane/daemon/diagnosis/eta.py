"""Say why a job that stands has no end to forecast, and write a forecast as fields of a row. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controlplane.analysis.live.eta import Eta
from controlplane.core.records.model import JobPhase
from controlplane.reporting.quantities import duration

if TYPE_CHECKING:
    from controlplane.core.state.job import Job

_STANDS: dict[JobPhase, tuple[str, str] | None] = {
    JobPhase.PENDING: ("waiting", "it waits for nodes"),
    JobPhase.LAUNCHING: ("starting", "its processes start"),
    JobPhase.RUNNING: None,
    JobPhase.STOPPING: ("recovering", "its ranks stop for a new generation"),
    JobPhase.LOADING: ("recovering", "its state is brought back"),
    JobPhase.STORING: ("forming", "its next generation begins"),
    JobPhase.FORMING: ("forming", "its next generation begins"),
    JobPhase.LEAVING: ("ending", "its training is over, and its scripts end"),
    JobPhase.PARKED: ("waiting", "it cannot continue now"),
    JobPhase.PAUSED: ("paused", "it is paused"),
    JobPhase.FINISHED: ("ended", "it has ended"),
    JobPhase.FAILED: ("ended", "it has ended"),
    JobPhase.STOPPED: ("ended", "it has ended"),
}


def standing(job: Job) -> Eta | None:
    """Return why the job makes no steps now, in place of a forecast; None: it makes some."""
    if (stands := _STANDS[job.phase]) is not None:
        return Eta(None, *stands)
    late = [job.members[name] for name in job.recovery.stalled if name in job.members]
    if not late:
        return None
    first = min(late, key=lambda each: each.rank)
    stalled_s = first.status.stalled_s if first.status is not None else 0.0
    return Eta(None, "stalled", f"rank {first.rank} has made no progress for {duration(stalled_s)}")


def eta_row(found: Eta, now_s: float) -> dict[str, Any]:
    """Return a forecast as the fields of `JobRow`. `now_s`: Unix time."""
    return {
        "eta_s": None if found.at_s is None else max(0.0, found.at_s - now_s),
        "eta_word": found.word,
        "eta_reason": found.reason,
        "end_step": found.end_step,
        "eta_of": found.of,
    }
