"""Put the moment that a finding forecasts into its words: analysis knows no calendar, and gives a number."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

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
