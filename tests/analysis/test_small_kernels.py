"""Small kernels are named where launching them keeps the device waiting, and nowhere else."""

from __future__ import annotations

import pytest

from controlplane.analysis.small_kernels import (
    KernelVerdict,
    OperatorCost,
    ProfiledKernels,
    finding,
    judge,
    of_profile,
)
from controlplane.core.records.diagnosis import OperatorTime, RankProfiled


def test_many_short_kernels_on_a_device_that_waits() -> None:
    verdict = judge([OperatorCost("add", 10_000, 0.03), OperatorCost("mm", 100, 0.01)], 1.0, 0.04)
    assert verdict.small is True
    assert "10100 operators took 3.96 us each" in verdict.reason and "8% of" in verdict.reason
    assert "add (10000 times)" in verdict.reason and "mm" not in verdict.reason
    assert verdict.gain_ratio == pytest.approx(0.92) and "torch.compile" in verdict.recommendation


@pytest.mark.parametrize(
    ("operators", "cpu_s", "device_s"),
    [
        ([OperatorCost("mm", 1000, 0.1)], 2.0, 0.1),  # a tenth of a millisecond each
        ([OperatorCost("add", 100_000, 0.4)], 1.0, 0.4),  # short, and the device may be busy all the time
    ],
)
def test_long_kernels_or_a_busy_device_are_well(
    operators: list[OperatorCost], cpu_s: float, device_s: float
) -> None:
    verdict = judge(operators, cpu_s, device_s)
    assert verdict.small is False and verdict.recommendation == "" and verdict.gain_ratio is None


@pytest.mark.parametrize(
    ("operators", "cpu_s", "device_s", "why"),
    [
        ([OperatorCost("mm", 1000, 0.0)], 2.0, 0.0, "no time on a device"),
        ([], 2.0, 0.5, "no time on a device"),
        ([OperatorCost("mm", 1000, float("nan"))], 2.0, float("nan"), "no time on a device"),
        ([OperatorCost("add", 1000, 0.001)], 2.0, 0.5, "have only 0% of the device's time"),
        ([OperatorCost("add", 10, 0.001)], 2.0, 0.001, "10 operators ran on the device, too few"),
        ([OperatorCost("add", 1000, 0.001)], 0.0, 0.001, "no time on the CPU"),
    ],
)
def test_what_is_not_known_is_said_with_its_reason(
    operators: list[OperatorCost], cpu_s: float, device_s: float, why: str
) -> None:
    verdict = judge(operators, cpu_s, device_s)
    assert verdict.small is None and why in verdict.reason


def test_the_limit_is_a_setting() -> None:
    operators = [OperatorCost("add", 1000, 0.02)]
    assert judge(operators, 1.0, 0.02).small is False
    assert judge(operators, 1.0, 0.02, small_us=30.0).small is True


def profiled(rank: int, small: bool, gain_ratio: float | None = None) -> ProfiledKernels:
    return ProfiledKernels(rank, f"m{rank}", 10, 5, KernelVerdict(small, "why", "fuse them", gain_ratio))


def test_the_finding_is_of_the_worst_profile_and_accuses_nobody() -> None:
    found = finding([profiled(2, True, 0.5), profiled(3, True, 0.8), profiled(1, False)])
    assert found is not None and (found.kind, found.subject) == ("small_kernels", "")
    assert dict(found.place) == {"node": None, "rank": None}
    said = "in a profile of rank 3, steps 10 to 14, why; 2 of 3 profiled ranks show it"
    assert found.reason == said
    assert found.recommendations[0].gain_ratio == 0.8 and found.recommendation == "fuse them"
    assert finding([profiled(1, False)]) is None and finding([]) is None


def test_a_device_that_is_busy_enough_by_the_setting_is_well() -> None:
    operators = (OperatorTime("add", 10_000, 0.0, 0.03),)
    answer = RankProfiled("n", 1, "j", "m", "r", 1, "", "/t", 9, 40, 5, 1.0, 0.03, operators)
    low, high = of_profile(4, answer, 0.05), of_profile(4, answer, 0.7)
    assert (low.verdict.small, high.verdict.small) == (False, True)
    assert (high.rank, high.member, high.first_step, high.steps) == (4, "m", 40, 5)
