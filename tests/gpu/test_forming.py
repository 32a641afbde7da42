"""A second death while a group of NCCL forms. This has never been run: no machine of ours has so many GPUs.

It holds what docs/failures/several.md says: an interrupt alone brings everybody back who was not killed."""

from __future__ import annotations

import pytest
import torch

from tests.sdk import double_deaths
from tests.sdk.zygote import Zygote

pytestmark = pytest.mark.skipif(
    torch.cuda.device_count() < double_deaths.WORLD, reason=f"fewer than {double_deaths.WORLD} CUDA devices"
)
ROUNDS = 20


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("nonblocking", ["0", "1"])
def test_nobody_is_stuck_in_a_group_of_nccl(monkeypatch: pytest.MonkeyPatch, nonblocking: str) -> None:
    """With communicators that block while they are made, and with those that torch waits for itself."""
    monkeypatch.setenv("TORCH_NCCL_USE_COMM_NONBLOCKING", nonblocking)
    zygote = Zygote()
    struck = double_deaths.Struck(zygote, seed=11, backend="nccl")
    try:
        for _ in range(ROUNDS):
            found = struck.round()
            assert not found.stuck, f"{found}\n{struck.node.report()}"
        _, digests = struck.finish()
        assert len(digests) == 1
    finally:
        struck.node.close()
        zygote.close()
