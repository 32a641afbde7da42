"""A pod is evicted: SIGTERM becomes a drain, with real processes, and everything has ended before SIGKILL."""

from __future__ import annotations

import asyncio
import json
import signal
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.cli_running import until
from tests.helm.pod import Pod, pod

if TYPE_CHECKING:
    import subprocess

SCRIPT = """
import json, os, pathlib, sys, time, torch
from holdfast import Session
torch.manual_seed(0)
session = Session()
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
session.track(model=model, optimizer=optimizer)

@session.elastic
def train():
    ddp = session.ddp(model)
    for step in session.steps(int(sys.argv[1])):
        optimizer.zero_grad()
        ddp(torch.ones(2, 4)).square().sum().backward()
        optimizer.step()
        if os.environ["RANK"] == "0":
            with open("steps", "a") as file:
                file.write(json.dumps([step, torch.distributed.get_world_size()]) + "\\n")
        if not pathlib.Path("hurry").exists():
            time.sleep(0.03)

train()
"""
JOB = ("--nproc-per-node=1", "--snapshot-every=5", "--checkpoint-every=100000")


def steps(folder: Path) -> list[tuple[int, int]]:
    """(step, world size) as rank 0 has done them."""
    path = folder / "steps"
    text = path.read_text() if path.exists() else ""
    return [tuple(json.loads(line)) for line in text.splitlines()]


async def in_time(look: Any, node: Pod) -> Any:
    return await asyncio.to_thread(until, look, node.said)


def begin(node: Pod, grace_s: int = 20) -> None:
    node.start_agent(f"--drain-grace-s={grace_s}")
    node.start_trainer("python", "train.py", flags=("--job", "job", f"--grace-s={grace_s + 5}"))


async def evict(node: Pod) -> None:
    """What the kubelet does: the trainer first, the sidecar when that has ended. Neither needs SIGKILL."""
    assert node.trainer is not None and node.agent is not None
    node.trainer.send_signal(signal.SIGTERM)
    assert await in_time(lambda: node.trainer and node.trainer.poll(), node) == 143, node.said()
    assert await asyncio.to_thread(node.agent.wait, 30) == 0, node.said()


def submit(node: Pod, total: int, *words: str) -> asyncio.Task[subprocess.CompletedProcess[str]]:
    return asyncio.create_task(asyncio.to_thread(node.submit, *JOB, *words, "train.py", str(total)))


@pytest.mark.slow
async def test_the_ranks_of_an_evicted_pod_leave_at_the_end_of_their_step() -> None:
    async with pod(Path(sysconfig.get_path("purelib"))) as stays:
        (stays.folder / "train.py").write_text(SCRIPT)
        goes = stays.beside("n1")
        try:
            begin(stays)
            begin(goes)
            job = submit(stays, 400, "--nnodes=1:2")
            await in_time(lambda: any(size == 2 for _, size in steps(stays.folder)), stays)
            await evict(goes)
            await in_time(lambda: steps(stays.folder)[-1][1] == 1, stays)
            (stays.folder / "hurry").touch()
            assert (await job).returncode == 0, stays.said()
            assert stays.trainer_code() == 0
        finally:
            goes.end()
        done = [step for step, _ in steps(stays.folder)]
        assert done == list(range(400))  # no step was done twice


@pytest.mark.slow
async def test_what_an_evicted_pod_was_alone_with_is_saved_first() -> None:
    async with pod(Path(sysconfig.get_path("purelib"))) as first:
        (first.folder / "train.py").write_text(SCRIPT)
        begin(first, grace_s=6)
        job = submit(first, 600, f"--storage=file://{first.folder / 'storage'}")
        await in_time(lambda: len(steps(first.folder)) > 30, first)
        begun = steps(first.folder)[-1][0]
        await evict(first)
        left = len(steps(first.folder))
        fresh = first.beside("n0-fresh")
        try:
            (first.folder / "hurry").touch()
            begin(fresh)
            assert (await job).returncode == 0, first.said()
        finally:
            fresh.end()
        again = steps(first.folder)[left][0]
        assert 0 < again and again >= begun - 5, f"begun to leave at {begun}, and went on from {again}"
