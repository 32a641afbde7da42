"""Print the table of a benchmark: values, their spread, and whether the aims are met."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

Values = dict[str, list[float | None]]


@dataclass(frozen=True, slots=True)
class Aim:
    """`value` divided by `against` (None: not divided) must be at most, or at least, `bound`."""

    text: str
    value: str
    against: str | None
    bound: float
    at_most: bool = True


AIMS = (
    Aim("survivors within 3x of the limit", "survivors_s", "limit_s", 3.0),
    Aim("full world within 6x of the limit", "full_world_s", "limit_s", 6.0),
    Aim("a second death while forming within 2x of one", "double_death_ratio", None, 2.0),
    Aim("survivors 5x ahead of torchft", "torchft_s", "survivors_s", 5.0, at_most=False),
    Aim("survivors 30x ahead of torchrun", "torchrun_s", "survivors_s", 30.0, at_most=False),
    Aim("unmodified script 4x ahead of torchrun", "torchrun_s", "unmodified_s", 4.0, at_most=False),
    Aim("the SDK below 1 % of a 20 ms step", "overhead_ratio", None, 0.01),
    Aim("snapshot stall within 1.5x of a memcpy", "stall_ratio", None, 1.5),
)


def table(result: dict[str, Any], values: Values, aims: tuple[Aim, ...] = AIMS) -> str:
    """Medians with their spread, then each aim: met, missed, or not measured."""
    lines = [f"{'':16} {'median':>9} {'least':>9} {'most':>9}   rounds without an end"]
    lines += [_row(name, result[name], series) for name, series in values.items()]
    lines += ["", *[verdict(aim, result) for aim in aims], ""]
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


def verdict(aim: Aim, result: dict[str, Any]) -> str:
    """Whether the aim is met, in one line."""
    value, against = result.get(aim.value), 1.0 if aim.against is None else result.get(aim.against)
    if value is None or against is None:
        return f"not measured  {aim.text}"
    ratio = value / against
    met = ratio <= aim.bound if aim.at_most else ratio >= aim.bound
    unit = "x" if aim.against else ""
    return f"{'met' if met else 'MISSED':13} {aim.text}: {ratio:.4g}{unit}"


def show(found: dict[str, Any], *, as_json: bool) -> None:
    """Print the values of a benchmark that has no table: one JSON object, or a line for each."""
    if as_json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:>16}  {value}")
