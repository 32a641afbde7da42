"""What `holdfast doctor JOB --tune` computes with is measured on a real job: who makes the samples, what a
step reduces, the job's settings, and how nodes are listened to."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.e2e.cli_running import ANSWERED_S, answer, until
from tests.e2e.standing import submitted

if TYPE_CHECKING:
    from tests.e2e.standing import Job

SCRIPT = """
import time
import torch
from holdfast import Session

session = Session()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 512), torch.nn.Linear(512, 512))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
session.track(model=model, optimizer=optimizer)

class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        until = time.thread_time() + 0.02
        while time.thread_time() < until:
            pass
        return torch.ones(8)

@session.elastic
def train():
    wrapped = session.ddp(model)
    loader = session.loader(Samples(), 8)
    for step, batch in zip(session.steps(1_000_000), loader):
        optimizer.zero_grad()
        wrapped(batch).square().mean().backward()
        optimizer.step()

train()
"""


def doctor(job: Job, *more: str) -> dict[str, Any]:
    done = answer("doctor", job.job, "--coordinator", job.cluster.address, "--json", *more)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def makes_samples(job: Job) -> bool:
    seen = doctor(job)["samples"]
    return bool(seen) and seen["data_s"] > 0 and (seen["made_least_s"] or 0.0) > 0.5 * seen["data_s"]


def test_what_proposals_need_is_measured() -> None:
    with submitted("--nnodes", "1", "--nproc-per-node", "2", "--snapshot-every", "20", script=SCRIPT) as job:
        until(lambda: bool(job.journal("JobChanged")), lambda: job.output)
        until(
            lambda: answer("doctor", job.job, "--coordinator", job.cluster.address).returncode == 0,
            lambda: job.output,
        )
        until(lambda: makes_samples(job), lambda: job.output, pause_s=ANSWERED_S)
        seen = doctor(job)
        samples = seen["samples"]
        assert 0 < samples["data_s"] < samples["step_s"] and samples["ranks_here"] == 2
        assert 0 <= samples["no_cpu_ratio"] < 1
        assert seen["settings"]["snapshot_every"] == 20 and seen["settings"]["spares"] == 0
        heard = seen["listening"]
        assert 0 < heard["longest_silence_s"] < heard["node_timeout_s"] and heard["seen_s"] > 0
        assert heard["must_exceed_s"] == {"--lease-ttl-s": 2.0, "--retry-s": 1.0, "--process-timeout-s": 5.0}
        assert (heard["noticed"], heard["mistaken_s"], seen["reductions"]) == ({}, [], None)
        assert answer("stacks", job.job, "--coordinator", job.cluster.address).returncode == 0
        reduced = doctor(job)["reductions"]
        assert reduced["reason"] == "" and reduced["bytes_each"] == [4 * 513 * 512], (
            "the first layer is small"
        )
        assert reduced["every_s"] > 0
        told = doctor(job, "--tune")
        assert told["proposals"] == [], "the account is too short"
        why = {each["setting"]: each["reason"] for each in told["not_proposed"]}
        assert "needs 300 s" in why["loader"] and "needs 300 s" in why["heartbeat"]
