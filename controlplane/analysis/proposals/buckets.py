"""Propose the size of DDP's buckets, by the all-reduces of a step and the communication that nothing hides.

DDP reduces a bucket while the backward pass computes the gradients of the next ones. The last bucket is
reduced when nothing is left to compute, so at least its transfer holds the step up. With e, the communication
of a step that even the rank waits for which waits least, and B, the largest bucket, buckets of b save
e (1 - b / B) at most, and no more than the backward pass can hide. What larger buckets would save is the time
that starting an all-reduce takes, which nobody measures: they are never proposed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from controlplane.analysis.proposals import policy
from controlplane.analysis.proposals.measured import NotMeasured, finite, number, section
from controlplane.analysis.proposals.proposal import Proposal, SettingChange, Withheld, unmeasured

if TYPE_CHECKING:
    from collections.abc import Iterator

SETTING = "bucket size"
BOUND = "communication_bound"
MIB = 1 << 20


def buckets(report: Mapping[str, Any], steps_ratio: float) -> Iterator[Proposal | Withheld]:
    """Smaller buckets, or why none. `steps_ratio`: the share of the job's time that passes within steps."""
    bound = _bound(report)
    if bound is None:
        yield unmeasured(SETTING, "no finding says that communication holds the job back")
        return
    try:
        step_s, backward = _typical(report)
        sizes, rank = _sizes(report, step_s)
        evidence = section(bound, "evidence")
        exposed_s, exposed = number(evidence, "transfer_s_per_step"), number(evidence, "transfer_share_ratio")
        sure = number(bound, "confidence")
    except NotMeasured as missing:
        yield unmeasured(SETTING, str(missing))
        return
    largest, total = max(sizes), sum(sizes)
    seen = (
        f"rank {rank} reduces {total / MIB:.3g} MiB of gradients per step in {len(sizes)} all-reduces of "
        f"{policy.BUCKET_BYTES_LEAST >> 10} KiB or more, {largest / MIB:.3g} MiB at most; {exposed_s:.3g} s "
        "of communication per step are hidden by nothing"
    )
    wanted = max(1, math.ceil(total / policy.BUCKETS_WANTED / MIB))
    if wanted * MIB * policy.FACTOR_LEAST > largest:
        yield Withheld(SETTING, f"{seen}: no smaller ones; what larger ones gain is not measured")
        return
    gain = min(exposed * (1.0 - wanted * MIB / largest), backward) * steps_ratio
    if gain < policy.GAIN_LEAST or sure < policy.CONFIDENCE_LEAST:
        yield Withheld(SETTING, f"{seen}: buckets of {wanted} MiB would gain {gain:.1%} at most")
        return
    yield Proposal(
        SETTING,
        f"Have DDP reduce gradients in smaller buckets: `bucket_cap_mb={wanted}`.",
        min(gain, 0.99),
        at_most=True,
        confidence=sure,
        changes=(SettingChange("bucket_cap_mb", f"buckets of up to {largest / MIB:.3g} MiB", str(wanted)),),
        reason=f"{seen}, and the backward pass, which could hide it, takes {backward:.0%} of a step",
        evidence=(
            ("largest_bytes", float(largest)),
            ("gradients_bytes", float(total)),
            ("reductions_count", float(len(sizes))),
            ("exposed_s_per_step", exposed_s),
            ("exposed_share_ratio", exposed),
            ("backward_share_ratio", backward),
        ),
    )


def _bound(report: Mapping[str, Any]) -> Mapping[str, Any] | None:
    findings = report.get("findings")
    rows = findings if isinstance(findings, list) else []
    return next((each for each in rows if isinstance(each, Mapping) and each.get("kind") == BOUND), None)


def _sizes(report: Mapping[str, Any], step_s: float) -> tuple[list[int], int]:
    """The bytes of each all-reduce of gradients in a step, and whose record says so. Raises NotMeasured."""
    row = report.get("reductions")
    if not isinstance(row, Mapping):
        raise NotMeasured(
            "no flight record of its ranks is known: `holdfast stacks JOB` brings them; then ask again"
        )
    if row.get("reason"):
        raise NotMeasured(f"by the flight record of rank {row.get('rank')}, {row['reason']}")
    sizes, every_s = [finite(each) for each in row.get("bytes_each") or ()], number(row, "every_s")
    if not sizes or every_s <= 0 or any(each is None or each < policy.BUCKET_BYTES_LEAST for each in sizes):
        raise NotMeasured(f"the flight record of rank {row.get('rank')} shows no all-reduces of gradients")
    times = min(policy.REDUCTIONS_MOST, max(1, round(step_s / every_s)))
    return [int(each) for each in sizes if each is not None] * times, int(number(row, "rank"))


def _typical(report: Mapping[str, Any]) -> tuple[float, float]:
    """The step of a typical rank (s), and its backward pass as a share of that. Raises NotMeasured."""
    anatomy = section(report, "anatomy")
    for each in anatomy.get("ranks") or ():
        if isinstance(each, Mapping) and each.get("rank") == anatomy.get("typical_rank"):
            return number(each, "step_s"), number(section(each, "shares"), "backward")
    raise NotMeasured("the anatomy has no typical rank, so it is not known what could hide communication")
