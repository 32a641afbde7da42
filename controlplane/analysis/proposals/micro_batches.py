"""Propose larger micro-batches, where a device waits for the launches of small kernels and memory is free.

Twice the micro-batch takes half the launches for the same samples. With w, the share of the time in which the
device waits, a step becomes max(1 - w, 1/2) of itself at best. In all other cases it depends on how a step's
time goes with its size, and a job has steps of one size only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from controlplane.analysis.proposals import policy
from controlplane.analysis.proposals.measured import NotMeasured, number, section
from controlplane.analysis.proposals.proposal import Proposal, Withheld, unmeasured
from controlplane.core.records.words import GIB

if TYPE_CHECKING:
    from collections.abc import Iterator

SETTING = "micro-batch"
SMALL = "small_kernels"


def micro_batches(report: Mapping[str, Any], steps_ratio: float) -> Iterator[Proposal | Withheld]:
    """Micro-batches of twice the size, or why none. `steps_ratio`: the share of the job's time that passes
    within steps."""
    findings = report.get("findings")
    rows = findings if isinstance(findings, list) else []
    small = next((each for each in rows if isinstance(each, Mapping) and each.get("kind") == SMALL), None)
    try:
        room = section(report, "memory")
        peak, limit = number(room, "peak_bytes", 1.0), number(room, "limit_bytes", 1.0)
        samples, rank = number(room, "samples"), int(number(room, "rank"))
        full = f"rank {rank}, the fullest, has a peak of {peak / GIB:.3g} of {limit / GIB:.3g} GiB"
        if small is None:
            yield unmeasured(SETTING, f"{full}; how a step's time goes with its size: all steps are alike")
            return
        waiting = number(section(small, "evidence"), "device_waiting_ratio")
        sure = number(small, "confidence")
    except NotMeasured as missing:
        yield unmeasured(SETTING, str(missing))
        return
    waits = f"in a profile, a device waited for launches for {waiting:.0%} of the time at least; {full}"
    gain = min(waiting, 0.5) * steps_ratio
    if peak > policy.MEMORY_RATIO * limit:
        yield Withheld(SETTING, f"{waits}: twice the micro-batch may not fit")
    elif gain < policy.GAIN_LEAST or sure < policy.CONFIDENCE_LEAST:
        yield Withheld(SETTING, f"{waits}: twice the micro-batch would gain {gain:.1%} at most")
    else:
        per_step = f", {samples:.0f} samples of a step on this rank" if samples else ""
        yield Proposal(
            SETTING,
            "Make micro-batches twice as large, and accumulate half as many of them, so that a step keeps "
            "its samples. Where a step has one, it would have twice the samples: that changes the training.",
            gain,
            at_most=True,
            confidence=sure,
            reason=f"{waits}{per_step}",
            evidence=(
                ("device_waiting_ratio", waiting),
                ("memory_peak_bytes", peak),
                ("memory_limit_bytes", limit),
                ("samples_per_step", samples),
                ("steps_ratio", steps_ratio),
            ),
        )
