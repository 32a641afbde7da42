"""Measure one part of this node: `python -m holdfast.node_check PART SECONDS FOLDER`.

PART is `devices` (prints their number), `cpu`, `cuda:K`, `disk`, `clock` or `network`. Prints one line of
JSON for each reading, as soon as it is known: `holdfast check node` runs each part in a process of its own,
so that a device that hangs or kills its process costs the other readings nothing."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.node_check import cpu_share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.node_check.reading import NodeReading

SYSFS = Path("/sys")


def _readings(part: str, seconds: float, folder: Path) -> Iterator[NodeReading]:
    if part == "disk":
        from holdfast.node_check import disk

        yield from disk.readings(folder, seconds)
    elif part == "clock":
        from holdfast.node_check import clock

        yield from clock.readings()
    elif part == "network":
        from holdfast.node_check import network

        yield from network.readings(SYSFS, seconds)
    else:
        yield from _device_readings(part, seconds)


def _device_readings(part: str, seconds: float) -> Iterator[NodeReading]:
    import torch

    from holdfast.node_check import copies, device_copies, device_links, matrices

    device = torch.device(part)
    yield from matrices.readings(device, seconds)
    yield from copies.readings(device, seconds)
    if device.type == "cuda":
        yield from device_copies.readings(device, torch.cuda.device_count(), seconds)
        yield from device_links.readings(device)


def _devices() -> int:
    """How many devices torch sees. A build that knows none is not imported for that, which takes seconds."""
    found = importlib.util.find_spec("torch")
    version = Path(found.origin or "").with_name("version.py") if found is not None else None
    if version is not None and version.is_file():
        built_for = runpy.run_path(str(version))
        if not (built_for.get("cuda", "unknown") or built_for.get("hip", "unknown")):
            return 0
    import torch

    return torch.cuda.device_count()


def main(words: list[str]) -> None:
    """Write the readings of one part."""
    part, seconds, folder = words
    if part == "devices":
        sys.stdout.write(json.dumps({"devices": _devices()}) + "\n")
        return
    before = cpu_share.now()
    for each in _readings(part, float(seconds), Path(folder)):
        after = cpu_share.now()
        sys.stdout.write(dataclasses.replace(each, crowded=round(after.crowded(before), 3)).line() + "\n")
        sys.stdout.flush()
        before = after


if __name__ == "__main__":
    main(sys.argv[1:])
