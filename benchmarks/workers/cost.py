"""Measure what the SDK costs when nothing fails: `python cost.py overhead|stall`, one rank under Holdfast.

Both kinds alternate between the measurement and what it is compared with, in one process. `LOGS` comes from
the environment; the last line is `done`, with lists of seconds."""

from __future__ import annotations

import mmap
import os
import sys
import time
from pathlib import Path

import torch
from torch import nn

from benchmarks.log import EventLog
from holdfast import Session

LAYERS, WIDTH, BATCH, SAMPLES = 24, 64, 16, 100_000
STATE_BYTES = 192 << 20
log = EventLog(Path(os.environ["LOGS"]), rank=0)
session = Session()
torch.set_num_threads(1)
torch.manual_seed(0)


def overhead(steps: int) -> dict[str, list[float]]:
    """CPU time of this thread for steps of a small model with many tensors, alternately plain and with the
    SDK."""
    ours, ours_optimizer = _deep()
    plain, plain_optimizer = _deep()
    data = torch.randn(SAMPLES, WIDTH)
    session.track(model=ours, optimizer=ours_optimizer)
    times: dict[str, list[float]] = {"plain_s": [], "sdk_s": []}

    @session.elastic
    def train() -> None:
        ours_ddp = session.ddp(ours)  # with one rank it is the module itself, like its plain counterpart
        middle = 0.0
        for _ in session.steps(steps):
            begun = time.thread_time()
            if middle:
                times["sdk_s"].append(begun - middle)
            _step(plain, plain_optimizer, data[torch.randint(SAMPLES, (BATCH,))]).item()
            middle = time.thread_time()
            times["plain_s"].append(middle - begun)
            batch = data[session.sample_indices(SAMPLES, global_batch=BATCH, seed=0)]
            loss = _step(ours_ddp, ours_optimizer, batch)
            session.report(loss=loss.item())

    train()
    return times


def _deep() -> tuple[nn.Module, torch.optim.AdamW]:
    layers: list[nn.Module] = []
    for index in range(LAYERS):
        layers += [nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH) if index % 6 == 0 else nn.GELU()]
    model = nn.Sequential(*layers, nn.Dropout(0.1))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> torch.Tensor:
    optimizer.zero_grad()
    loss: torch.Tensor = model(batch).pow(2).mean()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss


def stall(steps: int) -> dict[str, list[float]]:
    """The pause that a snapshot makes between two steps, and a memcpy of the same state into mapped shared
    memory."""
    model = nn.Linear(STATE_BYTES // 12 // 4096, 4096, bias=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    session.track(model=model, optimizer=optimizer)
    times: dict[str, list[float]] = {"pause_s": [], "memcpy_s": []}

    @session.elastic
    def train() -> None:
        ended = 0.0
        for _ in session.steps(steps):
            if ended:
                times["pause_s"].append(time.perf_counter() - ended)
            model(torch.ones(1, model.in_features)).sum().backward()
            optimizer.step()
            times["memcpy_s"].append(_memcpy(_tensors(model, optimizer)))
            ended = time.perf_counter()

    train()
    return times


def _tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Everything that a snapshot has to copy."""
    slots = [value for state in optimizer.state.values() for value in state.values()]
    return [tensor.detach() for tensor in [*model.parameters(), *slots]]


_target: list[torch.Tensor] = []


def _memcpy(tensors: list[torch.Tensor]) -> float:
    """The seconds to copy these tensors into shared memory whose pages are mapped."""
    if not _target:
        size = sum(tensor.nbytes for tensor in tensors)
        _target.append(torch.frombuffer(_shared(size), dtype=torch.uint8))
        _copy(tensors)
    begun = time.perf_counter()
    _copy(tensors)
    return time.perf_counter() - begun


def _copy(tensors: list[torch.Tensor]) -> None:
    offset = 0
    for tensor in tensors:
        flat = tensor.contiguous().view(-1).view(torch.uint8)
        _target[0][offset : offset + flat.numel()].copy_(flat)
        offset += flat.numel()


def _shared(size: int) -> mmap.mmap:
    descriptor = os.memfd_create("benchmark")
    os.posix_fallocate(descriptor, 0, size)
    return mmap.mmap(descriptor, size)


KINDS = {"overhead": overhead, "stall": stall}
log("done", **KINDS[sys.argv[1]](int(sys.argv[2])))
