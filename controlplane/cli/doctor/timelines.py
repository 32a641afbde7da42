"""Show the diagnosis of a timeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controlplane.analysis.steps.records import TimelineError
from controlplane.analysis.timelines import diagnosis
from controlplane.cli.doctor.shown import as_data, as_text
from controlplane.cli.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from controlplane.analysis.steps.records import Timeline

NOTEWORTHY = 1.02
"""Shares of a slowdown below this one mean nothing to people, and are not shown."""


def diagnose(path: Path, timeline: Timeline) -> diagnosis.TimelineDiagnosis:
    """The diagnosis. Raises UsageError that names the file, and the row and column that are wrong."""
    try:
        return diagnosis.diagnose(timeline)
    except TimelineError as error:
        where = (f", column {error.column}" if error.column else "") + (
            f", row {error.row + 1}" if error.row >= 0 else ""
        )
        raise UsageError(f"{path}{where}: {error.reason}") from error


def data(found: diagnosis.TimelineDiagnosis) -> dict[str, Any]:
    """For programs."""
    return {
        "slowdown": found.slowdown,
        "worker_share": found.worker_share,
        "stage_share": found.stage_share,
        "step_s": found.step_s,
        "ideal_step_s": found.ideal_step_s,
        "steps": found.steps,
        "steps_left_out": found.steps_left_out,
        "rows_repeated": found.rows_repeated,
        "findings": [as_data(each) for each in found.findings],
    }


def text(found: diagnosis.TimelineDiagnosis) -> str:
    """For people."""
    lines = [
        f"{found.steps} steps: a step takes {found.step_s:.3g} s; if every operation took as long as its "
        f"kind usually does, {found.ideal_step_s:.3g} s: slowdown {found.slowdown:.2f}"
    ]
    if found.slowdown >= NOTEWORTHY:
        lines.append(
            f"of that the worst workers explain {_percent(found.worker_share)}, the last stage "
            f"{_percent(found.stage_share)}"
        )
    if found.steps_left_out:
        lines.append(
            f"steps left out, since not all of their operations are recorded: {found.steps_left_out}"
        )
    if found.rows_repeated:
        lines.append(f"rows that were there twice, and count once: {found.rows_repeated}")
    return "\n".join(lines) + "\n\n" + as_text(found.findings)


def _percent(share: float) -> str:
    return f"{round(share, 2) + 0.0:.0%}"  # + 0.0: never "-0%"
