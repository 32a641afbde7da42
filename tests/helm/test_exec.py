"""The trainer's container: the launcher in an image that has nothing of ours, beside an agent elsewhere."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.cli_running import until
from tests.helm.pod import HOLDFAST, Pod, copied, ended, pod
from tests.training import elastic

if TYPE_CHECKING:
    import subprocess

SCRIPT = """
import json, os, pathlib, sys, time
facts = {"rank": os.environ["RANK"], "prefix": sys.prefix, "cwd": os.getcwd(), "argv": sys.argv,
         "env": {name: os.environ.get(name) for name in ("OF_THE_IMAGE", "OF_THE_AGENT", "OMP_NUM_THREADS")}}
pathlib.Path(f"rank{os.environ['RANK']}.json").write_text(json.dumps(facts))
while not all(pathlib.Path(f"rank{rank}.json").exists() for rank in (0, 1)):
    time.sleep(0.01)  # whoever fails first ends the other
sys.exit(int(sys.argv[1]))
"""
PATIENT = """
import os, pathlib, signal, time
pathlib.Path("pid").write_text(str(os.getpid()))
while not pathlib.Path("done").exists():
    time.sleep(0.02)
"""
ELASTIC = elastic(6, before="import holdfast, pathlib\npathlib.Path('sdk').write_text(holdfast.__file__)")


async def in_thread(pod: Pod, *words: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(pod.submit, *words)


@pytest.mark.parametrize(("wanted", "code"), [(0, 0), (5, 41)])
async def test_a_job_runs_in_an_image_without_our_packages(wanted: int, code: int) -> None:
    async with pod() as node:
        (node.folder / "train.py").write_text(SCRIPT)
        node.start_agent()
        node.start_trainer("python", "train.py", flags=("--job", "job"))
        words = ("--nproc-per-node", "2", "--max-restarts", "0", "train.py", str(wanted))
        submitted = await in_thread(node, *words)
        assert submitted.returncode == (1 if wanted else 0), submitted.stderr + node.said()
        assert node.trainer_code() == code, node.said()
        facts = json.loads((node.folder / "rank1.json").read_text())
        assert facts["prefix"] == str(node.folder / "image")
        assert facts["cwd"] == str(node.folder)
        assert facts["argv"] == ["train.py", str(wanted)]
        assert facts["env"] == {"OF_THE_IMAGE": "yes", "OF_THE_AGENT": None, "OMP_NUM_THREADS": "3"}


async def test_the_sdk_comes_with_the_copy() -> None:
    async with pod(Path(sysconfig.get_path("purelib"))) as node:
        (node.folder / "train.py").write_text(ELASTIC)
        node.start_agent()
        node.start_trainer("python", "train.py", flags=("--job", "job"))
        submitted = await in_thread(node, "--nproc-per-node", "2", "--snapshot-every", "2", "train.py")
        assert submitted.returncode == 0, submitted.stderr + node.said()
        assert node.trainer_code() == 0, node.said()
        assert (node.folder / "sdk").read_text() == str(node.folder / "copy/lib/holdfast/__init__.py")


async def test_ranks_live_on_while_the_sidecar_is_replaced() -> None:
    async with pod() as node:
        (node.folder / "train.py").write_text(PATIENT)
        node.start_agent()
        node.start_trainer("python", "train.py", flags=("--job", "job"))
        job = asyncio.create_task(in_thread(node, "train.py"))
        written = node.folder / "pid"
        await asyncio.to_thread(until, lambda: written.exists() and written.read_text(), node.said)
        first, pid = node.agent, written.read_text()
        assert first is not None
        first.kill()
        first.wait()
        node.start_agent()
        (node.folder / "done").touch()
        assert (await job).returncode == 0, node.said()
        assert node.trainer_code() == 0
        assert written.read_text() == pid


async def test_sigterm_of_the_trainer_has_the_agent_leave_first() -> None:
    async with pod() as node:
        (node.folder / "train.py").write_text(PATIENT)
        node.start_agent()
        node.start_trainer("python", "train.py")
        job = asyncio.create_task(in_thread(node, "train.py"))
        written = node.folder / "pid"
        await asyncio.to_thread(until, lambda: written.exists() and written.read_text(), node.said)
        assert node.agent is not None
        assert node.trainer is not None
        node.trainer.send_signal(signal.SIGTERM)
        assert node.trainer_code() == 143, node.said()
        assert await asyncio.to_thread(node.agent.wait, 30) == 0, node.said()
        stopped = await asyncio.to_thread(_stop, node)
        assert stopped.returncode == 0, stopped.stderr
        await job


def _stop(node: Pod) -> subprocess.CompletedProcess[str]:
    words = [*HOLDFAST, "stop", "--coordinator", node.coordinator, "job"]
    return ended(words)


async def test_an_agent_that_waits_for_a_launcher_ends_when_told() -> None:
    async with pod() as node:
        node.start_agent()
        assert node.agent is not None
        pid = node.agent.pid
        await asyncio.to_thread(until, lambda: _catches_sigterm(pid), node.said)
        node.agent.terminate()
        assert await asyncio.to_thread(node.agent.wait, 30) == 0, node.said()


def _catches_sigterm(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught, 16) & 1 << (signal.SIGTERM - 1))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["exec"], "no command given"),
        (["exec", "--node", "n0", "--", sys.executable, "nowhere.py"], "script nowhere.py not found"),
        (["exec", "--node", "no/de", "--", "python", "-c", "1"], "node name 'no/de' is invalid"),
        (["exec", "--node", "n0", "--", "python9", "x.py"], "python9 not found on PATH"),
        (["exec", "--copy-to", "/proc/no"], "give a writable --copy-to"),
    ],
)
def test_what_cannot_be_is_said_with_the_mend(words: list[str], said: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        refused = ended([*HOLDFAST, *words], cwd=folder)
        assert refused.returncode != 0
        assert said in refused.stderr


def test_an_image_without_python_is_told_so() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        assert copied(folder) == 0
        env = {"PATH": "/nowhere", "HOLDFAST_PYTHON": "/no/python"}
        shim = ["/bin/sh", str(folder / "bin/holdfast"), "exec", "--", "python", "x.py"]
        (folder / "tools").mkdir()
        os.symlink("/usr/bin/dirname", folder / "tools/dirname")
        env["PATH"] = str(folder / "tools")
        refused = ended(shim, env=env)
        assert refused.returncode == 127
        assert "HOLDFAST_PYTHON" in refused.stderr
