"""Read a spec from a file: which jobs are drawn. What a file leaves out is as in `default.yaml`."""

from __future__ import annotations

import difflib
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from benchmarks.diagnosis.live.draw import KINDS, NOISES, Spec

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT = Path(__file__).with_name("default.yaml")
PAIRS = {
    "nodes": (1, 125_000),
    "windows": (1, 100_000),
    "steps_per_window": (1, 10_000),
    "factor": (1.0, 1000.0),
    "sigma": (1e-6, 1.0),
    "lasting": (0.0, 1.0),
    "onset": (0.0, 1.0),
}
"""Ends of a range, and within which they lie."""
LISTS = {"ranks_per_node": (1, 64), "pp": (1, 1024), "tp": (1, 64)}
"""Numbers of which each job gets one, and within which they lie."""
SHARES = ("healthy_share", "late_share")
WORDS = {"kinds": KINDS, "noises": NOISES}


def spec_of(path: Path) -> Spec:
    """Read a spec. Raises ValueError, with a text for people, for one that says something else."""
    found = yaml.safe_load(path.read_text())
    if not isinstance(found, dict):
        raise ValueError(f"{path}: a spec is a mapping of names to values")
    try:
        return spec(found)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def spec(found: Mapping[str, Any]) -> Spec:
    """The spec that this mapping says. Raises ValueError for a name or a value that cannot be."""
    names = [field.name for field in fields(Spec)]
    for name in found:
        if name not in names:
            near = difflib.get_close_matches(str(name), names, 1)
            meant = f"did you mean {near[0]}? " if near else ""
            raise ValueError(f"unknown key {name!r}: {meant}known are {', '.join(names)}")
    merged = {**yaml.safe_load(DEFAULT.read_text()), **found}
    for name, value in merged.items():
        if trouble := _trouble(name, value):
            raise ValueError(f"{name} is {value!r}: {trouble}")
    values: dict[str, Any] = {
        name: tuple(each) if isinstance(each, list) else each for name, each in merged.items()
    }
    return Spec(**values)


def _trouble(name: str, value: Any) -> str:
    """Why this cannot be the value of a key; "": it can."""
    if name in PAIRS:
        low, high = PAIRS[name]
        pair = isinstance(value, list) and len(value) == 2 and all(map(_number, value))
        right = pair and low <= value[0] <= value[1] <= high
        return "" if right else f"two numbers from {low:g} to {high:g} are needed, the lower one first"
    if name in LISTS:
        least, most = LISTS[name]
        right = isinstance(value, list) and value and all(isinstance(each, int) for each in value)
        right = right and all(least <= each <= most for each in value)
        return "" if right else f"whole numbers from {least} to {most} are needed, as a list"
    if name in WORDS:
        right = isinstance(value, list) and value and set(map(str, value)) <= set(WORDS[name])
        return "" if right else f"a list of some of {', '.join(WORDS[name])} is needed"
    if name in SHARES:
        return "" if _number(value) and 0.0 <= value <= 1.0 else "a number from 0 to 1 is needed"
    if name == "jobs":
        return "" if isinstance(value, int) and value > 0 else "a whole number above 0 is needed"
    return "" if _number(value) and value > 0 else "a number above 0 is needed"


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
