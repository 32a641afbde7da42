"""Say which parts of a node are measured, and read what the process of one part has written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from holdfast.node_check.reading import NodeReading

if TYPE_CHECKING:
    from collections.abc import Iterable

DEVICES = "devices"
"""The part that says how many devices there are."""
GRACE_S = 60.0
"""How much longer than it measures a part may take: torch is imported, memory is touched, disks are slow."""
STEPS = 8
"""No part measures more often than this for the given time."""
DEVICES_MAX = 1024
TEXT_MAX = 300
_NO_TORCH = "No module named 'torch'"


def limit_s(seconds: float) -> float:
    """How long one part may take when each of its readings is measured for `seconds`."""
    return GRACE_S + STEPS * seconds


def parts(devices: int) -> tuple[str, ...]:
    """The parts of a node with so many devices, in the order in which they are measured."""
    return ("cpu", *(f"cuda:{index}" for index in range(devices)), "disk", "clock", "network")


def devices(lines: Iterable[str], trouble: str) -> tuple[int, list[NodeReading]]:
    """How many devices torch sees, by what the part DEVICES wrote, and a reading that says why it cannot be
    asked. `trouble`: what went wrong with its process; "": nothing."""
    counts = (each.get("devices") for each in _objects(lines))
    found = [each for each in counts if isinstance(each, int)]
    if trouble or not found:
        return 0, [NodeReading(DEVICES, None, "", reason=trouble or "nothing was answered")]
    return max(0, min(found[0], DEVICES_MAX)), []


def readings(part: str, lines: Iterable[str], trouble: str) -> list[NodeReading]:
    """What a part wrote. `trouble`: what went wrong with its process; "": nothing. Then the part is broken,
    unless torch is absent."""
    found = [each for each in map(_reading, _objects(lines)) if each is not None]
    if trouble and _NO_TORCH in trouble:
        why = "torch is not installed here: pip install 'holdfast[torch]'"
        found.append(NodeReading(part, None, "", reason=why))
    elif trouble:
        found.append(NodeReading(part, None, "", broken=trouble))
    return found


def ended(code: int | None, signal: int | None, text: str) -> str:
    """What went wrong with a process that ended so, with the last line that it wrote; "": nothing."""
    if not code and not signal:
        return ""
    how = f"its process ended by signal {signal}" if signal else f"its process ended with code {code}"
    last = next((line for line in reversed(text.splitlines()) if line.strip()), "")
    return f"{how}: {last.strip()}"[:TEXT_MAX] if last else how


def _objects(lines: Iterable[str]) -> list[dict[str, object]]:
    """The JSON objects among the lines; a line that was cut off, and what others write, is left out."""
    found = []
    for line in lines:
        try:
            value = json.loads(line) if line.startswith("{") else None
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def _reading(found: dict[str, object]) -> NodeReading | None:
    """A reading as NodeReading.line wrote it; None: it is none."""
    try:
        return NodeReading(**found)  # type: ignore[arg-type]
    except TypeError:
        return None
