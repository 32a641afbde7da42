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
from tests.e2e.cli_running import ASKED_S, until
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
            until(lambda: "n7" in holdfast("get", "nodes", *where).stdout, "the node joins", pause_s=ASKED_S)
            ask(where, script)
            assert "hello from 0 blue" in (folder / "agent.log").read_text()
            submit_under_a_taken_name(where, folder)
    assert not [name for name in os.listdir(folder) if name.startswith("holdfast-")]


def submit_under_a_taken_name(where: tuple[str, str], folder: Path) -> None:
    """What runs goes on; another script under its name is refused, the same one again is not."""
    script, other = folder / "waits.py", folder / "other.py"
    script.write_text(
        "import os, pathlib, time\n"
        f"pathlib.Path({str(folder)!r}, 'runs').write_text(str(os.getpid()))\n"
        f"while not pathlib.Path({str(folder)!r}, 'end').exists():\n    time.sleep(0.02)\n"
    )
    other.write_text("raise SystemExit(3)")
    words = ("submit", *where, "--rdzv-id", "taken")
    assert holdfast(*words, str(script)).returncode == 0
    until((folder / "runs").exists, "it runs")
    refused = holdfast(*words, "--max-restarts", "0", str(other))
    assert refused.returncode == 1 and not refused.stdout
    for said in (
        "job taken was not accepted",
        "is running",
        f"{script}', not '{other}'",
        "max_restarts is 3, not 0",
    ):
        assert said in refused.stderr
    again = holdfast(*words, str(script))
    assert (again.returncode, again.stdout) == (0, "job taken continues, running\n")
    assert os.path.exists(f"/proc/{(folder / 'runs').read_text()}"), "undisturbed"
    (folder / "end").touch()
    done = holdfast(*words, "--wait", str(script))
    assert done.returncode == 0 and "job taken finished" in done.stdout, done.stderr


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


def watch(seen: Path, *words: str) -> subprocess.Popen[bytes]:
    with seen.open("w") as output:
        return subprocess.Popen(leashed([*PROGRAM, *words]), stdout=output, stderr=output)


@pytest.mark.parametrize("words", [("top", "--interval-s", "0.2"), ("status", "--watch")])
async def test_who_watches_goes_on_while_no_coordinator_answers(folder: Path, words: tuple[str, ...]) -> None:
    """A change of leaders, say: the last picture stays, with the time since when."""
    seen = folder / "seen"
    async with PrivateEtcd(folder / "etcd") as etcd:
        flags = ("--etcd", etcd.endpoint, "--etcd-private", "--lease-ttl-s", "2", "--listen")
        with daemon(folder, "first", "coordinator", *flags, "127.0.0.1:0") as address:
            until(lambda: not holdfast("status", "--coordinator", address).returncode, "it leads")
            watching = watch(seen, *words, "--coordinator", address)
            until(lambda: "health: healthy" in seen.read_text(), seen.read_text)
        until(lambda: "No answer since" in seen.read_text(), seen.read_text)
        with daemon(folder, "second", "coordinator", *flags, address):
            until(
                lambda: seen.read_text().rpartition("No answer since")[2].count("led by") > 1,
                lambda: seen.read_text()[-2000:],
            )
            watching.send_signal(signal.SIGINT)
            assert watching.wait(30) == 130, seen.read_text()[-2000:]
