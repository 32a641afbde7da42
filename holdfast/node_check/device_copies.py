"""Copy memory from the host to a device, back, and to each other device: bytes per second, and whether the
same bytes come out.

What is slow here, and not within the device (`copies.py`), is its link: PCIe, NVLink or a switch."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch

from holdfast.node_check.reading import NodeReading

if TYPE_CHECKING:
    from collections.abc import Iterator

BYTES = 128 << 20
"""2 ms on the fastest PCIe of 2025: a start of 10 us is nothing beside that."""
UNIT = "B/s"
OTHERS_MAX = 15
"""To so many other devices, at most, the next ones by number: no common node has more than 16."""


def readings(device: torch.device, devices: int, seconds: float) -> Iterator[NodeReading]:
    """Both ways between host and device, for `seconds` each; then to each other one of `devices`, for
    `seconds` together."""
    name, host = f"{device.type}:{device.index}", torch.device("cpu")
    made = torch.Generator().manual_seed(20)
    data = torch.randint(0, 1 << 62, (BYTES // 8,), generator=made).view(torch.uint8)
    yield _copied(f"{name}.copy.from_host", data, host, device, seconds)
    yield _copied(f"{name}.copy.to_host", data, device, host, seconds)
    others = [(device.index + step) % devices for step in range(1, devices)][:OTHERS_MAX]
    for index in others:
        target = torch.device(device.type, index)
        yield _copied(f"{name}.copy.to.{target.type}:{index}", data, device, target, seconds / len(others))


def _copied(
    name: str, data: torch.Tensor, source: torch.device, target: torch.device, seconds: float
) -> NodeReading:
    """Copy `data` from one place to another."""
    try:
        sent, got = _placed(data, source), _placed(torch.zeros_like(data), target)
        rate = _rate(sent, got, seconds)
        wrong = int((got.cpu() != data).sum())
    except RuntimeError as error:
        return NodeReading(name, None, UNIT, broken=f"{type(error).__name__}: {str(error).strip()[:200]}")
    if wrong:
        return NodeReading(name, None, UNIT, broken=f"{wrong} of {BYTES} copied bytes are wrong")
    return NodeReading(name, rate, UNIT)


def _placed(data: torch.Tensor, device: torch.device) -> torch.Tensor:
    """The same bytes on a device; on the host in pinned memory, which a device reads by itself."""
    return data.pin_memory() if device.type == "cpu" else data.to(device)


def _rate(sent: torch.Tensor, got: torch.Tensor, seconds: float) -> float:
    got.copy_(sent)  # the first one opens the way between the two
    _wait(sent, got)
    began, count = time.perf_counter(), 0
    while not count or time.perf_counter() - began < seconds:
        got.copy_(sent, non_blocking=True)
        _wait(sent, got)
        count += 1
    return sent.numel() * count / (time.perf_counter() - began)


def _wait(*tensors: torch.Tensor) -> None:
    for each in tensors:
        if each.is_cuda:
            torch.cuda.synchronize(each.device)
