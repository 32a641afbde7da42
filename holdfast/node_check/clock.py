"""Read what the kernel says of its clock, and compare this clock with another one.

The kernel knows whether something disciplines its clock, and how wrong it may be (adjtimex(2), read only).
How wrong it is against another machine, four times tell: a question is sent (here), received (there),
answered (there) and heard (here). What the way there takes longer than the way back is taken for an offset;
so the exchange with the least round trip says most, and its offset is known within half of that trip."""

from __future__ import annotations

import ctypes
import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.node_check.reading import NodeReading

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

UNIT = "s"
STAMP_S = 1e-6
"""No time is known better than this: a Unix time in a float of 64 bits has steps of a quarter of it."""
_READ_ONLY, _UNSYNCHRONISED = 0, 0x0040
_NAMES = ("offset", "freq", "maxerror", "esterror")


class _Timex(ctypes.Structure):
    """The beginning of the kernel's struct timex, and room for the rest of it."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        *((name, ctypes.c_long) for name in _NAMES),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_long * 32),
    )


@dataclass(frozen=True, slots=True)
class KernelClock:
    """What the kernel states. `max_error_us`, `estimated_error_us`: how wrong its clock may be, and is."""

    synchronised: bool
    max_error_us: int
    estimated_error_us: int


@dataclass(frozen=True, slots=True)
class ClockExchange:
    """The four times of one question and its answer (Unix, s): two of this clock, two of the other one."""

    sent_s: float
    received_s: float
    answered_s: float
    heard_s: float

    @property
    def trip_s(self) -> float:
        """How long both ways took together."""
        return (self.heard_s - self.sent_s) - (self.answered_s - self.received_s)

    @property
    def ahead_s(self) -> float:
        """By how much this clock is ahead of the other one, if both ways took equally long."""
        return ((self.sent_s - self.received_s) + (self.heard_s - self.answered_s)) / 2


def readings() -> Iterator[NodeReading]:
    """What the kernel of this node says of its clock."""
    try:
        yield from stated(kernel_clock())
    except (OSError, AttributeError) as error:
        yield NodeReading("clock.max_error", None, UNIT, higher=False, reason=f"adjtimex: {error}"[:200])


def kernel_clock() -> KernelClock:
    """Ask the kernel. Raises OSError where it does not answer, AttributeError where libc cannot ask."""
    libc, found = ctypes.CDLL(None, use_errno=True), _Timex(modes=_READ_ONLY)
    if libc.adjtimex(ctypes.byref(found)) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return KernelClock(not found.status & _UNSYNCHRONISED, found.maxerror, found.esterror)


def stated(clock: KernelClock) -> Iterator[NodeReading]:
    """The readings of what a kernel states. While nothing disciplines its clock, it estimates nothing."""
    yield _error("clock.max_error", clock.max_error_us)
    if clock.synchronised:
        yield _error("clock.estimated_error", clock.estimated_error_us)
    else:
        why = "the kernel says that nothing synchronises its clock"
        yield NodeReading("clock.estimated_error", None, UNIT, higher=False, reason=why)


def _error(name: str, error_us: int) -> NodeReading:
    if error_us < 0:
        why = f"the kernel says {error_us} us, which is no error that a clock can have"
        return NodeReading(name, None, UNIT, higher=False, reason=why)
    return NodeReading(name, max(error_us * 1e-6, STAMP_S), UNIT, higher=False)


def offset(name: str, exchanges: Sequence[ClockExchange]) -> NodeReading:
    """By how much this clock is ahead of another one (negative: behind). Impossible exchanges are left
    out."""
    possible = [each for each in exchanges if _possible(each)]
    if not possible:
        why = f"none of {len(exchanges)} answers bears times that can be"
        return NodeReading(name, None, UNIT, higher=False, reason=why)
    best = min(possible, key=lambda each: each.trip_s)
    return NodeReading(name, best.ahead_s, UNIT, higher=False, within=best.trip_s / 2 + STAMP_S)


def _possible(each: ClockExchange) -> bool:
    times = (each.sent_s, each.received_s, each.answered_s, each.heard_s)
    if not all(math.isfinite(time_s) and time_s > 0.0 for time_s in times):
        return False
    return each.answered_s >= each.received_s and each.trip_s >= -STAMP_S
