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
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from controlplane.analysis.live.readings import JobWindow, RankWork
    from controlplane.analysis.live.table import Reported
    from controlplane.analysis.robust import Floats

COUNTED = "counted"
HOW = (COUNTED, "declared", "")
"""Notes of a rank that are no reason why something is not known (`holdfast.ipc.rank_facts`)."""
OLDER = "its agent or its SDK is older than MFU"
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


def of_window(window: JobWindow, reported: Reported) -> Efficiency:
    """What the job's devices achieved in this window, of which `reported` are the rows."""
    usable = np.flatnonzero(_usable(reported))
    if not len(usable):
        return Efficiency()
    rows = UsableRows(reported, usable)
    samples = _rate(rows, "samples", ("dp_rank",))
    tokens = _rate(rows, "tokens", ("dp_rank", "cp_rank"))
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


class UsableRows:
    """The rows that count, in columns."""

    def __init__(self, reported: Reported, which: NDArray[np.int64]) -> None:
        self._reported, self._which = reported, which

    def __len__(self) -> int:
        return len(self._which)

    def __getitem__(self, field: str) -> Floats:
        return self._reported[field][self._which]

    def whole(self, field: str) -> NDArray[np.int64]:
        """One of the whole numbers of their seats."""
        return self._reported.whole(field)[self._which]


def _usable(reported: Reported) -> NDArray[np.bool_]:
    """The rows whose numbers can be: NaN compares with nothing."""
    found = (reported["steps"] > 0) & (reported["wall_s"] > 0.0) & (reported["wall_s"] < math.inf)
    for name in ("samples", "tokens", "flops"):
        found &= (reported[name] >= 0.0) & (reported[name] < math.inf)
    return found


def _rate(rows: UsableRows, what: str, share: tuple[str, ...]) -> float | None:
    """The sum over all shares of the work, each as the mean of its ranks that count; None: nobody does."""
    amounts = rows[what]
    counting = amounts > 0
    if not counting.any():
        return None
    shares = np.zeros(int(counting.sum()), dtype=np.int64)
    for field in share:
        names, place = np.unique(rows.whole(field)[counting], return_inverse=True)
        _, shares = np.unique(shares * len(names) + place, return_inverse=True)
    sums = np.bincount(shares, weights=amounts[counting] / rows["wall_s"][counting])
    return float((sums / np.bincount(shares)).sum())


def _flops(
    rows: UsableRows, works: dict[int, RankWork], tokens_per_s: float | None
) -> tuple[float | None, str]:
    """Operations per second of the whole job; None with the reason why that is not known."""
    flops = rows["flops"]
    declaring = int((flops > 0).sum())
    if 0 < declaring < len(rows):
        return None, f"only {declaring} of {len(rows)} ranks count operations"
    if declaring:
        return float((flops / rows["wall_s"]).sum()), ""
    if tokens_per_s is None:
        return None, NO_TOKENS
    by_stage: dict[int, list[float]] = defaultdict(list)
    sharded = bool((rows.whole("tp_rank") > 0).any())
    for rank, stage in zip(rows.whole("rank").tolist(), rows.whole("stage").tolist(), strict=True):
        work = works.get(rank)
        if work is None or work.token_flops <= 0 or (sharded and work.note == COUNTED):
            return None, f"rank {rank}: {_unknown_token(work)}"
        by_stage[stage].append(work.token_flops)
    return tokens_per_s * sum(sum(each) / len(each) for each in by_stage.values()), ""


def _unknown_token(work: RankWork | None) -> str:
    """Why it is not known what a token costs in a rank's stage."""
    if work is None:
        return OLDER
    if work.token_flops <= 0:
        return work.note
    return "with tensor parallelism nobody counts the parameters of a stage: declare `parameters`"


def _peak(rows: UsableRows, works: dict[int, RankWork], ranks: int) -> tuple[float | None, str]:
    """The peak of all devices together; None with the reason why that is not known."""
    if len(rows) < ranks:
        return None, f"only {len(rows)} of {ranks} ranks have reported steps in this window"
    total = 0.0
    for rank in rows.whole("rank").tolist():
        work = works.get(rank)
        if work is None or work.peak_flops <= 0:
            return None, f"rank {rank}: {OLDER if work is None else work.note}"
        total += work.peak_flops
    return total, ""
