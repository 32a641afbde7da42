"""Multiply matrices on one device: how fast, and whether the product is right.

The product of matrices of small whole numbers is exact in every type tried, so each entry can be compared
with the same product of integers. A device that computes wrong is worse than one that computes slowly."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch

from holdfast.node_check.reading import NodeReading

if TYPE_CHECKING:
    from collections.abc import Iterator

TYPES = (torch.float32, torch.bfloat16, torch.float16)
UNIT = "flop/s"
SIZES = (256, 512, 1024, 2048, 4096, 8192)
"""Sides of the matrices; the first one at which a product takes CALL_S is measured, or the last one."""
CALL_S = 0.01
CHECKED = 128
"""Rows and columns of the product that is compared. Factors are -1, 0 or 1, so no sum exceeds 128, and
bfloat16 holds each whole number up to 256."""


def readings(device: torch.device, seconds: float) -> Iterator[NodeReading]:
    """One reading for each type. `seconds`: how long each type is measured."""
    for kind in TYPES:
        name = f"{_label(device)}.gemm.{str(kind).removeprefix('torch.')}"
        try:
            wrong = _wrong_entries(device, kind)
            rate = None if wrong else _rate(device, kind, seconds)
            broken = f"{wrong} of {CHECKED**2} entries of a product are wrong" if wrong else ""
            yield NodeReading(name, rate, UNIT, broken=broken)
        except RuntimeError as error:
            text = f"{type(error).__name__}: {str(error).strip()[:200]}"
            if isinstance(error, NotImplementedError):  # this type of number is not for this kind of device
                yield NodeReading(name, None, UNIT, reason=text)
            else:
                yield NodeReading(name, None, UNIT, broken=text)


def _label(device: torch.device) -> str:
    return device.type if device.index is None else f"{device.type}:{device.index}"


def _wrong_entries(device: torch.device, kind: torch.dtype) -> int:
    """How many entries of a product of whole numbers differ from the same product of integers."""
    made = torch.Generator().manual_seed(20)
    left, right = (torch.randint(-1, 2, (CHECKED, CHECKED), generator=made) for _ in range(2))
    found = (left.to(device, kind) @ right.to(device, kind)).cpu()
    return int((found != (left @ right).to(kind)).sum())


def _rate(device: torch.device, kind: torch.dtype, seconds: float) -> float:
    """Operations per second over the whole time, pauses that others cause included."""
    size = next((each for each in SIZES if _timed(device, kind, each, 1) >= CALL_S), SIZES[-1])
    took_s = max(_timed(device, kind, size, 1), 1e-6)
    count = max(1, round(seconds / took_s))
    return 2.0 * size**3 * count / _timed(device, kind, size, count)


def _timed(device: torch.device, kind: torch.dtype, size: int, count: int) -> float:
    """How long so many products take (s), after one that is not counted."""
    left = torch.full((size, size), 0.5, device=device, dtype=kind)
    result = left @ left
    _wait(device)
    began = time.perf_counter()
    for _ in range(count):
        torch.matmul(left, left, out=result)
    _wait(device)
    return time.perf_counter() - began


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
