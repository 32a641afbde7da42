"""Find a job whose ranks have all become slower than they were: nobody in particular is to blame."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.live import policy
from controlplane.analysis.live.readings import PHASES
from controlplane.analysis.robust import often, spread
from controlplane.core.state.findings import Effort, Finding, Level, Recommendation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controlplane.analysis.live.resources.memory import TypicalRow
    from controlplane.analysis.live.situation import LiveSituation

_WHERE = {
    "data": "Look at the storage that all loaders read from, and at what else reads from it.",
    "communication": "Look at the switches and links that all ranks share, and at other jobs on them.",
    "snapshot": "Look at memory and storage bandwidth: snapshots have become slower on all nodes.",
    "other": "Look at what the script does between its phases (evaluation, logging, checkpoints of its own): "
    "it has grown.",
}
_WORK = (
    "Look at what all ranks share: power and cooling of the room, driver or library, a changed script or "
    "longer sequences."
)


def job_slowed(s: LiveSituation) -> Iterator[Finding]:
    """The job's usual step against what it was, where no slow rank explains it.

    Longer sequences make longer steps: where declared tokens have grown as much, it is no finding. Nor is it
    one where waits for a CPU have grown: other programs take it, and that is a finding of its own. Only rows
    with nearly all ranks say whether one of them explains it: the one for which the others wait may be
    missing in the rest."""
    usual = float(s.memory.usual_step.value)
    jobs = list(s.memory.jobs)
    if math.isnan(usual) or len(jobs) < 2 * policy.RECENT:
        return
    level = math.log(s.step_s) - usual
    steps_s = np.log(np.array([row.step_s for row in jobs[: -policy.RECENT]]))
    recent = np.log(np.array([row.step_s for row in s.newest])) - usual
    slow = int((recent > policy.half(policy.SLOWED_RATIO)).sum())
    needed = max(
        math.log(policy.SLOWED_RATIO), policy.NOISE_SPREADS * spread(np.diff(steps_s)) / math.sqrt(2.0)
    )
    if level < needed or slow < policy.SUSTAINED_RATIO * len(recent):
        return
    newest = _whole(s.newest, jobs)
    if len(newest) < policy.LEAST_WHOLE:
        return
    before = list(s.memory.usual_jobs) or jobs[: policy.RECENT]
    grown_s = {name: _typical(s.newest, name) - _typical(before, name) for name in PHASES}
    total_s = s.step_s * (1.0 - math.exp(-level))
    named_s = [float(dict(each.evidence).get("excess_s_per_step", 0.0)) for each in s.found]
    explained_s = max(_explained(newest, _whole(before, jobs)), *named_s, 0.0)
    phase = max(grown_s, key=lambda name: grown_s[name])
    if (
        explained_s >= policy.EXPLAINED_RATIO * total_s
        or _tokens(s.newest, before) >= policy.EXPLAINED_RATIO * level
        or _queued_s(s.newest, before) >= policy.QUEUE_RATIO * total_s
        or _held_s(newest) - _held_s(before) >= policy.EXPLAINED_RATIO * total_s
        or any(each.kind == f"slow_{phase}" for each in s.found)
    ):
        return
    ratio = math.exp(level)
    yield Finding(
        "job_slowed",
        Level.CRITICAL if ratio >= s.thresholds.critical_ratio else Level.DEGRADED,
        "",
        f"a step takes {s.step_s:.3g} s, {ratio:.2f} times what was usual, on all ranks alike; "
        f"{grown_s[phase]:.3g} s of {total_s:.3g} s more are {phase} time",
        confidence=often(slow, len(recent)),
        evidence=(
            ("step_ratio", ratio),
            ("step_s", s.step_s),
            ("usual_step_s", math.exp(usual)),
            ("main_phase", phase),
            ("main_phase_growth_s", grown_s[phase]),
        ),
        recommendations=(Recommendation(_WHERE.get(phase, _WORK), 1.0 - 1.0 / ratio, Effort.MEDIUM),),
        first_step=_onset(jobs, usual, level),
    )


def _typical(rows: list[TypicalRow], name: str) -> float:
    values = [row.spent[name] for row in rows if not math.isnan(row.spent[name])]
    return float(np.median(values)) if values else math.nan


def _whole(rows: list[TypicalRow], jobs: list[TypicalRow]) -> list[TypicalRow]:
    """The rows that are of nearly as many ranks as any of the newest ones is."""
    most = max(row.ranks for row in jobs[-policy.REMEMBERED :])
    return [row for row in rows if row.ranks >= policy.READY_RATIO * most]


def _held_s(rows: list[TypicalRow]) -> float:
    """For how long the rank that waits longest for a CPU holds the others up, in s per step; 0: not known."""
    known = [row.queued_s for row in rows if not math.isnan(row.queued_s)]
    return float(np.median(known)) if known else 0.0


def _tokens(now: list[TypicalRow], before: list[TypicalRow]) -> float:
    """By how much tokens per step have grown (a logarithm); 0 where they are not declared."""
    first, second = _typical(before, "tokens"), _typical(now, "tokens")
    return math.log(second / first) if first > 0 and second > 0 else 0.0


def _queued_s(now: list[TypicalRow], before: list[TypicalRow]) -> float:
    """By how much the wait for a CPU has grown, in s per step; 0 where it is not known."""
    grown = _typical(now, "queued") - _typical(before, "queued")
    return 0.0 if math.isnan(grown) else grown


def _explained(now: list[TypicalRow], before: list[TypicalRow]) -> float:
    """How much longer than before (s per step) all ranks wait for the busiest one, whether or not it has been
    named yet. What it is busy is taken off row by row: it may be so in some, as with snapshots."""
    return _waited_s(now) - _waited_s(before)


def _waited_s(rows: list[TypicalRow]) -> float:
    if not rows:
        return 0.0
    steps_s = np.array([row.step_s for row in rows])
    return float(np.median(steps_s) - np.median(steps_s - [row.excess_s for row in rows]))


def _onset(jobs: list[TypicalRow], usual: float, level: float) -> int | None:
    """The step from which on all rows are slow, but for single ones."""
    slow = [math.log(row.step_s) - usual > 0.5 * level for row in jobs]
    begin = len(slow)
    while begin and (slow[begin - 1] or (begin > 1 and slow[begin - 2])):
        begin -= 1
    return jobs[begin].first_step if begin < len(slow) else None
