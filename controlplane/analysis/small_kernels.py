"""Say from the operators of profiles whether a device is kept waiting by many small kernels.

A kernel costs the host some microseconds to launch (5 to 10 with PyTorch's eager mode). Where kernels take no
longer than that on the device, the device is done before the next one comes, and a faster device gains
nothing. Both must show: kernels are short, and the device computes for little of the profiled time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.core.state.findings import Effort, Finding, Level, Recommendation

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from controlplane.core.records.diagnosis import RankProfiled

KIND = "small_kernels"
CONFIDENCE = 0.8
"""Of the finding: the device's waiting is a lower bound, but a few steps of a few ranks were profiled."""

SMALL_US = 10.0
"""The default limit of a small kernel (us): what launching one takes."""
BUSY_RATIO = 0.7
"""A device that computes for more of the time is not kept waiting. A coordinator has a setting for this."""
KNOWN_RATIO = 0.8
"""An answer lists 64 operators at most. Those listed must have this share of the device's time."""
THREADS = 2
"""CPU times are those of the thread that trains, with its waiting, and of autograd's beside it: they add up
to twice the profiled time at most. How long the steps took is not in an answer."""
LAUNCHES_MIN = 100
"""Fewer launches in the whole profile say nothing."""
NAMED_MAX = 3


@dataclass(frozen=True, slots=True)
class OperatorCost:
    """An operator over all profiled steps: `calls`, and the time of its own kernels on the device (s)."""

    name: str
    calls: int
    device_s: float


@dataclass(frozen=True, slots=True)
class KernelVerdict:
    """`small`: True: small kernels keep the device waiting; False: they do not; None: not known. `reason`
    says why in each case. `gain_ratio`: the share of the time in which the device waits at least."""

    small: bool | None
    reason: str
    recommendation: str = ""
    gain_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class ProfiledKernels:
    """What the profile of `steps` steps of a rank says, from step `first_step` on. `member`: its process."""

    rank: int
    member: str
    first_step: int
    steps: int
    verdict: KernelVerdict


def of_profile(rank: int, found: RankProfiled, busy_ratio: float) -> ProfiledKernels:
    """Judge an agent's answer. `busy_ratio`: as for `judge`."""
    operators = [OperatorCost(each.name, each.calls, each.device_s) for each in found.operators]
    verdict = judge(operators, found.cpu_s, found.device_s, busy_ratio=busy_ratio)
    return ProfiledKernels(rank, found.member, found.first_step, found.steps, verdict)


def finding(profiles: Iterable[ProfiledKernels]) -> Finding | None:
    """Word the profile in which small kernels keep a device waiting most; None: in none they do.

    It accuses nobody: all ranks run the same script."""
    seen = list(profiles)
    small = [each for each in seen if each.verdict.small]
    if not small:
        return None
    worst = max(small, key=lambda each: (each.verdict.gain_ratio or 0.0, -each.rank))
    waiting, steps = worst.verdict.gain_ratio, f"{worst.first_step} to {worst.first_step + worst.steps - 1}"
    several = f"; {len(small)} of {len(seen)} profiled ranks show it" if len(seen) > 1 else ""
    return Finding(
        KIND,
        Level.DEGRADED,
        "",
        f"in a profile of rank {worst.rank}, steps {steps}, {worst.verdict.reason}{several}",
        place=(("node", None), ("rank", None)),
        confidence=CONFIDENCE,
        evidence=(
            ("device_waiting_ratio", waiting or 0.0),
            ("first_profiled_step", worst.first_step),
            ("profiled_steps_count", worst.steps),
            ("profiled_ranks_count", len(seen)),
        ),
        recommendations=(Recommendation(worst.verdict.recommendation, waiting, Effort.MEDIUM),),
    )


def judge(
    operators: Sequence[OperatorCost],
    cpu_s: float,
    device_s: float,
    small_us: float = SMALL_US,
    *,
    busy_ratio: float = BUSY_RATIO,
) -> KernelVerdict:
    """Judge a profile. `cpu_s`, `device_s`: of all operators, also of those that are not listed.

    `busy_ratio`: a device that computes for more of the time is not kept waiting."""
    launching = [each for each in operators if each.device_s > 0 and each.calls > 0]
    if not device_s > 0 or not launching:
        return KernelVerdict(None, "the profile has no time on a device")
    listed_s, launches = sum(each.device_s for each in launching), sum(each.calls for each in launching)
    if listed_s < KNOWN_RATIO * device_s:
        share = listed_s / device_s
        return KernelVerdict(None, f"the operators listed have only {share:.0%} of the device's time")
    if launches < LAUNCHES_MIN:
        return KernelVerdict(
            None, f"{launches} operators ran on the device, too few to judge: profile more steps"
        )
    if not cpu_s > 0:
        return KernelVerdict(None, "the profile has no time on the CPU")
    mean_us, busy = 1e6 * listed_s / launches, min(1.0, THREADS * device_s / cpu_s)
    numbers = (
        f"{launches} operators took {mean_us:.3g} us each on the device, which computed for {busy:.0%} of "
        "the profiled time at most"
    )
    if mean_us >= small_us or busy >= busy_ratio:
        return KernelVerdict(False, numbers)
    small = sorted(
        (each for each in launching if 1e6 * each.device_s / each.calls < small_us),
        key=lambda each: -each.calls,
    )
    names = ", ".join(f"{each.name} ({each.calls} times)" for each in small[:NAMED_MAX])
    return KernelVerdict(
        True,
        f"{numbers}: less than the {small_us:g} us that launching one takes; most often {names}",
        "Fuse them: torch.compile (mode='reduce-overhead' captures CUDA graphs), the fused or foreach "
        "variant of the optimizer, larger micro-batches.",
        1.0 - busy,
    )
