"""Find processes whose memory grows and grows, and say when there will be none left.

Warm-up grows memory too, less and less: allocators and caches fill up. So a leak has to have grown steadily
(`controlplane.analysis.trends.slopes`): in the newer half of all samples about as fast as in the older half.
Ranks are named one by one only for what they grow more than a typical rank."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.live import policy
from controlplane.analysis.live.places import rank_suspect
from controlplane.analysis.trends.slopes import steady_growth
from controlplane.core.records.words import GIB
from controlplane.core.state.findings import Effort, Finding, Level, Recommendation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controlplane.analysis.live.situation import LiveSituation
    from controlplane.analysis.robust import Floats


@dataclass(frozen=True, slots=True)
class _Leak:
    rank: int
    bytes_per_s: float
    bytes_per_step: float
    now_bytes: float
    limit_bytes: float  # 0: not known

    @property
    def left_s(self) -> float:
        """In how many seconds its memory is full; infinite where no limit is known."""
        if self.limit_bytes <= 0:
            return math.inf
        return max(0.0, self.limit_bytes - self.now_bytes) / self.bytes_per_s


def memory_leak(s: LiveSituation) -> Iterator[Finding]:
    """Memory that grows steadily: of all ranks, as one finding, or of ranks more than of a typical one."""
    samples = s.memory.memory
    values, growth = samples.values, samples.growth
    now = samples.newest
    ranks = int(np.isfinite(now).sum())
    if len(values) < policy.LEAK_LEAST or not ranks:
        return
    with np.errstate(invalid="ignore"):
        left = s.table.values["memory_limit_bytes"] - now
        limited = left > -now
    fullest = int(np.argmin(np.where(limited, left, np.inf)) if limited.any() else np.nanargmax(now))
    if leak := _leak(s, fullest, growth, now[fullest]):
        yield _finding(s, leak, everybody=ranks if ranks > 1 else 0)
    if ranks < 2:
        return
    own = values - samples.first - growth[:, None]  # by how much each has grown more than a typical one
    thirds = len(values) // 3
    first, middle, last = (
        _known_mean(own[part]) for part in (slice(thirds), slice(thirds, -thirds), slice(-thirds, None))
    )
    with np.errstate(invalid="ignore"):
        grows = np.flatnonzero((last - first > policy.LEAK_RATIO * now) & (middle > first) & (last > middle))
    order = grows[np.argsort(-(last - first)[grows], kind="stable")][: policy.LEAK_SUSPECTS]
    found = [_leak(s, int(rank), own[:, rank], now[rank]) for rank in order]
    leaks = [each for each in found if each is not None]
    for each in sorted(leaks, key=lambda each: (each.left_s, -each.bytes_per_s, each.rank))[
        : policy.NAMED_MAX
    ]:
        yield _finding(s, each)


def _known_mean(rows: Floats) -> Floats:
    """The mean of each column over the rows in which it is known; NaN: in none."""
    known = ~np.isnan(rows)
    with np.errstate(invalid="ignore"):
        mean: Floats = np.where(known, rows, 0.0).sum(axis=0) / known.sum(axis=0)
    return mean


def _leak(s: LiveSituation, rank: int, values: Floats, now_bytes: float) -> _Leak | None:
    """The leak of a rank whose samples have grown by `values`; None when they grow less and less."""
    known = ~np.isnan(values)
    if known.sum() < policy.LEAK_LEAST:
        return None
    times, values = s.memory.memory.times[known], values[known]
    if times[-1, 1] - times[0, 1] < policy.LEAK_STEPS:
        return None
    seconds = times[:, 0]
    whole = steady_growth(seconds, values, policy.LEAK_RATIO * now_bytes)
    if whole is None:
        return None
    steps = max(1.0, times[-1, 1] - times[0, 1])
    per_step = whole * (seconds[-1] - seconds[0]) / steps
    limit = float(s.table.values["memory_limit_bytes"][rank])
    found = _Leak(rank, whole, per_step, float(now_bytes), 0.0 if math.isnan(limit) else limit)
    return found if found.left_s <= policy.LEAK_FAR_S or found.limit_bytes <= 0 else None


def _finding(s: LiveSituation, leak: _Leak, everybody: int = 0) -> Finding:
    who = rank_suspect(s.seats, leak.rank, 0.0)
    subject = (
        "its memory" if not everybody else f"the memory of all {everybody} ranks alike, {who.text} for one,"
    )
    reason = (
        f"{subject} grows steadily by {leak.bytes_per_step / 2**20:.3g} MiB per step "
        f"({leak.bytes_per_s * 3600.0 / GIB:.3g} GiB per hour), and is {leak.now_bytes / GIB:.3g} GiB now"
    )
    evidence: tuple[tuple[str, float | str], ...] = (
        ("growth_bytes_per_step", leak.bytes_per_step),
        ("growth_bytes_per_s", leak.bytes_per_s),
        ("memory_bytes", leak.now_bytes),
    )
    if math.isfinite(leak.left_s):
        step = s.job.last_step + (leak.limit_bytes - leak.now_bytes) / leak.bytes_per_step
        reason += (
            f"; at this rate the limit of {leak.limit_bytes / GIB:.3g} GiB is reached in "
            f"{leak.left_s / 3600.0:.3g} hours, at about step {step:.0f}"
        )
        evidence += (("out_of_memory_in_s", leak.left_s), ("out_of_memory_step", step))
    return Finding(
        "memory_leak",
        Level.CRITICAL if leak.left_s <= policy.LEAK_SOON_S else Level.DEGRADED,
        who.text if not everybody else "",
        reason,
        place=who.place if not everybody else (),
        confidence=0.9,
        evidence=evidence,
        recommendations=(
            Recommendation(
                "Look for what the script keeps over steps: losses with their graphs (use `.item()`), lists "
                "of outputs, caches without a bound, loader workers.",
                None,
                Effort.MEDIUM,
            ),
        ),
    )
