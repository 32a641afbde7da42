"""Run targets by number and seed, and report crashes, hangs and growth of memory."""

from __future__ import annotations

import resource
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from tests.security.fuzz.targets import TARGETS

if TYPE_CHECKING:
    from collections.abc import Callable

CRASHES_KEPT = 20


@dataclass
class Report:
    """The results of one target."""

    accepted: int = 0
    refused: int = 0
    seconds: float = 0.0
    slowest_s: float = 0.0
    grown_bytes: int = 0
    crashes: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)  # crash: the seed that shows it

    def crashed(self, error: BaseException, seed: str) -> None:
        """Record a bug of ours: the kind of exception, and where it was raised."""
        trace, where = error.__traceback__, ""
        while trace is not None:
            where = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
            trace = trace.tb_next
        name = f"{type(error).__name__} at {where}"
        self.crashes[name] += 1
        if len(self.first) < CRASHES_KEPT:
            self.first.setdefault(name, f"{seed}: {error!r:.300}")


def run(name: str, messages: int, seed: int) -> Report:
    """Run one target with this many messages. Each is made from a seed of its own: `seed/name/number`."""
    target, report = TARGETS[name], Report()
    for number in range(messages):
        if number == min(1000, messages // 10):
            before = resident_bytes()  # imports and caches are filled by then
        _one(target, f"{seed}/{name}/{number}", report)
    report.grown_bytes = resident_bytes() - before if messages else 0
    return report


def _one(target: Callable[[Random], bool], seed: str, report: Report) -> None:
    rng, begun = Random(seed), time.process_time()  # of the CPU: a busy machine is no hang
    try:
        if target(rng):
            report.accepted += 1
        else:
            report.refused += 1
    except Exception as error:  # every one is a finding
        report.crashed(error, seed)
    took_s = time.process_time() - begun
    report.seconds += took_s
    report.slowest_s = max(report.slowest_s, took_s)


def resident_bytes(pid: int | str = "self") -> int:
    """The memory that a process uses now: this process, unless one is named."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
