"""Make all proposals for a job from its report, the greatest gain first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controlplane.analysis.proposals import checkpoints, policy, recommended, waits
from controlplane.analysis.proposals.measured import MeasuredTime, NotMeasured, time_of
from controlplane.analysis.proposals.proposal import Proposal, Tuning, Withheld, unmeasured

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NEVER = (
    unmeasured("micro-batch", "the report has neither the free memory of ranks nor steps of other sizes"),
    unmeasured("bucket size", "the report has no sizes and times of single collectives"),
    unmeasured("heartbeat", "the account does not tell how long failures were not noticed"),
)
"""What no report says anything about."""
BY_FINDINGS = {
    "communication": "no finding says that communication holds the job back",
    "layout": "no finding says that a stage is overfull",
    "placement": "no finding names a slow rank or node",
}
"""Parts of the settings that only findings speak for -> what is said while none does."""


def propose(report: Mapping[str, Any], failures: int | None) -> Tuning:
    """What to change of a running job, from its health report (`Admin.Diagnose`).

    `failures`: how many it has survived; None: not known. Each gain is that of a proposal alone: two of them
    may save the same time."""
    try:
        time = time_of(report)
    except NotMeasured as missing:
        return Tuning((), (unmeasured("all", f"{missing}, so no gain can be computed"),))
    found = list(_all(report, time, failures))
    proposals = [each for each in found if isinstance(each, Proposal) and 0.0 < each.gain_ratio < 1.0]
    proposals.sort(key=lambda each: (-each.gain_ratio, each.setting, each.action))
    withheld = [each for each in found if isinstance(each, Withheld)]
    named = {each.setting for each in found}
    withheld += [unmeasured(name, why) for name, why in BY_FINDINGS.items() if name not in named]
    return Tuning(tuple(proposals), (*withheld, *NEVER))


def _all(
    report: Mapping[str, Any], time: MeasuredTime, failures: int | None
) -> Iterator[Proposal | Withheld]:
    found = list(recommended.of_findings(report, time.steps_ratio))
    yield from found
    if time.total_s < policy.TIME_LEAST_S:
        missing = f"the account has {time.total_s:.0f} s, and needs {policy.TIME_LEAST_S:.0f} s"
        for setting in (checkpoints.SETTING, waits.SPARES, waits.LOADER):
            yield unmeasured(setting, missing)
        return
    yield from checkpoints.copies(time, failures)
    yield from waits.spares(time)
    if not any(isinstance(each, Proposal) and each.setting == waits.LOADER for each in found):
        yield from waits.loader(time)
