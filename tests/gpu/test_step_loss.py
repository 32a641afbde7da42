"""A trainer's loss on a GPU: it is kept without waiting for the device. Skipped where there is none."""

from __future__ import annotations

import pytest
import torch

from holdfast import Session

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")


def test_a_loss_is_kept_without_waiting_for_the_device() -> None:
    session = Session()
    step = session.runtime.step_loss
    losses = [torch.full((), value, device="cuda", requires_grad=True) * 1.0 for value in (1.0, 3.0)]
    torch.cuda.set_sync_debug_mode("error")
    try:
        step.begin()
        for loss in losses:
            step.batch()
            step.add(loss, 2)
        step.end()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    offered = session.runtime.reports.take_offer()
    assert offered is not None and float(offered[2]) == 2.0
