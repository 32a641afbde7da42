"""The date in the words of a finding that forecasts something."""

from __future__ import annotations

import pytest

from controlplane.core.state.findings import Finding, Level
from controlplane.reporting.dates import dated


def finding(**evidence: float | str) -> Finding:
    reason = "at this rate it is full in 2.2 hours"
    return Finding("disk_filling", Level.DEGRADED, "disk /ckpt", reason, evidence=tuple(evidence.items()))


@pytest.mark.parametrize(
    ("at_s", "date"),
    [
        (0.0, "1970-01-01 00:00"),
        (951_782_399.0, "2000-02-28 23:59"),
        (1_709_164_800.0, "2024-02-29 00:00"),
        (1_735_689_599.9, "2024-12-31 23:59"),
    ],
)
def test_the_sentence_ends_with_the_date_of_the_forecast(at_s: float, date: str) -> None:
    found = dated(finding(full_in_s=7920.0, full_at_s=at_s))
    assert found.reason == f"at this rate it is full in 2.2 hours, at {date} UTC"
    assert dict(found.evidence)["full_at_s"] == at_s


@pytest.mark.parametrize("at_s", [float("nan"), float("inf"), 1e300, "soon"])
def test_what_no_calendar_has_leaves_the_sentence_as_it_is(at_s: float | str) -> None:
    assert dated(finding(full_at_s=at_s)) == finding(full_at_s=at_s)


def test_a_finding_without_a_forecast_stays_as_it_is() -> None:
    assert dated(finding(free_bytes=7.0)) == finding(free_bytes=7.0)
