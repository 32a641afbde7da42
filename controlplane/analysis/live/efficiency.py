"""Compute what a job's devices achieve: samples and tokens per second, and MFU.

MFU is the share of the devices' peak that the model's own operations take (Chowdhery et al., "PaLM" (2022),
appendix B): operations per second over the sum of the peaks of all devices. Time is that of the steps: what
is lost between them is goodput's. A rank's operations are those that its script declares
(`session.count(flops=)`); else a token's (`holdfast.anatomy.compute`) times the job's tokens, summed up over
the pipeline stages. The ranks of one tensor group work on the same tokens, so they count once; those of
different replicas and context groups work on different ones. An MFU that cannot be known is None, with the
reason, and so is one above 1."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from controlplane.analysis.live.readings import JobWindow, RankWindow, RankWork

COUNTED = "counted"
HOW = (COUNTED, "declared", "")
"""Notes of a rank that are no reason why something is not known (`holdfast.ipc.rank_facts`)."""
NO_TOKENS = "the script counts no tokens and no operations: session.count(tokens=...)"


@dataclass(frozen=True, slots=True)
class Efficiency:
    """What a job's devices achieved in one window. None: not known; for `mfu`, `reason` says why."""

    samples_per_s: float | None = None
    tokens_per_s: float | None = None
    flops_per_s: float | None = None
    peak_flops: float | None = None  # of all devices together
    mfu: float | None = None
    reason: str = "no rank has completed a step"


FAILED = Efficiency(reason="it could not be computed: see the failed detectors")


def of_window(window: JobWindow) -> Efficiency:
    """What the job's devices achieved in this window."""
    rows = [row for row in window.ranks if _usable(row)]
    if not rows:
        return Efficiency()
    samples = _rate(rows, attrgetter("samples"), attrgetter("dp_rank"))
    tokens = _rate(rows, attrgetter("tokens"), attrgetter("dp_rank", "cp_rank"))
    works = {work.rank: work for work in window.work}
    flops, why = _flops(rows, works, tokens)
    peak, why_peak = _peak(rows, works, window.ranks_expected)
    found = Efficiency(samples, tokens, flops, peak, reason=why or why_peak)
    if flops is None or peak is None:
        return found
    if flops > peak:
        reason = (
            f"impossible: {flops:.3g} operations per second are more than the peak of {peak:.3g}: the peak "
            "or the count is wrong"
        )
        return Efficiency(samples, tokens, flops, peak, reason=reason)
    return Efficiency(samples, tokens, flops, peak, flops / peak, "")


def _usable(row: RankWindow) -> bool:
    """Whether its numbers can be: NaN compares with nothing."""
    return (
        row.steps > 0
        and 0.0 < row.wall_s < math.inf
        and 0.0 <= row.samples < math.inf
        and 0.0 <= row.tokens < math.inf
        and 0.0 <= row.flops < math.inf
    )


def _rate(
    rows: Iterable[RankWindow], what: Callable[[RankWindow], float], share: Callable[[RankWindow], Hashable]
) -> float | None:
    """The sum over all shares of the work, each as the mean of its ranks that count; None: nobody does."""
    sums: dict[Hashable, float] = defaultdict(float)
    counts: dict[Hashable, int] = defaultdict(int)
    for row in rows:
        if (amount := what(row)) > 0:
            key = share(row)
            sums[key] += amount / row.wall_s
            counts[key] += 1
    return sum(total / counts[key] for key, total in sums.items()) if sums else None


def _flops(
    rows: list[RankWindow], works: dict[int, RankWork], tokens_per_s: float | None
) -> tuple[float | None, str]:
    """Operations per second of the whole job; None with the reason why that is not known."""
    declaring = [row for row in rows if row.flops > 0]
    if 0 < len(declaring) < len(rows):
        return None, f"only {len(declaring)} of {len(rows)} ranks count operations"
    if declaring:
        return sum(row.flops / row.wall_s for row in rows), ""
    if tokens_per_s is None:
        return None, NO_TOKENS
    by_stage: dict[int, list[float]] = defaultdict(list)
    sharded = any(row.tp_rank > 0 for row in rows)
    for row in rows:
        if why := _unknown_token(works.get(row.rank), sharded):
            return None, f"rank {row.rank}: {why}"
        by_stage[row.stage].append(works[row.rank].token_flops)
    return tokens_per_s * sum(sum(each) / len(each) for each in by_stage.values()), ""


def _unknown_token(work: RankWork | None, sharded: bool) -> str:
    """Why it is not known what a token costs in a rank's stage; "": it is."""
    if work is None:
        return "its agent or its SDK is older than MFU"
    if work.token_flops <= 0:
        return work.note
    if sharded and work.note == COUNTED:
        return "with tensor parallelism nobody counts the parameters of a stage: declare `parameters`"
    return ""


def _peak(rows: list[RankWindow], works: dict[int, RankWork], ranks: int) -> tuple[float | None, str]:
    """The peak of all devices together; None with the reason why that is not known."""
    if len(rows) < ranks:
        return None, f"only {len(rows)} of {ranks} ranks have reported steps in this window"
    total = 0.0
    for row in rows:
        work = works.get(row.rank)
        if work is None:
            return None, f"rank {row.rank}: its agent or its SDK is older than MFU"
        if work.peak_flops <= 0:
            return None, f"rank {row.rank}: {work.note}"
        total += work.peak_flops
    return total, ""
