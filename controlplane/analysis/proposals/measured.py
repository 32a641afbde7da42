"""Read from a job's report what was measured of its time. What cannot be believed is not used."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from controlplane.analysis.proposals import policy

WITHIN_STEPS = ("data", "compile", "evaluate", "checkpoint", "slow_rank", "snapshot")
"""Causes by which time is lost within steps, and beside productive time."""


class NotMeasured(Exception):
    """A number that a proposal needs is absent, or cannot be believed. The message says which."""


@dataclass(frozen=True, slots=True)
class MeasuredTime:
    """The account of a job's time (s), as its report has it. Its parts add up."""

    total_s: float
    productive_s: float
    lost_s: dict[str, float]  # by cause
    unknown_s: float
    waited_again_s: float  # waiting for nodes in all lives but the first that is known; 0: none, or one life

    @property
    def steps_ratio(self) -> float:
        """The share of all time that passes within steps."""
        return (self.productive_s + sum(self.lost(name) for name in WITHIN_STEPS)) / self.total_s

    @property
    def known_ratio(self) -> float:
        """The share of all time of which it is known what it was spent on."""
        return 1.0 - min(1.0, self.unknown_s / self.total_s)

    def lost(self, *causes: str) -> float:
        """What was lost to these causes (s)."""
        return sum(self.lost_s.get(cause, 0.0) for cause in causes)


def finite(value: Any) -> float | None:
    """A number of a report; None: it is none, or not finite."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def section(report: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A part of the report. Raises NotMeasured."""
    found = report.get(name)
    if not isinstance(found, Mapping):
        raise NotMeasured(
            f"the report has no {name!r}: the coordinator is older, or has seen nothing of it yet"
        )
    return found


def number(row: Mapping[str, Any], name: str, least: float = 0.0) -> float:
    """A number of a part of the report. Raises NotMeasured."""
    found = finite(row.get(name))
    if found is None or found < least:
        raise NotMeasured(f"{name} of the report is {row.get(name)!r:.40}")
    return found


def time_of(report: Mapping[str, Any]) -> MeasuredTime:
    """The account in a report. Raises NotMeasured."""
    account = report.get("time")
    if not isinstance(account, Mapping):
        raise NotMeasured("the report has no account of the job's time")
    total_s, productive_s, unknown_s = (
        _seconds(account, name) for name in ("total_s", "productive_s", "unknown_s")
    )
    lost_s = _lost(account)
    if total_s <= 0:
        raise NotMeasured("the job has spent no time yet")
    off_s = abs(total_s - productive_s - unknown_s - sum(lost_s.values()))
    if off_s > 1.0 + policy.ACCOUNT_RATIO * total_s:
        raise NotMeasured(f"the account cannot be believed: its parts differ from its total by {off_s:.0f} s")
    lives = account.get("lives")
    later = lives[1:] if isinstance(lives, list) else []
    again_s = sum(_lost(life).get("waiting", 0.0) for life in later if isinstance(life, Mapping))
    return MeasuredTime(total_s, productive_s, lost_s, unknown_s, min(again_s, lost_s.get("waiting", 0.0)))


def _seconds(row: Mapping[str, Any], name: str) -> float:
    found = finite(row.get(name))
    if found is None or found < 0:
        raise NotMeasured(f"{name} of the job's account is {row.get(name)!r:.40}, and not a time")
    return found


def _lost(row: Mapping[str, Any]) -> dict[str, float]:
    lost_s = row.get("lost_s")
    if not isinstance(lost_s, Mapping):
        raise NotMeasured("the job's account does not say what time was lost to")
    return {str(cause): _seconds(lost_s, cause) for cause in lost_s}
