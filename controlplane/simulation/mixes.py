"""Make random failures from published mixes or from rates; the same seed gives the same failures."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from controlplane.simulation.failures import DAY_S, FailureInputError, Failures, Outage, merged

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class MixRow:
    """One kind of failure in a mix."""

    name: str
    count: int  # how often it occurred, as published: its weight among the kinds
    repair_h: float  # median time (h) for which the node is away; 0: only a process dies


@dataclass(frozen=True, slots=True)
class Mix:
    """A published mix of failures."""

    name: str
    kinds: tuple[MixRow, ...]
    per_node_day: float  # failures of all kinds per node and day
    about: str  # the source, for people


@dataclass(frozen=True, slots=True)
class FailureRates:
    """Failures by rate. Times in s."""

    mtbf_s: float  # mean time between events of the whole cluster; a burst is one event
    repair_s: float = 6 * HOUR_S  # median of the lognormal repair time
    repair_sigma: float = 1.5  # standard deviation of its logarithm: how long the tail is
    burst_ratio: float = 0.0  # share of the node failures that take several nodes at once
    burst_nodes: int = 8  # most nodes of one burst
    process_ratio: float = 0.0  # share of the events in which only a process dies


_LLAMA3 = (
    MixRow("faulty GPU", 148, 12.0), MixRow("HBM3", 72, 12.0), MixRow("software", 54, 0.0),
    MixRow("switch or cable", 35, 4.0), MixRow("host maintenance", 32, 6.0), MixRow("SRAM", 19, 12.0),
    MixRow("GPU system processor", 17, 12.0), MixRow("NIC", 7, 12.0), MixRow("NCCL watchdog", 7, 0.0),
    MixRow("silent data corruption", 6, 24.0), MixRow("thermal", 6, 6.0), MixRow("SSD", 3, 24.0),
    MixRow("PSU", 3, 24.0), MixRow("chassis", 2, 24.0), MixRow("IO board", 2, 24.0),
    MixRow("dependency", 2, 0.0), MixRow("CPU", 2, 24.0), MixRow("memory", 2, 24.0),
)  # fmt: skip
_BYTEROBUST = (
    MixRow("CUDA", 19968, 1.0), MixRow("CPU overload", 6095, 0.0), MixRow("CPU out of memory", 5567, 0.0),
    MixRow("hang", 5506, 0.0), MixRow("disk space", 2755, 0.0), MixRow("InfiniBand", 1599, 4.0),
    MixRow("file system mount", 1176, 1.0), MixRow("HDFS", 1104, 0.0), MixRow("container", 781, 0.0),
    MixRow("MFU decline", 442, 4.0), MixRow("kernel panic", 203, 2.0), MixRow("GPU memory", 188, 12.0),
    MixRow("NaN", 148, 0.0), MixRow("GPU unavailable", 76, 12.0), MixRow("disk fault", 47, 24.0),
)  # fmt: skip

MIXES = {
    "llama3": Mix(
        "llama3", _LLAMA3, 419 / (54 * 2048),
        "Llama 3 405B: 419 unexpected interruptions in 54 days of 2,048 nodes (16,384 H100)",
    ),
    "byterobust": Mix(
        "byterobust", _BYTEROBUST, 1 / (0.125 * 12500),
        "ByteRobust: the causes of 45,655 failures; as often as 12,500 nodes failing every 3 h",
    ),
}  # fmt: skip
"""The known mixes by name. Counts are as published. Repair times are assumptions, as no publication gives
them; failures by rate let the user set them."""


def from_mix(name: str, nodes: int, days: float, seed: int) -> Failures:
    """Make Poisson failures on `nodes` nodes for `days`, with kinds as often as published.

    Raises FailureInputError when the mix is unknown."""
    mix = MIXES.get(name)
    if mix is None:
        raise FailureInputError(f"the mix {name!r} is unknown: known are {', '.join(MIXES)}")
    chance = random.Random(seed)
    mean_s = DAY_S / (mix.per_node_day * nodes)
    outages, at = [], chance.expovariate(1.0 / mean_s)
    weights = [kind.count for kind in mix.kinds]
    while at < days * DAY_S:
        kind = chance.choices(mix.kinds, weights)[0]
        away_s = kind.repair_h * HOUR_S * chance.lognormvariate(0.0, 1.0)
        outages.append(Outage(chance.randrange(nodes), at, at + away_s, kind.name))
        at += chance.expovariate(1.0 / mean_s)
    return Failures(mix.about, merged(outages)[0])


def from_rates(rates: FailureRates, nodes: int, days: float, seed: int) -> Failures:
    """Make Poisson events on `nodes` nodes for `days`; some take neighbours along; repairs are lognormal.

    Raises FailureInputError when a rate is not possible."""
    _possible(rates)
    chance = random.Random(seed)
    outages, at = [], chance.expovariate(1.0 / rates.mtbf_s)
    while at < days * DAY_S:
        first = chance.randrange(nodes)
        if chance.random() < rates.process_ratio:
            outages.append(Outage(first, at, at, "process"))
        else:
            together = 1
            if chance.random() < rates.burst_ratio:
                together = min(nodes, chance.randint(2, max(2, rates.burst_nodes)))
            for offset in range(together):
                away_s = chance.lognormvariate(math.log(rates.repair_s), rates.repair_sigma)
                outages.append(Outage((first + offset) % nodes, at, at + max(1.0, away_s), "node"))
        at += chance.expovariate(1.0 / rates.mtbf_s)
    return Failures(f"one failure every {rates.mtbf_s:g} s", merged(outages)[0])


def _possible(rates: FailureRates) -> None:
    checks = (
        (rates.mtbf_s > 0, f"--mtbf-s {rates.mtbf_s:g} is not possible: give more than 0"),
        (rates.repair_s > 0, f"--repair-s {rates.repair_s:g} is not possible: give more than 0"),
        (rates.repair_sigma >= 0, f"--repair-sigma {rates.repair_sigma:g}: give 0 or more"),
        (0 <= rates.burst_ratio <= 1, f"--burst-ratio {rates.burst_ratio:g}: give 0 to 1"),
        (0 <= rates.process_ratio <= 1, f"--process-ratio {rates.process_ratio:g}: give 0 to 1"),
        (rates.burst_nodes >= 2, f"--burst-nodes {rates.burst_nodes}: give 2 or more"),
    )
    for right, words in checks:
        if not right:
            raise FailureInputError(words)
