"""Print the table of a benchmark: values, their spread, and whether the aims are met."""

from __future__ import annotations

import json
import math
import random
import statistics
from dataclasses import dataclass
from typing import Any

Values = dict[str, list[float | None]]
"""By name what each round has measured. None: the round did not end."""
RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Aim:
    """`value` divided by `against` (None: not divided) must be at most, or at least, `bound`."""

    text: str
    value: str
    against: str | None
    bound: float
    at_most: bool = True


AIMS = (
    Aim("survivors within 1.6x of the limit", "survivors_s", "limit_s", 1.6),
    Aim("full world within 1.8x of its own limit", "full_world_s", "limit_full_s", 1.8),
    Aim("a second death while forming within 2x of one", "double_death_ratio", None, 2.0),
    Aim("survivors 5x ahead of torchft", "torchft_s", "survivors_s", 5.0, at_most=False),
    Aim("survivors 30x ahead of torchrun", "torchrun_s", "survivors_s", 30.0, at_most=False),
    Aim("unmodified script 15x ahead of torchrun", "torchrun_s", "unmodified_s", 15.0, at_most=False),
    Aim("the SDK below 0.5 % of a 20 ms step", "overhead_ratio", None, 0.005),
    Aim("snapshot stall within 1.5x of a memcpy", "stall_ratio", None, 1.5),
)


def table(result: dict[str, Any], values: Values, aims: tuple[Aim, ...] = AIMS) -> str:
    """Medians with their spread, then each aim: met, missed, or not measured."""
    lines = [f"{'':16} {'median':>9} {'least':>9} {'most':>9}   rounds without an end"]
    lines += [_row(name, result[name], series) for name, series in values.items()]
    lines += ["", *[verdict(aim, result, values) for aim in aims], ""]
    load = result["load"]
    busy = (
        f"load average {load['average_1min']}, CPU pressure {load['cpu_pressure']}, {load['cpus']:.0f} CPUs"
    )
    lines.append(f"{result['rounds']} rounds; {busy}")
    return "\n".join(lines)


def _row(name: str, median: float | None, series: list[float | None]) -> str:
    ended = [value for value in series if value is not None]
    cells = [median, *((min(ended), max(ended)) if ended else (None, None))]
    shown = " ".join(f"{'-' if cell is None else f'{cell:.4f}':>9}" for cell in cells)
    return f"{name:16} {shown}   {len(series) - len(ended)}"


def median(series: list[float | None]) -> float:
    """The median. A round that did not end counts as the worst: infinity, if too many of them did not."""
    return statistics.median(math.inf if value is None else value for value in series)


def verdict(aim: Aim, result: dict[str, Any], values: Values | None = None) -> str:
    """Whether the aim is met, in one line, with an interval where the rounds' values are given."""
    value, against = result.get(aim.value), 1.0 if aim.against is None else result.get(aim.against)
    if value is None or against is None:
        return f"not measured  {aim.text}"
    ratio = value / against
    met = ratio <= aim.bound if aim.at_most else ratio >= aim.bound
    unit = "x" if aim.against else ""
    interval = spread(aim, values or {})
    shown = f" (95 %: {interval[0]:.3g} to {interval[1]:.3g})" if interval else ""
    return f"{'met' if met else 'MISSED':13} {aim.text}: {ratio:.4g}{unit}{shown}"


def spreads(values: Values, aims: tuple[Aim, ...] = AIMS) -> dict[str, tuple[float, float]]:
    """The intervals of all aims that can have one, by `value/against` or `value`."""
    found = {f"{aim.value}/{aim.against}" if aim.against else aim.value: spread(aim, values) for aim in aims}
    return {name: interval for name, interval in found.items() if interval is not None}


def spread(aim: Aim, values: Values) -> tuple[float, float] | None:
    """A 95 % interval of an aim's ratio of medians, by the bootstrap over rounds (percentiles).

    Rounds are drawn whole: what they compare met the same machine. None with fewer than two rounds, or where
    a drawn median has no end."""
    names = [aim.value] if aim.against is None else [aim.value, aim.against]
    series = [values.get(name, []) for name in names]
    rounds = min(map(len, series))
    if rounds < 2:
        return None
    chance, drawn = random.Random(1), list[float]()
    for _ in range(RESAMPLES):
        chosen = chance.choices(range(rounds), k=rounds)
        over, *under = (median([each[index] for index in chosen]) for each in series)
        drawn.append(over / under[0] if under else over)
    if not all(map(math.isfinite, drawn)):
        return None
    low, high = middle_95(drawn)
    return round(low, 4), round(high, 4)


def middle_95(drawn: list[float]) -> tuple[float, float]:
    """Between which two values the middle 95 % of what the bootstrap has drawn lie."""
    ordered = sorted(drawn)
    return ordered[len(ordered) // 40], ordered[-1 - len(ordered) // 40]


def show(found: dict[str, Any], *, as_json: bool) -> None:
    """Print the values of a benchmark that has no table: one JSON object, or a line for each."""
    if as_json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:>16}  {value}")
