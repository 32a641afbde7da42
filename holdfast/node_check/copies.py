"""Copy memory within one device: bytes read and written per second."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import torch

from holdfast.node_check.reading import NodeReading

if TYPE_CHECKING:
    from collections.abc import Iterator

BYTES_MAX = 256 << 20
"""Far more than any cache, and a 64th of a small node."""
UNIT = "B/s"


def readings(device: torch.device, seconds: float) -> Iterator[NodeReading]:
    """One reading. `seconds`: how long it is measured."""
    name = "memory.copy" if device.type == "cpu" else f"{device.type}:{device.index}.memory.copy"
    size = BYTES_MAX if device.type == "cuda" else min(BYTES_MAX, _available_bytes() // 8)
    if size < 1 << 20:
        yield NodeReading(name, None, UNIT, reason="less than 8 MiB of memory are free")
        return
    try:
        yield NodeReading(name, _rate(device, size, seconds), UNIT)
    except RuntimeError as error:
        yield NodeReading(name, None, UNIT, broken=f"{type(error).__name__}: {str(error)[:200]}")


def _rate(device: torch.device, size: int, seconds: float) -> float:
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.ones_like(source)
    target.copy_(source)  # its pages exist from now on
    _wait(device)
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        target.copy_(source)
        _wait(device)
        count += 1
    return 2.0 * size * count / (time.perf_counter() - began)


def _available_bytes() -> int:
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
