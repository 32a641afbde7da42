"""The daemons started by hand, and the questions that people ask them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from controlplane.daemon.etcd.server import PrivateEtcd
from tests.e2e.cli_running import until
from tests.leashed import leashed

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = (sys.executable, "-P", "-m", "controlplane")


def holdfast(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROGRAM, *words], capture_output=True, text=True, timeout=60, check=False)


@contextmanager
def daemon(folder: Path, name: str, *words: str) -> Iterator[str]:
    """A daemon that serves; yields the address it listens at."""
    file, log = folder / f"{name}.json", folder / f"{name}.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            leashed([*PROGRAM, *words, "--address-file", str(file), "--cluster", folder.name]),
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        until(lambda: file.exists() or process.poll() is not None, f"{name} serves")
        assert process.poll() is None, log.read_text()
        yield json.loads(file.read_text()).get("listen", "")
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, log.read_text()


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(dir="/tmp", prefix="hf-"))
    yield path
    shutil.rmtree(path)


async def test_daemons_by_hand(folder: Path) -> None:
    script = folder / "script.py"
    script.write_text("import os, sys; print('hello from', os.environ['RANK'], os.environ.get('COLOUR'))")
    async with PrivateEtcd(folder / "etcd") as etcd:
        with ExitStack() as stack:
            flags = (
                "--etcd",
                etcd.endpoint,
                "--etcd-private",
                "--listen",
                "127.0.0.1:0",
                "--lease-ttl-s",
                "2",
            )
            address = stack.enter_context(daemon(folder, "coordinator", "coordinator", *flags))
            where = ("--coordinator", address)
            places = ("--run-dir", str(folder / "run"), "--shm-dir", str(folder))
            stack.enter_context(
                daemon(folder, "agent", "agent", *where, "--node", "n7", "--slots", "1", *places)
            )
            until(lambda: "n7" in holdfast("get", "nodes", *where).stdout, "the node joins")
            ask(where, script)
            assert "hello from 0 blue" in (folder / "agent.log").read_text()
    assert not [name for name in os.listdir(folder) if name.startswith("holdfast-")]


def ask(where: tuple[str, str], script: Path) -> None:
    """Submit, wait, look, all as a person would."""
    done = holdfast("submit", *where, "--wait", "--rdzv-id", "by-hand", "--env", "COLOUR=blue", str(script))
    assert done.returncode == 0 and "job by-hand finished" in done.stdout, done.stderr
    (row,) = json.loads(holdfast("get", "jobs", "-o", "json", *where).stdout)
    assert (row["job"], row["phase"], row["world_size"]) == ("by-hand", "finished", 1)
    assert "by-hand" in holdfast("status", *where).stdout
    told = holdfast("events", *where, "--job", "by-hand").stdout
    assert "job by-hand submitted" in told and "job by-hand finished" in told
    unknown = holdfast("stop", "by-hands", *where)
    assert unknown.returncode == 1 and "did you mean by-hand?" in unknown.stderr
