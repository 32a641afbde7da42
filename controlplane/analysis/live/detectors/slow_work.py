"""Find whose own work takes longer than that of peers with the same work, and why.

Own work is what a rank neither waits for nor copies: waiting is not slowness. Peers are the ranks of the same
pipeline stage. Somebody is named only where most peers are alike. Without such a majority (two ranks, two
nodes, one replica) ranks are compared with their own past, and a change names somebody with less confidence;
without a change nobody is named.

The newest minute names whoever is slow by the whole limit; the newest four minutes, those who are by half of
it (`lasting/standings.py`)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.iterations.levels import pieces
from controlplane.analysis.live import policy
from controlplane.analysis.live.detectors.causes import SlowCause, cause
from controlplane.analysis.live.history import low_median
from controlplane.analysis.live.lasting.standings import stands_apart
from controlplane.analysis.live.places import rank_suspect, suspects
from controlplane.analysis.live.readings import OWN
from controlplane.analysis.live.standing import mixed
from controlplane.analysis.robust import often
from controlplane.core.state.findings import Finding, Level

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controlplane.analysis.live.lasting.standings import LastingWork
    from controlplane.analysis.live.places import Suspect
    from controlplane.analysis.live.situation import LiveSituation
    from controlplane.analysis.live.table import Bools, Ints, Seats
    from controlplane.analysis.robust import Floats


def slow_work(s: LiveSituation) -> Iterator[Finding]:
    """Ranks, nodes and replicas whose own work takes longer than others'."""
    alone = _without_majority(s)
    standing = mixed(s.against_peers, s.against_itself, alone)
    named = np.zeros(len(alone), dtype=bool)
    for _, ranks in s.seats.stages:
        peers = ranks[~alone[ranks]]
        named[s.against_peers.out(peers)] = True
    changed = s.against_itself.out(s.judged)
    named[changed[alone[changed]]] = True
    found = suspects(s.seats, standing, np.flatnonzero(named))
    findings = [
        finding
        for each in found[: 4 * policy.NAMED_MAX]
        for finding in _findings(s, each, standing.level, named, alone)
    ]
    if s.lasting_work is not None:
        slight = _lasting(s.seats, s.lasting_work, found)
        findings += [
            finding
            for each in slight[: 4 * policy.NAMED_MAX]
            if (finding := _finding(s, each, s.lasting_work.alone))
        ]
    yield from findings[: policy.NAMED_MAX]
    if not findings:
        yield from _nobody(s, alone)


def _lasting(seats: Seats, work: LastingWork, before: list[Suspect]) -> list[Suspect]:
    """Those that minutes name, and `before` did not: among many peers by their level, else by how it has
    changed. The level is what they are slower by now, not by how much they have become slower."""
    taken = np.zeros(len(work.alone), dtype=bool)
    for each in before:
        taken[each.ranks] = True
    kept = []
    for each in (*_by_level(seats, work), *_by_change(seats, work)):
        if taken[each.ranks].any() or work.slower[each.ranks].mean() < policy.SUSTAINED_RATIO:
            continue
        taken[each.ranks] = True
        lonely = work.alone[each.ranks].any()
        level = each.level if lonely else float(np.median(work.peers.level[each.ranks]))
        kept.append(replace(each, level=level))
    return kept


def _by_level(seats: Seats, work: LastingWork) -> list[Suspect]:
    """Who is slower than many peers."""
    named = np.zeros(len(work.alone), dtype=bool)
    for _, ranks in seats.stages:
        named[work.peers.out(ranks[~work.unequal[ranks]])] = True
    kept = []
    for each in suspects(seats, work.peers, np.flatnonzero(named)):
        peers = ~work.unequal & np.isin(seats.stage, seats.stage[each.ranks])
        alike = ~work.unequal & (peers | ~named)  # of all stages: few peers may be alike by chance
        peers[each.ranks] = alike[each.ranks] = False
        if all(stands_apart(work.peers.level, each.ranks, np.flatnonzero(some)) for some in (peers, alike)):
            kept.append(each)
    return kept


def _by_change(seats: Seats, work: LastingWork) -> list[Suspect]:
    """Who has become slower than peers, or without a majority of these, than before."""
    named = np.zeros(len(work.alone), dtype=bool)
    for _, ranks in seats.stages:
        named[work.change.out(ranks[~work.alone[ranks]])] = True
    everybody = work.change.out(np.flatnonzero(~np.isnan(work.change.level)))
    named[everybody[work.alone[everybody]]] = True
    return suspects(seats, work.change, np.flatnonzero(named & work.slower))


def _without_majority(s: LiveSituation) -> Bools:
    """Ranks of stages where fewer than most are alike: with fewer than three, with half of them slow, or
    where most have become slow, as when a node has most of a stage."""
    alone = np.zeros(len(s.seats.stage), dtype=bool)
    for _, ranks in s.seats.stages:
        known = ranks[~np.isnan(s.against_peers.level[ranks])]
        slow = s.against_peers.lasting[known].sum()
        changed = s.against_itself.lasting[known].sum()
        alone[ranks] = len(known) < 3 or 2 * slow >= len(known) or 2 * changed >= len(known)
    return alone


def _findings(
    s: LiveSituation, suspect: Suspect, level: Floats, named: Bools, alone: Bools
) -> Iterator[Finding]:
    """The findings against a suspect: where it is several ranks, and these are not, those of them that stand
    out."""
    whole = _finding(s, suspect, alone)
    if whole is not None:
        yield whole
    elif len(suspect.ranks) > 1:
        for rank in suspect.ranks[named[suspect.ranks]]:
            single = _finding(s, rank_suspect(s.seats, int(rank), float(level[rank])), alone)
            if single is not None:
                yield single


def _finding(s: LiveSituation, suspect: Suspect, alone: Bools) -> Finding | None:
    """The finding against a suspect; None when it costs too little, or when it may be what is not known of
    its waits, or of those of most of its ranks."""
    each_s = s.work_s(*OWN)[suspect.ranks] * (1.0 - math.exp(-suspect.level))
    excess_s = float(np.max(each_s))
    cost = s.step_s / max(s.step_s - excess_s, 0.1 * s.step_s)
    waited_s = _waited_s(s, suspect.ranks)
    if cost < policy.COST_RATIO or low_median(each_s) < policy.WAITS_UNSURE * waited_s:
        return None
    ratio, lonely = math.exp(suspect.level), bool(alone[suspect.ranks].any())
    why = cause(s, suspect, lonely=lonely)
    began, slow, rows = _onset(s, suspect, lonely)
    peers = (
        "its own usual time (there is no majority of peers)" if lonely else "the typical rank of its stage"
    )
    since = "" if began is None else f" since step {began}"
    waits = ", waits for a CPU left out," if waited_s >= policy.COUNTED_WAIT * s.step_s else ""
    reason = (
        f"{why.subject_work}{waits} takes {ratio:.2f} times as long as {peers}{since}: {why.explanation}; "
        f"this alone makes a step {cost:.2f} times as long"
    )
    return Finding(
        why.kind,
        policy.level(ratio, cost, s.thresholds),
        why.subject,
        reason,
        place=why.place,
        confidence=often(slow, rows) * (policy.UNCERTAIN if lonely else 1.0) * why.confidence,
        evidence=(
            ("own_ratio", ratio),
            ("excess_s_per_step", excess_s),
            ("slowdown_alone_ratio", cost),
            ("slow_windows_count", float(slow)),
            ("windows_count", float(rows)),
            *why.evidence,
        ),
        recommendations=why.recommendations(1.0 - 1.0 / cost),
        first_step=began,
    )


def _waited_s(s: LiveSituation, ranks: Ints) -> float:
    """For how long (s per step) these ranks, or their peers if these do for longer, wait for a CPU."""
    waited, usual = s.spent["queued"][ranks], s.usual_spent["queued"][ranks]
    return float(np.nan_to_num(np.concatenate([waited, usual])).max())


def _onset(s: LiveSituation, suspect: Suspect, lonely: bool) -> tuple[int | None, int, int]:
    """The step in which it became slow (None: longer ago than is remembered), in how many of the newest rows
    it was slow, and how many there are."""
    ring = s.memory.change if lonely else s.memory.ratio
    rows = ring.newest(policy.REMEMBERED)[:, suspect.ranks].astype(np.float64)
    known = ~np.isnan(rows).any(axis=1)
    series = rows[known].mean(axis=1)
    limit = 0.5 * suspect.level
    recent = series[-policy.RECENT :]
    slow = int((recent > limit).sum())
    begin = len(series)
    for piece in reversed(pieces(series)):
        if piece.level <= limit:
            break
        begin = piece.begin
    if begin == len(series) or (begin == 0 and ring.count > policy.REMEMBERED):
        return None, slow, len(recent)
    jobs = list(s.memory.jobs)[-len(rows) :]
    return jobs[int(np.flatnonzero(known)[begin])].first_step, slow, len(recent)


def _nobody(s: LiveSituation, alone: Bools) -> Iterator[Finding]:
    """Work that lasts longer on some ranks, where no majority says which of them are odd."""
    if len(s.memory.jobs) < policy.RECENT or not alone.any():
        return
    level, limit = s.against_peers.level, s.against_peers.limit
    unsure = policy.NOISE_SPREADS * s.against_peers.unsure
    with np.errstate(invalid="ignore"):
        slow = np.flatnonzero(alone & s.against_peers.lasting & (level >= np.maximum(limit, unsure)))
    if not len(slow):
        return
    worst = int(slow[np.argmax(level[slow])])
    stage = s.seats.stage == s.seats.stage[worst]
    ratio, count = math.exp(float(level[worst])), int((stage & ~np.isnan(level)).sum())
    excess_s = float(s.work_s(*OWN)[worst]) * (1.0 - 1.0 / ratio)
    if excess_s < _waited_s(s, np.array([worst])):
        return  # too few CPUs hold the ranks up for longer, and that is told
    words = "two ranks" if count == 2 else f"{count} ranks, {len(slow)} of them slower"
    yield Finding(
        "uneven_work",
        Level.DEGRADED,
        "",
        f"the work of rank {worst} takes {ratio:.2f} times as long as that of its peers: "
        f"{words}, no majority, so nobody can say which is odd",
        confidence=policy.UNCERTAIN,
        evidence=(("own_ratio", ratio), ("peers_count", float(count))),
        recommendations=SlowCause.even_out(1.0 - 1.0 / ratio),
    )
