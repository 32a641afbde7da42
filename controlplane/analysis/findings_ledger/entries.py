"""Write a finding that is open, or was, as a plain row, and read it back."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from controlplane.core.state.findings import Effort, Finding, Level, Recommendation

if TYPE_CHECKING:
    from collections.abc import Mapping

Row = dict[str, Any]
"""Numbers, texts, None, and lists and dicts of them: what JSON can hold."""
Identity = tuple[str, str]
"""(kind, subject): within a job, what is one and the same finding."""


class LedgerRowError(ValueError):
    """A row that is no finding; the text names the job, the field and the fix."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A finding that has opened. Times are on the clock that `observe` is given, in s.

    `finding` is as it was last reported, with the level that was announced."""

    finding: Finding  # with `job`
    opened_s: float
    last_seen_s: float
    resolved_s: float | None = None  # None: still open
    windows: int = 0  # in which it was reported
    announced: bool = True  # False: its level has changed while it was muted
    muted_until_s: float | None = None
    muted_by: str = ""

    @property
    def identity(self) -> Identity:
        """What makes it the same finding as another one of its job."""
        return self.finding.kind, self.finding.subject

    def muted(self, now_s: float) -> bool:
        """Whether nobody is to be alerted now."""
        return self.muted_until_s is not None and now_s < self.muted_until_s


def row(entry: LedgerEntry) -> Row:
    """The entry as plain data."""
    finding = entry.finding
    return {
        "job": finding.job,
        "kind": finding.kind,
        "level": finding.level.value,
        "subject": finding.subject,
        "reason": finding.reason,
        "place": dict(finding.place),
        "confidence": finding.confidence,
        "evidence": dict(finding.evidence),
        "recommendations": [
            {
                "action": each.action,
                "gain_ratio": each.gain_ratio,
                "effort": each.effort and each.effort.value,
            }
            for each in finding.recommendations
        ],
        "first_step": finding.first_step,
        **{name: getattr(entry, name) for name in _OWN},
    }


_OWN = tuple(field.name for field in fields(LedgerEntry) if field.name != "finding")
_TEXTS = ("job", "kind", "subject", "reason", "muted_by")
_NUMBERS = ("confidence", "opened_s", "last_seen_s", "windows")
_OPTIONAL = ("first_step", "resolved_s", "muted_until_s")
_NAMES = {*_TEXTS, *_NUMBERS, *_OPTIONAL, "level", "place", "evidence", "recommendations", "announced"}


def entry(found: object) -> LedgerEntry:
    """Read a row. Raises LedgerRowError for anything that `row` does not write."""
    if not isinstance(found, dict):
        raise LedgerRowError(f"a finding's row is {type(found).__name__}, not a mapping; delete it")
    name = f"finding {found.get('kind')!r} of job {found.get('job')!r}"
    odd = sorted(map(str, found.keys() ^ _NAMES))
    if odd:
        raise LedgerRowError(f"{name}: fields missing or unknown: {', '.join(odd)}; delete the row")
    try:
        _check(found)
        level = Level(found["level"])
        advice = tuple(_recommendation(each) for each in found["recommendations"])
    except (KeyError, TypeError, ValueError) as error:
        raise LedgerRowError(f"{name}: {error}; delete the row") from error
    finding = Finding(
        found["kind"], level, found["subject"], found["reason"], job=found["job"],
        place=tuple(found["place"].items()), confidence=float(found["confidence"]),
        evidence=tuple(found["evidence"].items()), recommendations=advice, first_step=found["first_step"],
    )  # fmt: skip
    return LedgerEntry(finding, **{name: found[name] for name in _OWN})


def _check(found: Mapping[str, Any]) -> None:
    for name in _TEXTS:
        if not isinstance(found[name], str):
            raise TypeError(f"{name} is {found[name]!r}, not a text")
    for name in (*_NUMBERS, *_OPTIONAL):
        value = found[name]
        if value is None and name in _OPTIONAL:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise TypeError(f"{name} is {value!r}, not a finite number")
    if not isinstance(found["announced"], bool):
        raise TypeError(f"announced is {found['announced']!r}, not true or false")
    for name in ("place", "evidence"):
        if not isinstance(found[name], dict) or not all(isinstance(key, str) for key in found[name]):
            raise TypeError(f"{name} is no mapping of names")
        for key, value in found[name].items():
            if not isinstance(value, int | float | str | None):
                raise TypeError(f"{name}.{key} is {type(value).__name__}, neither a number nor a text")
    if not isinstance(found["recommendations"], list):
        raise TypeError("recommendations is no list")
    if found["level"] == Level.HEALTHY.value:
        raise ValueError("level is healthy, which no finding has")


def _recommendation(found: Mapping[str, Any]) -> Recommendation:
    action, gain_ratio, effort = found["action"], found["gain_ratio"], found["effort"]
    if not isinstance(action, str) or not isinstance(gain_ratio, int | float | None):
        raise TypeError("a recommendation has an action (text) and a gain_ratio (number)")
    return Recommendation(action, gain_ratio, effort and Effort(effort))
