"""Propose how far apart the states are that a failure goes back to.

The interval is not in a job's report, but what it costs is. Let delta be the stall of a copy, tau the
training between two, and s = delta / tau, the time that snapshots took over productive time. A failure
without memory comes in tau, and loses half of it on average, or in delta, and loses all. So the time redone
per failure is tau (1/2 + s) / (1 + s), which gives tau. With M, the mean time between failures, and R, that
of a recovery, the best interval is about sqrt(2 delta M) (Young, CACM 17(9), 1974), and what is kept at any
interval is `ettr_exact` (Daly, FGCS 22(3), 2006, eq. 20). The proposal is a factor, so it holds for
snapshots and checkpoints together, whichever was gone back to.

M is known to within 1 / sqrt(failures). The gain is the least of those with one such deviation more, fewer
and none."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.analysis.intervals import ettr_exact, young
from controlplane.analysis.proposals import policy
from controlplane.analysis.proposals.measured import MeasuredTime, NotMeasured
from controlplane.analysis.proposals.proposal import Proposal, SettingChange, Withheld, rate_known, unmeasured
from controlplane.core.records.words import Cause

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

SETTING = "snapshots"
RECOVERY = tuple(cause.value for cause in Cause if cause is not Cause.RESIZED)
"""Causes of failures: the account counts a recovery as its cause."""


@dataclass(frozen=True, slots=True)
class CopyCosts:
    """What the interval between copies of a job's state costs it (s), and from how many failures."""

    interval_s: float  # tau: training between two copies
    stall_s: float  # delta: of one copy
    recovery_s: float  # R: mean
    exposed_s: float  # time in which the failures happened
    redone_s: float  # steps made again after all of them
    failures: int

    @property
    def mtbf_s(self) -> float:
        """M: mean time between failures (s)."""
        return self.exposed_s / self.failures

    def kept(self, interval_s: float, failures: float) -> float:
        """The share of time that is kept with this interval, if there were so many failures."""
        return ettr_exact(interval_s, self.stall_s, self.exposed_s / failures, self.recovery_s)


def costs(time: MeasuredTime, failures: int | None) -> CopyCosts:
    """What copies and failures have cost. Raises NotMeasured."""
    if failures is None:
        raise NotMeasured("the number of the job's failures is not known")
    if failures < policy.FAILURES_LEAST:
        raise NotMeasured(
            f"{failures} failures so far, and the mean time between them needs {policy.FAILURES_LEAST}"
        )
    copied_s, redone_s = time.lost("snapshot"), time.lost("redone")
    exposed_s = time.total_s - time.lost("waiting")
    if exposed_s <= 0 or time.productive_s <= 0:
        raise NotMeasured("the job has made no steps")
    if copied_s < policy.COST_LEAST_S:
        raise NotMeasured(f"snapshots have cost {copied_s:.2g} s: too little to say what one costs")
    if redone_s < policy.COST_LEAST_S:
        raise NotMeasured(f"after {failures} failures {redone_s:.2g} s of steps were redone: too little")
    stall_ratio = copied_s / time.productive_s
    interval_s = redone_s / failures * (1.0 + stall_ratio) / (0.5 + stall_ratio)
    recovery_s = (time.lost(*RECOVERY) + time.lost("restore")) / failures
    return CopyCosts(interval_s, interval_s * stall_ratio, recovery_s, exposed_s, redone_s, failures)


def copies(
    time: MeasuredTime, failures: int | None, settings: Mapping[str, Any]
) -> Iterator[Proposal | Withheld]:
    """One proposal, or the reason why there is none. `settings`: the job's own, {} if they are not known."""
    try:
        found = costs(time, failures)
    except NotMeasured as missing:
        yield unmeasured(SETTING, str(missing))
        return
    wanted = young(found.stall_s, found.mtbf_s) / found.interval_s
    factor = min(policy.FACTOR_MOST, max(1.0 / policy.FACTOR_MOST, wanted))
    if 1.0 / policy.FACTOR_LEAST < factor < policy.FACTOR_LEAST:
        yield Withheld(SETTING, f"the interval is near the best: {wanted:.2f} times it would be the optimum")
        return
    after_s = factor * found.interval_s
    known = found.exposed_s / time.total_s
    spread = math.sqrt(found.failures)
    gains = [
        known * (found.kept(after_s, times) - found.kept(found.interval_s, times))
        for times in (found.failures, found.failures - spread, found.failures + spread)
    ]
    if min(gains) < policy.GAIN_LEAST:
        yield Withheld(SETTING, f"another interval would gain {max(0.0, min(gains)):.1%}: too little to tell")
        return
    yield _proposal(found, factor, after_s, gains, settings)


def _changes(settings: Mapping[str, Any], factor: float) -> tuple[SettingChange, ...]:
    """The job's intervals, in steps, brought to the new ones; (): Holdfast chooses one of them itself, or
    they are not known. Checkpoints stay at a multiple of snapshots, as jobs must have them."""
    snapshots, checkpoints = settings.get("snapshot_every"), settings.get("checkpoint_every")
    if not isinstance(snapshots, int) or not isinstance(checkpoints, int) or min(snapshots, checkpoints) < 1:
        return ()
    if settings.get("snapshot_auto") or settings.get("checkpoint_auto") or settings.get("checkpoint_every_s"):
        return ()
    each = max(1, round(factor * snapshots))
    every = each * max(1, round(factor * checkpoints / each))
    wanted = ("--snapshot-every", snapshots, each), ("--checkpoint-every", checkpoints, every)
    named = wanted if settings.get("storage") else wanted[:1]
    return tuple(SettingChange(name, str(old), str(new)) for name, old, new in named if old != new)


def _proposal(
    found: CopyCosts, factor: float, after_s: float, gains: list[float], settings: Mapping[str, Any]
) -> Proposal:
    rarer = factor > 1.0
    way = f"{factor:.1f} times as far apart" if rarer else f"{1.0 / factor:.1f} times as often"
    change = f"multiply them by {factor:.1f}" if rarer else f"divide them by {1.0 / factor:.1f}"
    return Proposal(
        SETTING,
        f"Copy the state {way} (`--snapshot-every` and `--checkpoint-every`: {change}).",
        min(gains),
        at_most=False,
        confidence=rate_known(found.failures),
        changes=_changes(settings, factor),
        reason=(
            f"{found.failures} failures, one every {found.mtbf_s:.0f} s, lost "
            f"{found.redone_s / found.failures:.3g} s of steps each: by that, copies are "
            f"{found.interval_s:.3g} s apart, and each holds training up for {found.stall_s:.3g} s; "
            f"a recovery takes {found.recovery_s:.3g} s"
        ),
        evidence=(
            ("interval_s", found.interval_s),
            ("stall_s", found.stall_s),
            ("mtbf_s", found.mtbf_s),
            ("recovery_s", found.recovery_s),
            ("failures_count", float(found.failures)),
            ("proposed_interval_s", after_s),
            ("expected_gain_ratio", gains[0]),
            ("kept_now_ratio", found.kept(found.interval_s, found.failures)),
            ("kept_then_ratio", found.kept(after_s, found.failures)),
        ),
    )
