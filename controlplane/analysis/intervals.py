"""Compute checkpoint intervals and what they cost: first-order, higher-order, and exact. All in s. Pure."""

from __future__ import annotations

import math

from controlplane.core.state.cadence import daly, young

__all__ = ["daly", "ettr_exact", "optimum", "young"]

_STEPS = 80
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


def ettr_exact(interval_s: float, stall_s: float, mtbf_s: float, recovery_s: float) -> float:
    """Return the share of time that is kept training when failures have no memory.

    By J. T. Daly, FGCS 22(3), 2006, eq. 20, per failure: tau / (M e^(R/M) (e^((tau + delta)/M) - 1)), with
    tau the interval of training, delta the stall of a copy, M the MTBF and R the recovery. A failure during a
    recovery begins it again. Raises ValueError unless interval and MTBF are above 0."""
    if interval_s <= 0 or mtbf_s <= 0:
        raise ValueError(f"interval {interval_s} and MTBF {mtbf_s} must be above 0")
    exponent = (interval_s + stall_s) / mtbf_s
    if exponent + recovery_s / mtbf_s > 700.0:
        return 0.0
    return interval_s / (mtbf_s * math.exp(recovery_s / mtbf_s) * math.expm1(exponent))


def optimum(stall_s: float, mtbf_s: float, recovery_s: float) -> float:
    """Return the interval (s) with the greatest `ettr_exact`, found by golden section; 0 when copies are
    free."""
    if stall_s <= 0:
        return 0.0
    low, high = 0.0, max(4.0 * young(stall_s, mtbf_s), 4.0 * mtbf_s)
    for _ in range(_STEPS):
        span = (high - low) * _GOLDEN
        a, b = high - span, low + span
        if ettr_exact(a, stall_s, mtbf_s, recovery_s) < ettr_exact(b, stall_s, mtbf_s, recovery_s):
            low = a
        else:
            high = b
    return (low + high) / 2.0
