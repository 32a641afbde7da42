"""Find ranks that work for longer because they wait for a CPU: too many processes on a node, or a quota.

Nobody of these is slow by itself: `cpu_waits.py` takes the waits off before anybody is compared. What is
found is about the node, or about the limit of a cgroup. Nothing is said where the kernel's counts are not
known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.live import policy
from controlplane.analysis.live.history import median_of_rows
from controlplane.analysis.live.places import rank_suspect
from controlplane.analysis.robust import often
from controlplane.core.state.findings import Effort, Finding, Level, Recommendation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controlplane.analysis.live.places import Place
    from controlplane.analysis.live.situation import LiveSituation
    from controlplane.analysis.live.table import Bools, Ints
    from controlplane.analysis.robust import Floats


@dataclass(frozen=True, slots=True)
class _Waits:
    """Waits of one kind, as a share of a step: of each rank the median over the newest rows (NaN: not known),
    and in which share of the rows they exceed half of what is too much. `rows`: more of the newest."""

    level: Floats
    above: Floats
    limit: float
    rows: Floats

    def lately(self, ranks: Bools) -> Floats:
        """The median of these ranks over more rows; NaN: of others, or not known."""
        found = np.full(len(self.level), np.nan)
        if ranks.any():
            found[ranks], _ = median_of_rows(self.rows[:, ranks].astype(np.float32))
        return found

    @property
    def long(self) -> Bools:
        """Who waits too long, and did in most rows."""
        with np.errstate(invalid="ignore"):
            return (self.level >= self.limit) & (self.above >= policy.SUSTAINED_RATIO)


def crowding(s: LiveSituation) -> Iterator[Finding]:
    """Nodes where ranks wait for a CPU, and ranks or nodes that a quota holds up."""
    queued = s.memory.queued.newest(policy.HIT_ROWS).astype(np.float64)
    held = np.nan_to_num(s.memory.throttled.newest(policy.HIT_ROWS).astype(np.float64))
    throttled = _waits(np.where(np.isnan(queued), np.nan, held), policy.THROTTLED_RATIO)
    crowded = _waits(queued - held, policy.CROWDED_RATIO)
    for text, place, ranks in _places(s, "cpu_throttled", throttled, whole=False):
        yield _throttled(s, text, place, throttled, ranks)
    for text, place, ranks in _places(s, "crowded_cpu", crowded, whole=True):
        yield _crowded(s, text, place, crowded, ranks)


def _waits(rows: Floats, limit: float) -> _Waits:
    newest = rows[-policy.RECENT :]
    level, count = median_of_rows(newest.astype(np.float32))
    with np.errstate(invalid="ignore"):
        above = (newest > 0.5 * limit).sum(axis=0) / np.maximum(count, 1)
    enough = count >= policy.LEAST
    return _Waits(np.where(enough, level, np.nan), np.where(enough, above, 0.0), limit, rows)


def _places(s: LiveSituation, kind: str, waits: _Waits, *, whole: bool) -> Iterator[tuple[str, Place, Ints]]:
    """Where ranks wait too long: the worst nodes first, with the ranks that wait. Where most nodes are hit,
    or were when that was first found: everywhere, as one place. `whole`: never single ranks of a node."""
    places, node = s.memory.hit[kind], s.seats.node
    lately = waits.lately(waits.long | places.stood(node))
    hit = places.renew(node, len(s.seats.nodes), waits.long, lately, waits.limit)
    with np.errstate(invalid="ignore"):
        still = np.isin(node, hit) & (lately >= policy.HIT_STILL * waits.limit)
    long = waits.long | still
    if places.everywhere:
        yield "", (), np.flatnonzero(long)
        return
    hit.sort(key=lambda each: -float(np.nanmax(lately[node == each])))
    for each in hit[: policy.NAMED_MAX]:
        here = (node == each) & ~(np.isnan(lately) & np.isnan(waits.level))
        ranks = np.flatnonzero(here & long)
        if whole or len(ranks) >= policy.NODE_RATIO * here.sum():
            name = s.seats.nodes[each]
            yield f"node {name}", (("node", name), ("rank", None)), ranks
            continue
        for rank in ranks[: policy.NAMED_MAX]:
            who = rank_suspect(s.seats, int(rank), 0.0)
            yield who.text, who.place, who.ranks


def _share(waits: _Waits, ranks: Ints) -> float:
    """How long the rank of these waits that waits longest, as a share of a step."""
    known = waits.level[ranks]
    if np.isnan(known).all():
        chosen = np.zeros(len(waits.level), dtype=bool)
        chosen[ranks] = True
        known = waits.lately(chosen)[ranks]
    return float(np.nanmax(known))


def _crowded(s: LiveSituation, text: str, place: Place, waits: _Waits, ranks: Ints) -> Finding:
    nodes = len(np.unique(s.seats.node[ranks]))
    who = "its ranks wait" if text else f"ranks on {nodes} of {len(s.seats.nodes)} nodes wait"
    share = _share(waits, ranks)
    return Finding(
        "crowded_cpu",
        Level.DEGRADED,  # never critical: nothing is broken
        text,
        f"{who} for a CPU for {share * s.step_s:.3g} s per step, {share:.0%} of a step of {s.step_s:.3g} s: "
        "more processes and threads want to run than there are CPUs; by that, no rank is slow itself",
        place=place,
        confidence=_confidence(s, waits, ranks),
        evidence=_evidence(s, share, ranks),
        recommendations=(
            Recommendation(
                "Move other processes away, or give the job nodes of its own.", share, Effort.MEDIUM
            ),
            Recommendation(
                "Start fewer loader workers and threads per rank (OMP_NUM_THREADS) than it has cores.",
                share,
                Effort.LOW,
            ),
        ),
    )


def _throttled(s: LiveSituation, text: str, place: Place, waits: _Waits, ranks: Ints) -> Finding:
    share = _share(waits, ranks)
    limits = s.table.values["cpu_limit"][ranks]
    limits = limits[limits > 0.0]
    limit = f"the limit of its cgroup ({limits.min():.3g} CPUs)" if limits.size else "the limit of its cgroup"
    whom = "it" if len(ranks) == 1 else "its ranks" if text else "ranks on several nodes"
    return Finding(
        "cpu_throttled",
        _severity(s, share),
        text,
        f"{limit} holds {whom} up for {share * s.step_s:.3g} s per step, {share:.0%} of a step of "
        f"{s.step_s:.3g} s",
        place=place,
        confidence=_confidence(s, waits, ranks),
        evidence=(
            *_evidence(s, share, ranks),
            *((("cpu_limit_count", float(limits.min())),) if limits.size else ()),
        ),
        recommendations=(
            Recommendation(f"Raise the CPU limit of {text or 'all nodes'}.", share, Effort.LOW),
            Recommendation(
                "Start fewer loader workers and threads per rank than the limit has CPUs.", share, Effort.LOW
            ),
        ),
    )


def _severity(s: LiveSituation, share: float) -> Level:
    grave = 1.0 / (1.0 - min(share, 0.9)) >= s.thresholds.critical_ratio
    return Level.CRITICAL if grave else Level.DEGRADED


def _confidence(s: LiveSituation, waits: _Waits, ranks: Ints) -> float:
    return often(round(float(np.mean(waits.above[ranks])) * len(s.newest)), len(s.newest))


def _evidence(s: LiveSituation, share: float, ranks: Ints) -> tuple[tuple[str, float | str], ...]:
    return (
        ("wait_s_per_step", share * s.step_s),
        ("wait_share_ratio", share),
        ("ranks_count", float(len(ranks))),
        ("step_s", s.step_s),
    )
