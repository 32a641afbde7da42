"""Find steps, and waits for samples, that take longer and longer, over hours: slowly enough that each day
seems as the one before."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.live import policy
from controlplane.analysis.live.readings import PHASES
from controlplane.core.state.findings import Effort, Finding, Level, Recommendation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controlplane.analysis.live.situation import LiveSituation

_HOUR_S = 3600.0
_WHERE = {
    "data": "Look at what the loaders read from: its load, caches that no longer hold the data set, files "
    "that grow.",
    "communication": "Look at the network that all ranks share: errors and retransmissions that increase, "
    "other jobs on it.",
    "snapshot": "Look at what the state holds: it may grow with the steps.",
    "other": "Look at what the script keeps between its phases: a list that grows, a log that is read again.",
}
_WORK = (
    "Look at what grows with the steps: lengths of sequences, graphs that are compiled again, heat of the "
    "devices (clocks that fall)."
)
_LOADER = (
    "Look at what the loaders read from, before they hold the job up: its load, caches that no longer hold "
    "the data set, files that grow, CPUs that their workers get. Until then give them more workers or a "
    "deeper queue."
)


def data_wait_grows(s: LiveSituation) -> Iterator[Finding]:
    """The typical rank has waited for samples longer and longer, and soon that is a bottleneck. Once it is,
    `slow_data` says so."""
    waited, limit = s.memory.pace.waited, s.thresholds.data
    change = waited.grown
    if change is None or _share(change.level) >= limit:
        return
    now_s, share, usual = s.job.ended_s, _share(change.level), _share(change.usual)
    more_s = (share - usual) * s.step_s
    reason = (
        f"a typical rank waits for samples for {share:.1%} of a step, and {usual:.1%} {change.since(now_s)}"
    )
    evidence: tuple[tuple[str, float | str], ...] = (
        ("data_share_ratio", share),
        ("usual_data_share_ratio", usual),
        ("since_s", change.since_s),
        ("grown_s", more_s),
    )
    reached = waited.watch.reaches(1.0 / (1.0 - limit), now_s)
    if reached is not None:
        hours = (reached.likely - now_s) / _HOUR_S
        reason += f"; at this rate it is a bottleneck ({limit:.0%}) in {hours:.2g} hours"
        evidence += (
            ("bottleneck_at_s", reached.likely),
            ("bottleneck_earliest_s", reached.earliest),
        )
    yield Finding(
        "data_wait_grows",
        Level.DEGRADED,
        "",
        reason,
        confidence=0.9,
        evidence=evidence,
        recommendations=(Recommendation(_LOADER, share - usual, Effort.MEDIUM),),
    )


def _share(ratio: float) -> float:
    """The share of a step that is waited for samples, of a step that takes so many times as long for it."""
    return 1.0 - 1.0 / ratio


def step_time_grows(s: LiveSituation) -> Iterator[Finding]:
    """The step has grown steadily beyond what was usual, and no slow rank, no longer sequences, no other
    program on its CPUs and no growing wait for samples explain it."""
    pace = s.memory.pace
    change = pace.step.grown
    if change is None:
        return
    more_s = change.level - change.usual
    grown = {name: _now(s, name) - pace.usual.get(name, math.nan) for name in (*PHASES, "queued")}
    named_s = [float(dict(each.evidence).get("excess_s_per_step", 0.0)) for each in s.found]
    named_s += [float(dict(each.evidence)["grown_s"]) for each in s.found if each.kind == "data_wait_grows"]
    if (
        max(named_s, default=0.0) >= policy.EXPLAINED_RATIO * more_s
        or grown["queued"] >= policy.QUEUE_RATIO * more_s
        or _tokens(s) >= policy.EXPLAINED_RATIO * math.log(change.level / change.usual)
    ):
        return
    phases = {name: grown[name] for name in PHASES if not math.isnan(grown[name])}
    phase = max(phases, key=lambda name: phases[name], default="other")
    reason = (
        f"a step takes {change.level:.3g} s, and {change.usual:.3g} s {change.since(s.job.ended_s)}; "
        f"{phases.get(phase, 0.0):.3g} s of {more_s:.3g} s more are {phase} time"
    )
    evidence: tuple[tuple[str, float | str], ...] = (
        ("step_s", change.level),
        ("usual_step_s", change.usual),
        ("since_s", change.since_s),
        ("main_phase", phase),
        ("main_phase_growth_s", phases.get(phase, 0.0)),
    )
    if change.per_s is not None and change.per_s > 0.0:
        reason += f"; it grows by {change.per_s * _HOUR_S / change.usual:.2%} of that per hour"
        evidence += (("growth_s_per_hour", change.per_s * _HOUR_S),)
    yield Finding(
        "step_time_grows",
        Level.DEGRADED,
        "",
        reason,
        confidence=0.9,
        evidence=evidence,
        recommendations=(Recommendation(_WHERE.get(phase, _WORK), more_s / change.level, Effort.MEDIUM),),
    )


def _now(s: LiveSituation, name: str) -> float:
    """What the typical rank spends in the newest rows; NaN: not known."""
    values = [row.spent[name] for row in s.newest if not math.isnan(row.spent[name])]
    return float(np.median(values)) if values else math.nan


def _tokens(s: LiveSituation) -> float:
    """By how much tokens per step have grown (a logarithm); 0 where they are not declared."""
    before, now = s.memory.pace.usual.get("tokens", 0.0), _now(s, "tokens")
    return math.log(now / before) if before > 0.0 and now > 0.0 else 0.0
