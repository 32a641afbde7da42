"""Ranks on a GPU: killed, re-formed, restored, bit for bit. Skipped, and said so, where there is none."""

from __future__ import annotations

import pytest
import torch

from tests.e2e.cli_running import running

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")

SCRIPT = """
import hashlib, os, pathlib, signal, sys, time
import torch
from torch import nn
from holdfast import Session

backend, victim, at = {backend!r}, {victim}, {at}
folder = pathlib.Path(sys.argv[1])
torch.use_deterministic_algorithms(True)
session = Session(backend=backend)
device = session.device
assert device.type == "cuda"
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 64)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
session.track(model=model, optimizer=optimizer)
data = torch.randn(4096, 64, generator=torch.Generator().manual_seed(1))

def perhaps_die(step):
    marker = folder / "died"
    if session.rank == victim and step == at and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)

@session.elastic
def train():
    ddp = session.ddp(model)
    for step in session.steps(40):
        rows = data[session.sample_indices(len(data), 32)].to(device)
        loss = (ddp(rows) - rows).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        perhaps_die(step)
        optimizer.step()
        time.sleep(0.02)

train()
state = torch.cat([p.detach().flatten() for p in model.parameters()]).cpu()
(folder / f"digest-{{session.rank}}").write_text(hashlib.sha256(state.numpy().tobytes()).hexdigest())
"""


def digests(backend: str, ranks: int, victim: int) -> tuple[set[str], list[dict[str, object]]]:
    """Final digests of all ranks, and the closed incidents, of a run in which `victim` dies (-1: nobody)."""
    script = SCRIPT.format(backend=backend, victim=victim, at=17)
    words = ["--nproc-per-node", str(ranks), "--spares", "1", "--snapshot-every", "5"]
    words += ["--checkpoint-every", "20"]
    with running(*words, script=script, storage=True) as run:
        assert run.end(240) == 0, run.output
        closed = [i["incident"] for i in run.journal("IncidentChanged") if i["incident"]["outcome"] != "open"]
        return {path.read_text() for path in run.folder.glob("digest-*")}, closed


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_a_rank_alone_on_nccl_comes_back_from_its_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    undisturbed, _ = digests("nccl", 1, -1)
    disturbed, incidents = digests("nccl", 1, 0)
    assert len(undisturbed) == 1 and disturbed == undisturbed
    assert [i["lost_steps"] for i in incidents] == [2], "the snapshot of step 15 is the newest state there is"


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_four_ranks_on_one_gpu_over_gloo_lose_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    undisturbed, _ = digests("gloo", 4, -1)
    disturbed, incidents = digests("gloo", 4, 2)
    assert len(undisturbed) == 1 and disturbed == undisturbed
    assert [i["lost_steps"] for i in incidents] == [0]
