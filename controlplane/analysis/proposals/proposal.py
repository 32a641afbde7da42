"""Define what is proposed, and what is not, with the reason."""

from __future__ import annotations

from dataclasses import dataclass

NOT_MEASURED = "not measured"
"""How the reason begins where data is missing."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change of one part of a job's settings. Its gain is that of this change alone.

    `gain_ratio`: the share of the job's time that it would save, above 0 and below 1; with `at_most` no more
    than that, else what is expected."""

    setting: str
    action: str
    gain_ratio: float
    at_most: bool
    reason: str  # what was measured, in a sentence
    evidence: tuple[tuple[str, float | str], ...]  # each name ends in its unit
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
