"""Phases of steps on a GPU, told by its own clock. Skipped where there is none."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
import torch

from holdfast import Session
from holdfast.ipc.progress_page import ProgressPage
from holdfast.ipc.step_times import PHASES, StepSums, StepTimesPage

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")
CYCLES, NAP_S, STEPS = 60_000_000, 0.1, 12


class Busy(torch.nn.Module):
    """Keeps the GPU busy for some 30 ms, which the host queues in no time."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sleep: Any = torch.cuda._sleep
        sleep(CYCLES)
        output: torch.Tensor = self.layer(x)
        return output


def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nap_s: float) -> StepSums:
    page = ProgressPage.create(tmp_path / "m.board")
    monkeypatch.setenv("HOLDFAST_BOARD", str(tmp_path / "m.board"))
    session = Session()
    net = Busy().to(session.device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    session.track(net=net, optimizer=optimizer)
    rows = torch.ones(4, 8, device=session.device)
    net(rows).sum().backward()  # the first kernels are loaded here, not in the first step
    optimizer.zero_grad()
    torch.cuda.synchronize()

    @session.elastic
    def run() -> None:
        for _ in session.steps(STEPS):
            with session.phase("data"):
                time.sleep(nap_s)
            loss = net(rows).sum()
            loss.backward()
            optimizer.step()
            loss.item()  # the host waits here for all that it has queued

    run()
    found = StepTimesPage(page).read()
    session.close()
    assert found is not None and found.steps == STEPS
    assert found.wall_ns == sum(getattr(found, f"{phase}_ns") for phase in PHASES)
    return found


def test_what_the_host_only_queues_counts_where_the_gpu_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = train(tmp_path, monkeypatch, 0.0)
    assert found.covered > 0
    assert found.forward_ns > 2 * found.other_ns, "by the host's clock all of it would be the wait at the end"


def test_a_wait_for_data_counts_as_far_as_the_gpu_is_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = train(tmp_path, monkeypatch, NAP_S)
    assert found.data_ns > found.forward_ns > 4 * found.optimizer_ns
    assert found.covered > 0
