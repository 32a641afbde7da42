"""Define what is proposed, and what is not, with the reason."""

from __future__ import annotations

import math
from dataclasses import dataclass

NOT_MEASURED = "not measured"
"""How the reason begins where data is missing."""


@dataclass(frozen=True, slots=True)
class SettingChange:
    """One setting, from what to what. `name`: a flag, or a name within the script."""

    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change of one part of a job's settings. Its gain is that of this change alone.

    `gain_ratio`: the share of the job's time that it would save, above 0 and below 1; with `at_most` no more
    than that, else what is expected. `confidence`: from 0 to 1, how far what was measured holds for the time
    to come: of a finding its own, of failures how well their rate is known, of an account how much of it is
    known."""

    setting: str
    action: str
    gain_ratio: float
    at_most: bool
    confidence: float
    reason: str  # what was measured, in a sentence
    evidence: tuple[tuple[str, float | str], ...]  # each name ends in its unit
    changes: tuple[SettingChange, ...] = ()  # (): what it is now, or should be, cannot be known
    alternatives: tuple[str, ...] = ()  # other actions against the same loss


@dataclass(frozen=True, slots=True)
class Withheld:
    """A part of the settings for which nothing is proposed, and why."""

    setting: str
    reason: str


@dataclass(frozen=True, slots=True)
class Tuning:
    """What is proposed for a job, the greatest gain first, and what is not."""

    proposals: tuple[Proposal, ...]
    withheld: tuple[Withheld, ...]


def unmeasured(setting: str, what: str) -> Withheld:
    """Nothing is proposed, since `what` is missing."""
    return Withheld(setting, f"{NOT_MEASURED}: {what}")


def rate_known(failures: float) -> float:
    """How well the rate of failures is known once so many were seen: 1 less its relative deviation, where
    nothing was known before (a gamma distribution of shape `failures` + 1)."""
    return 1.0 - 1.0 / math.sqrt(failures + 1.0)
