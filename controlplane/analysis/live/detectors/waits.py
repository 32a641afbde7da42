"""Find who waits longer than others for samples, or for snapshots, and whether everybody does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.live import policy
from controlplane.analysis.live.history import median_of_rows
from controlplane.analysis.live.lasting.standings import lasting
from controlplane.analysis.live.places import suspects
from controlplane.analysis.live.standing import Standing, standing
from controlplane.analysis.robust import often
from controlplane.core.state.findings import Effort, Finding, Level, Recommendation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controlplane.analysis.live.places import Suspect
    from controlplane.analysis.live.situation import LiveSituation


@dataclass(frozen=True, slots=True)
class _Wait:
    """What somebody waits for, in the words of a finding."""

    kind: str
    phase: str
    waits: str
    one: str  # what to do where one rank or node waits; `{where}`: it
    everybody: str
    effort: Effort


_DATA = _Wait(
    "slow_data",
    "data",
    "waits for samples",
    "Look at the loader, the local disk and the network of {where}: others get their samples in time.",
    "Give the loader more workers or a deeper queue, or put the data nearer: all ranks wait alike, so "
    "storage or the loader cannot keep up.",
    Effort.MEDIUM,
)
_SNAPSHOT = _Wait(
    "slow_snapshot",
    "snapshot",
    "is held up by snapshots",
    "Look at memory bandwidth, free shared memory and other processes of {where}: others copy it faster.",
    "Take snapshots less often, or of less state: on all ranks they cost this much.",
    Effort.LOW,
)


def slow_data(s: LiveSituation) -> Iterator[Finding]:
    """Ranks or nodes that wait longer for samples than the others do, and a loader that is slow for all."""
    rows = s.memory.data.newest(policy.RECENT)
    stood = standing(rows, policy.WAIT_RATIO)
    found = _some(s, stood)
    yield from (_finding(s, _DATA, suspect, stood) for suspect in found)
    history = s.memory.lasting["data"]
    if history.full:
        for_minutes = lasting(history, 0.5 * policy.WAIT_RATIO, stood.level)
        named = np.isin(np.arange(len(stood.level)), [rank for each in found for rank in each.ranks])
        slight = [each for each in _some(s, for_minutes) if not named[each.ranks].any()]
        yield from (_finding(s, _DATA, suspect, for_minutes) for suspect in slight)
    share = float(np.median([row.spent["data"] / row.step_s for row in s.newest]))
    if share >= s.thresholds.data:
        yield _all(s, _DATA, share, s.thresholds.data)


def slow_snapshot(s: LiveSituation) -> Iterator[Finding]:
    """The same for snapshots. They come seldom, so all rows that are remembered count, as a mean."""
    rows = s.memory.snapshot.newest(policy.REMEMBERED)
    if len(rows) < policy.SNAPSHOT_ROWS:
        return
    known = ~np.isnan(rows)
    count = known.sum(axis=0)
    values = np.where(known, rows, 0.0)
    times = (values > policy.SNAPSHOT_RATIO).sum(axis=0)
    with np.errstate(invalid="ignore"):
        level = np.where(count >= policy.SNAPSHOT_ROWS, values.sum(axis=0) / count, np.nan)
    above = np.where(times >= policy.SNAPSHOT_TIMES, 1.0, 0.0)
    limit = np.full(len(level), policy.SNAPSHOT_RATIO)
    if (above > 0).any():
        typical, _ = median_of_rows(np.where(rows > policy.SNAPSHOT_RATIO, rows, np.nan))
        unsure = np.where(np.isnan(typical), 0.0, policy.SNAPSHOT_SHARE * typical)
        stood = Standing(level, above, unsure / policy.NOISE_SPREADS, limit, above > 0)
        yield from (_finding(s, _SNAPSHOT, suspect, stood) for suspect in _some(s, stood))
    jobs = list(s.memory.jobs)[-policy.REMEMBERED :]
    share = sum(row.spent["snapshot"] for row in jobs) / sum(row.step_s for row in jobs)
    if share >= s.thresholds.snapshot:
        yield _all(s, _SNAPSHOT, share, s.thresholds.snapshot)


def _some(s: LiveSituation, stood: Standing) -> list[Suspect]:
    """Who waits longer than the others do."""
    known = np.flatnonzero(~np.isnan(stood.level))
    if len(known) < 2:
        return []
    out = stood.out(known)
    if 2 * len(out) > len(known):
        return []  # most wait: that is not somebody's own fault
    return suspects(s.seats, stood, out)[: policy.NAMED_MAX]


def _finding(s: LiveSituation, wait: _Wait, suspect: Suspect, stood: Standing) -> Finding:
    share = min(suspect.level, 0.9)
    cost = 1.0 / (1.0 - share)
    excess_s = share * s.step_s
    lasting = float(np.mean(stood.above[suspect.ranks]))
    node = dict(suspect.place).get("node")
    where = f"node {node}" if node else suspect.text
    lonely = policy.UNCERTAIN if np.count_nonzero(~np.isnan(stood.level)) < 3 else 1.0
    return Finding(
        wait.kind,
        Level.CRITICAL if cost >= s.thresholds.critical_ratio else Level.DEGRADED,
        suspect.text,
        f"it {wait.waits} {excess_s:.3g} s longer per step than others, {share:.0%} of a step of "
        f"{s.step_s:.3g} s, and all ranks wait for it",
        place=suspect.place,
        confidence=often(round(lasting * len(s.newest)), len(s.newest)) * lonely,
        evidence=(
            ("excess_s_per_step", excess_s),
            ("excess_share_ratio", share),
            ("slowdown_alone_ratio", cost),
            ("step_s", s.step_s),
        ),
        recommendations=(Recommendation(wait.one.format(where=where), share, wait.effort),),
    )


def _all(s: LiveSituation, wait: _Wait, share: float, limit: float) -> Finding:
    seconds = share * s.step_s
    return Finding(
        wait.kind,
        Level.CRITICAL if 1.0 / (1.0 - min(share, 0.9)) >= s.thresholds.critical_ratio else Level.DEGRADED,
        "",
        f"a typical rank {wait.waits} for {share:.0%} of a step ({seconds:.3g} s of {s.step_s:.3g} s); more "
        f"than {limit:.0%} is a bottleneck",
        confidence=1.0,
        evidence=((f"{wait.phase}_share_ratio", share), ("wait_s_per_step", seconds)),
        recommendations=(Recommendation(wait.everybody, share - 0.25 * min(share, limit), wait.effort),),
    )
