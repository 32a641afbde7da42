"""Put moments that are forecast into words: analysis knows no calendar, and gives a number."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from controlplane.reporting.quantities import duration

if TYPE_CHECKING:
    from controlplane.core.state.findings import Finding

FORECASTS = ("full_at_s",)
"""Names of evidence in Unix time (s) with which the sentence of a finding ends."""


def dated(finding: Finding) -> Finding:
    """The finding, its reason with the date of what it forecasts; as it is where it forecasts none, or one
    that no calendar has."""
    at_s = next((value for name, value in finding.evidence if name in FORECASTS), None)
    if not isinstance(at_s, int | float):
        return finding
    try:
        date = datetime.fromtimestamp(at_s, UTC)
    except (OverflowError, ValueError, OSError):
        return finding
    return replace(finding, reason=f"{finding.reason}, at {date:%Y-%m-%d %H:%M} UTC")


_ENDS = {
    "job": "at step {}, by the script's total_steps",
    "loop": "at step {}, where the loop that runs ends",
    "trainer": "at about step {}, as its trainer counts",
}


def arrival(row: Any, now_s: float) -> str:
    """When a job's training ends, by its row in a status reply: how long that is, and the date in the zone of
    this machine; or why it is not known. "": it has ended, or the coordinator does not say.

    `now_s`: Unix time."""
    if row.eta_word == "ended":
        return ""
    if not row.HasField("eta_s"):
        return f"unknown: {row.eta_reason}" if row.eta_reason else ""
    where = _ENDS.get(row.eta_of, "at step {}").format(row.end_step)
    try:
        date = datetime.fromtimestamp(now_s + row.eta_s).astimezone()
    except (OverflowError, ValueError, OSError):
        return f"in {duration(row.eta_s)}, {where}"
    return f"in {duration(row.eta_s)}, {date:%Y-%m-%d %H:%M %Z} ({where})"
