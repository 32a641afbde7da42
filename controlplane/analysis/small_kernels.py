"""Say from the operators of a profile whether a device is kept waiting by many small kernels.

A kernel costs the host some microseconds to launch (5 to 10 with PyTorch's eager mode). Where kernels take no
longer than that on the device, the device is done before the next one comes, and a faster device gains
nothing. Both must show: kernels are short, and the device computes for little of the profiled time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

SMALL_US = 10.0
"""The default limit of a small kernel (us): what launching one takes."""
BUSY_RATIO = 0.7
"""A device that computes for more of the time than this is not kept waiting (as `Thresholds.device_used`)."""
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


def judge(
    operators: Sequence[OperatorCost], cpu_s: float, device_s: float, small_us: float = SMALL_US
) -> KernelVerdict:
    """Judge a profile. `cpu_s`, `device_s`: of all operators, also of those that are not listed."""
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
    if mean_us >= small_us or busy >= BUSY_RATIO:
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
