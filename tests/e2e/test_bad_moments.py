"""Bad input while a job trains: it goes on, or ends with the reason; what it made durable stays."""

from __future__ import annotations

import os
import re
import signal
import socket
import struct
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from controlplane.cli.local.processes import is_running
from controlplane.exit_codes import REFUSED
from holdfast.ipc.frames import FRAME_BYTES_MAX, encode
from tests.e2e.cli_running import Run, running, until
from tests.e2e.test_cli_run import holdfast

if TYPE_CHECKING:
    from collections.abc import Iterator

TRAINING = """
import pathlib, sys, time, torch
from holdfast import Session
folder, raise_at, last = pathlib.Path(sys.argv[1]), {raise_at}, {last}
torch.manual_seed(0)
session = Session()
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.AdamW(model.parameters())
session.track(model=model, optimizer=optimizer)

@session.elastic
def train():
    ddp = session.ddp(model)
    for step in session.steps(last):
        optimizer.zero_grad()
        ddp(torch.ones(2, 64)).square().sum().backward()
        if step == raise_at:
            raise RuntimeError("always at this step")
        optimizer.step()
        while step == last - 1 and not (folder / "done").exists():
            time.sleep(0.02)
        time.sleep(0.02)

train()
"""
EVERY_FIVE = ("--snapshot-every", "5", "--checkpoint-every", "5")
TRACEBACK = "Traceback (most recent call last)"


def training(raise_at: int = -1, last: int = 100_000) -> str:
    return TRAINING.format(raise_at=raise_at, last=last)


def committed(run: Run) -> list[str]:
    return re.findall(r"checkpoint (\S+) committed", run.output)


def _until_said(run: Run, words: str) -> None:
    until(lambda: re.search(words, run.output), lambda: f"{words}; {run.output}")


def manifests(run: Run) -> dict[str, Path]:
    return {path.stem: path for path in (run.folder / "storage").glob("jobs/*/manifests/*.json")}


def test_the_same_exception_at_the_same_step_ends_the_job() -> None:
    with running("--nproc-per-node", "2", "--max-restarts", "1", script=training(raise_at=7)) as run:
        assert run.end() == 1
        assert "same failure at the same step 2 times, --max-restarts is 1" in run.output
        assert run.output.count(TRACEBACK) == 2  # where it was tried again, and at the end
        assert run.output.rstrip().endswith("RuntimeError: always at this step")
        assert run.traces() == []


HOSTILE = (
    b"\xff" * 64,
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    struct.pack(">I", FRAME_BYTES_MAX + 1) + b"x" * 100,
    struct.pack(">I", 2) + b"[]",
    encode({"op": "hello", "version": 99, "member": "stranger", "pid": 1}),
    encode({"op": "raised", "version": 1, "member": "job.1000000", "pid": os.getpid(), "exception": "E"}),
    encode({"op": "attach", "version": 99}),
)


def harass(run: Run) -> None:
    """Send what cannot be to every socket of a run."""
    places = [path for path in run.layout.run_dir.glob("*/*.sock") if path.is_socket()]
    assert {path.name for path in places} == {"gate.sock", "launcher.sock"}
    host, _, port = run.layout.read_card()["coordinator"].rpartition(":")
    for data in HOSTILE:
        for path in places:
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(path))
                client.sendall(data)
        with socket.create_connection((host, int(port))) as client:
            client.sendall(data)


def spoil(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def spoil_the_newest_two(run: Run) -> tuple[str, str, str]:
    """The newest by its manifest, the second by a chunk that the third does not need."""
    newest, second, third = sorted(manifests(run), key=lambda name: int(name.split("-")[0]))[:-4:-1]
    spoil(manifests(run)[newest])
    of_others = manifests(run)[third].read_text()
    own = manifests(run)[second].read_text()
    files = (run.folder / "storage").glob("**/chunks/*/*")
    spoil(next(path for path in sorted(files) if path.name in own and path.name not in of_others))
    return newest, second, third


def test_hostile_peers_and_spoilt_checkpoints() -> None:
    flags = ("--nproc-per-node", "2", *EVERY_FIVE)
    with running(*flags, script=training(), storage=True) as run:
        until(lambda: committed(run), lambda: f"a checkpoint; {run.output}")
        everyone, before = run.everything_below(), len(committed(run))
        harass(run)
        refused = strange_agent(run)
        assert refused.returncode == REFUSED and "--cluster" in refused.stderr + refused.stdout
        until(lambda: len(committed(run)) > before + 3, lambda: f"training goes on; {run.output}")
        assert set(everyone) <= set(run.everything_below()) and "incident" not in run.output
        assert run.process is not None
        run.process.kill()
        run.end()
        until(lambda: not [pid for pid in everyone if is_running(pid)], "its children end with it")
        newest, second, third = spoil_the_newest_two(run)
        before_the_kill = committed(run)
        run.start()
        until(lambda: len(committed(run)) > len(before_the_kill), lambda: f"it goes on; {run.output}")
        for name, part in ((newest, "manifest"), (second, "chunk")):
            word = "bad" if name in before_the_kill else "(bad|failed)"  # failed: it was on its way
            # One that was on its way is published again in its own time.
            _until_said(run, rf"checkpoint {name} {word}: checkpoint {name}: {part}")
        assert f"checkpoint {third} loaded: training goes on from it" in run.output
        interrupt(run)


def strange_agent(run: Run) -> subprocess.CompletedProcess[str]:
    places = ("--run-dir", str(run.folder / "other"), "--shm-dir", str(run.folder), "--slots", "1")
    return holdfast(
        "agent", "--coordinator", run.layout.read_card()["coordinator"], "--cluster", "x", *places
    )


def interrupt(run: Run) -> None:
    """Ctrl-C: the exit code, nothing left but the checkpoints."""
    everyone, kept = run.everything_below(), set(manifests(run))
    assert run.process is not None
    os.kill(run.process.pid, signal.SIGINT)
    assert run.end() == 130, run.output
    assert [pid for pid in everyone if is_running(pid)] == []
    assert run.traces() == []
    assert kept and kept <= set(manifests(run))


def test_interrupted_while_it_recovers_checkpoints_stay() -> None:
    flags = ("--nproc-per-node", "2", *EVERY_FIVE)
    with running(*flags, script=training(), storage=True) as run:
        until(lambda: committed(run), lambda: f"a checkpoint; {run.output}")
        pids = {r["status"]["rank"]: r["status"]["pid"] for r in run.journal("MemberReport")}
        os.kill(pids[1], signal.SIGKILL)
        until(lambda: re.search(r"incident \d+: rank 1 on", run.output), lambda: f"it; {run.output}")
        interrupt(run)


@contextmanager
def small_memory(size: str) -> Iterator[Path]:
    """A tmpfs with no more room than this; skips where mounting is not allowed."""
    place = Path(tempfile.mkdtemp(dir="/tmp", prefix="hf-"))
    try:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)],
            capture_output=True,
            text=True,
            check=False,
        )
        if mounted.returncode:
            pytest.skip(f"mounting a tmpfs is not allowed here: {mounted.stderr.strip()}")
        try:
            yield place
        finally:
            subprocess.run(["umount", "--lazy", str(place)], check=True)
    finally:
        place.rmdir()


def test_too_little_shared_memory_costs_the_checkpoints_only() -> None:
    with (
        small_memory("80k") as place,
        running("--shm-dir", str(place), *EVERY_FIVE, script=training(last=30), storage=True) as run,
    ):
        until(
            lambda: " skipped: rank 0 on n0: no arena" in run.output,
            lambda: f"a checkpoint skipped; {run.output}",
        )
        (run.folder / "done").touch()
        assert run.end() == 0, run.output
        assert re.search(r"needed \d+ bytes, free \d+ bytes in .*--shm-dir", run.output), run.output
        assert "its final state could not be saved: rank 0 on n0: no arena" in run.output
        assert not committed(run) and list(place.iterdir()) == []
