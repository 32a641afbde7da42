"""The batch script on a real Slurm: a rank is killed, a node is lost, the time limit comes."""

from __future__ import annotations

import functools
import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.e2e.cli_running import until
from tests.security.authority import Authority
from tests.training import elastic

if TYPE_CHECKING:
    from pathlib import Path

    from tests.slurm.cluster import SlurmCluster, SlurmJob

STEPS = 400
_DIGEST = """
import hashlib
weights = b"".join(each.detach().numpy().tobytes() for each in model.parameters())
print("weights", hashlib.sha256(weights).hexdigest(), flush=True)
"""
_EACH = """
import os, time
print("step", step, os.environ["RANK"], os.getpid(), flush=True)
time.sleep({seconds} if os.environ.get("SLURM_RESTART_COUNT", "0") == "0" else 0.0)
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def submitted(slurm: SlurmCluster, *flags: str, seconds: float) -> SlurmJob:
    """Render the script with these flags, and give it to Slurm. `seconds`: how long a step takes, until the
    job is requeued."""
    folder = slurm.folder / "work"
    folder.mkdir()
    (folder / "train.py").write_text(elastic(STEPS, each=_EACH.format(seconds=seconds)) + _DIGEST)
    words = [
        *("slurm", "render", "--nodes", "2", "--spare-nodes", "1", "--name", slurm.folder.name),
        *("--storage", str(folder / "checkpoints"), "--flag=--snapshot-every=5"),
        *("--flag=--checkpoint-every=100", f"--sbatch=--output={folder / 'job.out'}", *flags),
    ]
    command = [sys.executable, "-P", "-m", "controlplane", *words, "--", "train.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (folder / "job.sh").write_text(done.stdout)
    return slurm.submit(folder / "job.sh")


def certificates(folder: Path, job: str) -> str:
    """The folder of certificates that docs/slurm.md describes."""
    folder.mkdir(mode=0o700)
    authority = Authority(folder, "ca")
    authority.ca.rename(folder / "ca.crt")
    authority.issue("coordinator", dns="coordinator.holdfast")
    authority.issue("agent", f"holdfast://{job}/agent/n*?job={job}", dns="agents.holdfast")
    authority.issue("operator", f"holdfast://{job}/operator/slurm?job={job}")
    return str(folder)


def weights(job: SlurmJob) -> set[str]:
    """What the ranks have printed at the end."""
    return set(re.findall(r"^\[n\d \d\] weights (\w+)", job.output, re.MULTILINE))


@functools.cache
def plain() -> str:
    """The digest of the weights after the same steps in one process, without Holdfast and without DDP."""
    script = elastic(STEPS).replace("from holdfast import Session", "").replace("session = Session()", "")
    script = re.sub(r"session\.track\(.*\)|@session\.elastic", "", script)
    script = script.replace("session.ddp(model)", "model").replace("session.steps", "range") + _DIGEST
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.split()[-1]


def steps(output: str) -> list[tuple[int, int, int]]:
    """(step, rank, pid) of every line that a step has printed."""
    return [tuple(map(int, found)) for found in re.findall(r"step (\d+) (\d+) (\d+)", output)]  # type: ignore[misc]


def trained(output: str, step: int) -> bool:
    """Whether some rank has come to this step."""
    return any(done >= step for done, _, _ in steps(output))


def test_a_killed_rank_is_replaced_within_the_job(slurm: SlurmCluster) -> None:
    job = submitted(slurm, "--tls-dir", certificates(slurm.folder / "tls", slurm.folder.name), seconds=0.05)
    pid = {rank: pid for _, rank, pid in steps(job.until(lambda output: trained(output, 50)))}[1]
    os.kill(pid, signal.SIGKILL)
    assert job.ended() == "COMPLETED", job.output
    assert "incident 1 recovered" in job.output
    assert weights(job) == {plain()}
    assert job.fact("Restarts") == "0"
    assert slurm.left() == []


def test_of_a_lost_node_the_spare_one_takes_the_ranks_and_the_job_stays(slurm: SlurmCluster) -> None:
    job = submitted(slurm, "--insecure", seconds=0.1)
    job.until(lambda output: trained(output, 50))
    lost = next(node for node in re.findall(r"\[(n\d) \d\] step", job.output) if node != "n0")
    slurm.lose(lost)
    assert job.ended() == "COMPLETED", job.output
    assert f"node {lost} node lost" in job.output
    assert weights(job) == {plain()}
    assert job.fact("Restarts") == "0"
    assert slurm.says("sinfo", "-h", "-n", lost, "-o", "%T").startswith("down")
    assert slurm.left() == []


def test_a_job_that_cannot_begin_says_why_and_fails(slurm: SlurmCluster) -> None:
    job = submitted(slurm, "--insecure", "--etcd-binary", "/nowhere/etcd", seconds=0.1)
    assert job.ended() == "FAILED"
    assert "no /nowhere/etcd on" in job.output and "--etcd-binary" in job.output
    assert slurm.left() == []


def test_when_the_first_node_is_lost_another_one_has_the_job_requeued(slurm: SlurmCluster) -> None:
    job = submitted(slurm, "--insecure", seconds=0.2)
    saved = re.search(r"checkpoint (\d+)-1 committed", job.until(lambda output: "100-1 committed" in output))
    assert saved is not None
    slurm.lose("n0")
    until(lambda: job.fact("Restarts") == "1", lambda: f"{job.fact('JobState')}; {job.output}")
    slurm.revive("n0")
    told = re.compile("start 2;.*the first node, n0, was lost: n. requeued the job", re.DOTALL)
    job.until(lambda output: told.search(output) is not None)
    assert job.ended() == "COMPLETED", job.output
    again = steps(job.output.partition("start 2")[2])
    assert min(step for step, _, _ in again) >= int(saved[1]), "it went on from a checkpoint"
    assert weights(job) == {plain()}
    assert slurm.left() == []


def test_at_the_time_limit_the_job_is_saved_requeued_and_goes_on(slurm: SlurmCluster) -> None:
    job = submitted(slurm, "--insecure", "--time", "4", "--save-s", "60", seconds=1.0)
    output = job.until(lambda output: "start 2" in output, 400)
    assert "the time limit is near: saving the job" in output
    saved = re.search(r"(\d+)-\d+ is committed", output)
    assert saved is not None and 0 < int(saved[1]) < STEPS, output
    assert job.ended() == "COMPLETED", job.output
    again = steps(job.output.partition("start 2")[2])
    assert min(step for step, _, _ in again) == int(saved[1]), "it went on where it was saved"
    assert int(job.fact("Restarts")) >= 1
    assert weights(job) == {plain()}
    assert slurm.left() == []
