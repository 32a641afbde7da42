"""Read the kernel's counters of errors: of the host's memory, and of its network interfaces.

The kernel shows them where it has a driver for it, and may show a container less. What is missing or odd is
left out, and is no error."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

INTERFACES_MAX = 16
_TEXT_MAX = 32
_COUNT_MAX = 1 << 63
ERRORS = "_errors"
"""How the name of an interface's counter ends, after the interface."""


def memory(sysfs: Path) -> dict[str, float]:
    """Errors of the host's memory since its driver was loaded (EDAC), over all memory controllers.

    {}: the kernel counts none, or not of each controller: a sum over some of them would jump."""
    folders = sorted((sysfs / "devices/system/edac/mc").glob("mc[0-9]*"))
    corrected = [_count(folder / "ce_count") for folder in folders]
    uncorrected = [_count(folder / "ue_count") for folder in folders]
    found = dict[str, float]()
    for name, counts in (("corrected_errors", corrected), ("uncorrected_errors", uncorrected)):
        known = [each for each in counts if each is not None]
        if known and len(known) == len(counts):
            found[name] = float(sum(known))
    return found


def interfaces(sysfs: Path) -> list[Path]:
    """The folders of all network interfaces that are devices: no loop, bridge or tunnel."""
    return [each for each in sorted((sysfs / "class/net").glob("*")) if (each / "device").exists()]


def network(sysfs: Path) -> dict[str, float]:
    """Errors in receiving and sending, of each interface that is a device."""
    found = dict[str, float]()
    for folder in interfaces(sysfs)[:INTERFACES_MAX]:
        counts = [_count(folder / "statistics" / name) for name in ("rx_errors", "tx_errors")]
        known = [each for each in counts if each is not None]
        if len(known) == len(counts):
            found[f"{folder.name}{ERRORS}"] = float(sum(known))
    return found


def _count(path: Path) -> int | None:
    """The number in a file of the kernel; None: there is none that a counter could show."""
    try:
        with path.open("rb") as file:
            text = file.read(_TEXT_MAX + 1).strip()
    except OSError:
        return None
    if not text.isdigit() or len(text) > _TEXT_MAX:
        return None
    return count if (count := int(text)) < _COUNT_MAX else None
