"""Read what this node's network interfaces and InfiniBand ports have negotiated, and errors meanwhile.

The kernel says it in files. A link that is down has the speed 0, and a reason; what cannot be read has no
number. Whether a speed is too low only peers can tell."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from holdfast.node_check import error_counters
from holdfast.node_check.reading import NodeReading

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SPEED, ERRORS = "bit/s", "errors"
PORTS_MAX = 32
MBITS_MAX = 10_000_000
"""10 Tbit/s: more is no speed, but a number of a driver that knows none (it writes -1, also as 2^32 - 1)."""
_UP = 0x1  # IFF_UP: an administrator has switched the interface on
_TEXT_MAX = 64
ABSENT = "no network interface that is a device is here, and is switched on"


def readings(sysfs: Path, seconds: float) -> Iterator[NodeReading]:
    """The speed of each interface and port that is in use; then errors are counted for `seconds`."""
    used = [each for each in error_counters.interfaces(sysfs) if _switched_on(each)]
    before, began = error_counters.network(sysfs), time.monotonic()
    yield from (_speed(each) for each in used[: error_counters.INTERFACES_MAX])
    yield from _ports(sysfs)
    if not used:
        yield NodeReading("network", None, "", reason=ABSENT)
    elif more := used[error_counters.INTERFACES_MAX :]:
        why = f"{len(more)} of {len(used)} interfaces are left out, from {more[0].name} on"
        yield NodeReading("network", None, "", reason=why)
    if before:
        time.sleep(seconds)
        took_s, after = time.monotonic() - began, error_counters.network(sysfs)
        names = [f"{each.name}{error_counters.ERRORS}" for each in used]
        yield from (_errors(name, before[name], after.get(name), took_s) for name in names if name in before)


def _errors(counter: str, before: float, after: float | None, took_s: float) -> NodeReading:
    """How many errors an interface has counted meanwhile: a sound link has none."""
    name = f"network.errors:{counter.removesuffix(error_counters.ERRORS)}"
    if after is None or after < before:
        why = "its counters cannot be read any more" if after is None else "its counters have begun anew"
        return NodeReading(name, None, ERRORS, higher=False, reason=why)
    count = after - before
    broken = f"{count:.0f} errors in receiving and sending within {took_s:.1f} s" if count else ""
    return NodeReading(name, count, ERRORS, higher=False, broken=broken)


def _switched_on(folder: Path) -> bool:
    try:
        return bool(int(_text(folder / "flags"), 16) & _UP)
    except ValueError:
        return True  # who cannot say that it is off is looked at


def _speed(folder: Path) -> NodeReading:
    """What an interface has negotiated."""
    name, carrier = f"network.speed:{folder.name}", _text(folder / "carrier")
    if carrier == "0":
        state = _text(folder / "operstate") or "unknown"
        return NodeReading(name, 0.0, SPEED, reason=f"it has no carrier (its state is {state:.20})")
    try:
        mbits = int(_text(folder / "speed"))
    except ValueError:
        return NodeReading(name, None, SPEED, reason="its driver tells no speed")
    if not 0 < mbits <= MBITS_MAX:
        return NodeReading(name, None, SPEED, reason=f"its driver tells no speed ({mbits})")
    broken = "it has negotiated half duplex" if _text(folder / "duplex") == "half" else ""
    return NodeReading(name, mbits * 1e6, SPEED, broken=broken)


def _ports(sysfs: Path) -> Iterator[NodeReading]:
    """The rate of each InfiniBand port, RoCE included."""
    folders = sorted((sysfs / "class/infiniband").glob("*/ports/*"))
    for folder in folders[:PORTS_MAX]:
        name = f"infiniband.rate:{folder.parent.parent.name}/{folder.name}"
        state, physical = (_text(folder / each).partition(": ")[2] for each in ("state", "phys_state"))
        number, unit = [*_text(folder / "rate").split(" "), "", ""][:2]
        if not state:
            yield NodeReading(name, None, SPEED, reason="its state cannot be read")
        elif state != "ACTIVE":
            why = f"the port is {state:.20} (physically {physical or 'unknown':.20})"
            yield NodeReading(name, 0.0, SPEED, reason=why)
        elif unit != "Gb/sec" or not _number(number):
            yield NodeReading(name, None, SPEED, reason="its rate cannot be read")
        else:
            yield NodeReading(name, _number(number) * 1e9, SPEED)
    if more := folders[PORTS_MAX:]:
        why = f"{len(more)} of {len(folders)} InfiniBand ports are left out"
        yield NodeReading("infiniband", None, "", reason=why)


def _number(text: str) -> float:
    """A positive number that a link can have in Gbit/s; 0: it is none."""
    try:
        found = float(text)
    except ValueError:
        return 0.0
    return found if 0.0 < found <= MBITS_MAX / 1000 else 0.0


def _text(path: Path) -> str:
    """What stands in a file of the kernel; "": it cannot be read, as some are of what is off."""
    try:
        with path.open("rb") as file:
            return file.read(_TEXT_MAX).decode(errors="replace").strip()
    except OSError:
        return ""
