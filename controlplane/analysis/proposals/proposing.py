"""Make all proposals for a job from its report, the greatest gain first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controlplane.analysis.proposals import (
    buckets,
    checkpoints,
    heartbeat,
    loader,
    micro_batches,
    policy,
    recommended,
    spares,
)
from controlplane.analysis.proposals.measured import MeasuredTime, NotMeasured, section, time_of
from controlplane.analysis.proposals.proposal import Proposal, Tuning, Withheld, unmeasured

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

BY_ACCOUNT = (
    checkpoints.SETTING,
    spares.NODES,
    spares.PROCESSES,
    loader.SETTING,
    heartbeat.SETTING,
)
"""Parts of the settings that the job's account speaks for."""
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
    return Tuning(tuple(proposals), tuple(withheld))


def _all(
    report: Mapping[str, Any], time: MeasuredTime, failures: int | None
) -> Iterator[Proposal | Withheld]:
    told = list(recommended.of_findings(report, time.steps_ratio))
    if time.total_s < policy.TIME_LEAST_S:
        yield from told
        missing = f"the account has {time.total_s:.0f} s, and needs {policy.TIME_LEAST_S:.0f} s"
        for setting in BY_ACCOUNT:
            yield unmeasured(setting, missing)
    else:
        yield from loader.preferred(told, list(loader.loaders(report, time)))
        yield from checkpoints.copies(time, failures, _settings(report))
        yield from spares.nodes(time)
        yield from spares.processes(report)
        yield from heartbeat.heartbeats(report)
    yield from buckets.buckets(report, time.steps_ratio)
    yield from micro_batches.micro_batches(report, time.steps_ratio)


def _settings(report: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        return section(report, "settings")
    except NotMeasured:
        return {}
