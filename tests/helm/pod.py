"""Run one pod as processes: an agent, and beside it `holdfast exec`, copied into an image without our
packages."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controlplane.daemon.etcd.server import PrivateEtcd
from tests.e2e.cli_running import DEADLINE_S, until
from tests.leashed import leashed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

JOB_S = 110.0
"""A job of a test is over within this, on a busy machine."""
HOLDFAST = (sys.executable, "-P", "-m", "controlplane")


def image(folder: Path, packages: Path | None = None) -> Path:
    """Make a bare Python like that of a user's image, with the packages in the folder `packages`. Returns its
    interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    if packages is not None:
        (next((folder / "lib").glob("python3*")) / "site-packages" / "image.pth").write_text(f"{packages}\n")
    return folder / "bin" / "python"


def ended(words: list[str], timeout: float = DEADLINE_S, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, good or bad, within `timeout` s."""
    return subprocess.run(words, check=False, text=True, capture_output=True, timeout=timeout, **options)


def copied(folder: Path) -> int:
    """Put the launcher into this folder, as the pod's first container does."""
    return ended([*HOLDFAST, "exec", "--copy-to", str(folder)]).returncode


class Pod:
    """The processes of one node; each container has an environment of its own."""

    def __init__(self, folder: Path, python: Path, coordinator: str, name: str = "n0") -> None:
        self.folder, self.python, self.coordinator, self.name = folder, python, coordinator, name
        self.run_dir, self.shm = folder / "run", folder / f"shm-{name}"
        self.shm.mkdir()
        self.agent: subprocess.Popen[bytes] | None = None
        self.trainer: subprocess.Popen[bytes] | None = None

    def beside(self, name: str) -> Pod:
        """Another pod of the same image."""
        return Pod(self.folder, self.python, self.coordinator, name)

    def start_agent(self, *flags: str) -> None:
        words = ["agent", "--cluster=c", f"--node={self.name}", "--address=127.0.0.1", "--slots=2", *flags]
        words += [f"--coordinator={self.coordinator}", f"--run-dir={self.run_dir}", f"--shm-dir={self.shm}"]
        words += ["--no-own-launcher", f"--address-file={self.folder / f'{self.name}.json'}", "--metrics="]
        env = {**os.environ, "OF_THE_AGENT": "yes"}
        with (self.folder / f"agent-{self.name}.log").open("ab") as log:
            self.agent = subprocess.Popen(leashed([*HOLDFAST, *words]), stdout=log, stderr=log, env=env)

    def start_trainer(self, *command: str, flags: tuple[str, ...] = ()) -> None:
        """`holdfast exec` in the trainer's container."""
        self.start_in_image([str(self.folder / "copy/bin/holdfast"), "exec", *flags, "--", *command])

    def start_in_image(self, argv: list[str], **variables: str) -> None:
        """The trainer's container, with nothing of ours in its environment but what the pod gives it."""
        path = f"{self.folder / 'copy/bin'}:{self.python.parent}:/usr/bin:/bin"
        env = {"PATH": path, "OF_THE_IMAGE": "yes", "OMP_NUM_THREADS": "3"}
        env |= {"HOLDFAST_RUN_DIR": str(self.run_dir), "HOLDFAST_CLUSTER": "c", "HOLDFAST_NODE": self.name}
        env |= variables
        with (self.folder / f"trainer-{self.name}.log").open("ab") as log:
            self.trainer = subprocess.Popen(leashed(argv), cwd=self.folder, env=env, stdout=log, stderr=log)

    def submit(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Give the job to the coordinator and stay until it ends."""
        flags = ["submit", "--coordinator", self.coordinator, "--cwd", ".", "--wait", "--rdzv-id", "job"]
        return ended([*HOLDFAST, *flags, *words], JOB_S)

    def said(self) -> str:
        """The logs of both containers, for a test that fails."""
        logs = sorted(self.folder.glob("*.log"))
        return "\n".join(f"--- {path.name}\n{path.read_text()}" for path in logs if path.exists())

    def trainer_code(self) -> int:
        """How the trainer's container ended."""
        assert self.trainer is not None
        until(lambda: self.trainer and self.trainer.poll() is not None, self.said)
        return int(self.trainer.returncode)

    def end(self) -> None:
        """Kill the processes that are left."""
        for process in (self.trainer, self.agent):
            if process is not None and process.poll() is None:
                process.terminate()
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def _start_coordinator(folder: Path, etcd: str) -> subprocess.Popen[bytes]:
    words = ["coordinator", f"--etcd={etcd}", "--etcd-private", "--cluster=c", "--metrics="]
    words += ["--listen=127.0.0.1:0", f"--address-file={folder / 'coordinator.json'}", "--join-grace-s=0"]
    with (folder / "coordinator.log").open("wb") as log:
        return subprocess.Popen(leashed([*HOLDFAST, *words]), stdout=log, stderr=log)


@asynccontextmanager
async def pod(packages: Path | None = None) -> AsyncIterator[Pod]:
    """A coordinator with its etcd, and a pod whose containers are not started yet."""
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="hf-"))
    async with PrivateEtcd(folder / "etcd") as etcd:
        address = folder / "coordinator.json"
        coordinator = _start_coordinator(folder, etcd.endpoint)
        made = None
        try:
            until(address.exists, (folder / "coordinator.log").read_text)
            python = image(folder / "image", packages)
            assert copied(folder / "copy") == 0
            made = Pod(folder, python, json.loads(address.read_text())["listen"])
            yield made
        finally:
            if made is not None:
                made.end()
            coordinator.terminate()
            coordinator.wait(10)
            shutil.rmtree(folder, ignore_errors=True)
