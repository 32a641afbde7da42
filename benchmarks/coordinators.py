"""Run one etcd, two coordinators and what works under them, as processes, through the command line."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import log
from benchmarks.peers import free_port
from benchmarks.processes import environment
from controlplane.daemon.etcd.binary import clean_environment, find_binary
from controlplane.daemon.etcd.errors import PrivateEtcdError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TTL_S = 10.0
NODE_TIMEOUT_S = 12.0
SLEEPER = "import time\ntime.sleep(3600)\n"


class Cluster:
    """One etcd, two coordinators, and what is started beside them. All of it ends with the context.

    `seed` is called with etcd's address before the coordinators start; `flags` are more of theirs."""

    def __init__(
        self,
        base: Path,
        stack: contextlib.ExitStack,
        seed: Callable[[str], object] = lambda _: None,
        flags: tuple[str, ...] = (),
    ) -> None:
        self.base, self._stack, self.script = base, stack, base / "sleeper.py"
        self.logs = base / "logs"
        self.logs.mkdir()
        self.ports = [free_port(), free_port()]
        self.journals = [base / f"{port}.jsonl" for port in self.ports]
        client, peer = free_port(), free_port()
        urls = [f"http://127.0.0.1:{port}" for port in (client, peer)]
        self.start(
            "etcd", _etcd(), "--data-dir", str(base / "etcd"), "--name", "m0",
            *("--listen-client-urls", urls[0], "--advertise-client-urls", urls[0]),
            *("--listen-peer-urls", urls[1], "--initial-advertise-peer-urls", urls[1]),
            *("--initial-cluster", f"m0={urls[1]}"), env=clean_environment(),
        )  # fmt: skip
        self.etcd = f"127.0.0.1:{client}"
        seed(self.etcd)
        self.leaders = [
            self._coordinator(port, journal, flags)
            for port, journal in zip(self.ports, self.journals, strict=True)
        ]

    @property
    def addresses(self) -> str:
        """The addresses of both coordinators, as flags take them."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def start(self, name: str, *argv: str, env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start a process that ends with the benchmark. `env` replaces the usual environment."""
        env = env or environment({"LOGS": str(self.logs)})
        with (self.base / f"{name}.log").open("ab") as output:
            process = subprocess.Popen(argv, stdout=output, stderr=output, cwd=self.base, env=env)
        self._stack.callback(_end, process)
        return process

    def _coordinator(self, port: int, journal: Path, flags: tuple[str, ...]) -> subprocess.Popen[bytes]:
        process = self.holdfast(
            "coordinator", f"--listen=127.0.0.1:{port}", f"--etcd={self.etcd}", "--etcd-private",
            f"--lease-ttl-s={TTL_S}", f"--node-timeout-s={NODE_TIMEOUT_S}", "--retry-s=0.5",
            f"--journal={journal}", f"--address-file={self.address_file(port)}", *flags,
        )  # fmt: skip
        until(lambda: _listens(port), 60)
        return process

    def address_file(self, port: int) -> Path:
        """Where the coordinator with this port writes all its addresses, as JSON."""
        return self.base / f"{port}.addresses"

    def holdfast(self, *argv: str) -> subprocess.Popen[bytes]:
        """Start one of Holdfast's commands in the background."""
        return self.start(argv[0], sys.executable, "-m", "controlplane", *argv)

    def get(self, what: str) -> list[dict[str, Any]]:
        """A table of `holdfast get`; [] while no coordinator answers."""
        argv = [sys.executable, "-m", "controlplane", "get", what, "-o", "json"]
        done = subprocess.run([*argv, "--coordinator", self.addresses], capture_output=True, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else []

    def noted(self, kind: str, subject: str, after: float) -> list[float]:
        """When a leader noted this about a node, after `after`; both in s of CLOCK_MONOTONIC."""
        return [
            float(row["monotonic_s"])
            for row in self.journalled("Note")
            if row["monotonic_s"] > after and (row["body"]["kind"], row["body"]["subject"]) == (kind, subject)
        ]

    def journalled(self, kind: str) -> list[dict[str, Any]]:
        """All rows of this type in the newest journal of each coordinator."""
        rows = [json.loads(line) for path in self.journals if path.exists() for line in log.lines(path)]
        return [row for row in rows if row["type"] == kind]


def until(look: Callable[[], Any], timeout_s: float) -> Any:
    """Wait for the first true value of `look`. Raises SystemExit when there is none in time."""
    deadline = time.monotonic() + timeout_s
    while not (value := look()):
        if time.monotonic() > deadline:
            raise SystemExit(f"nothing happened within {timeout_s:g} s")
        time.sleep(0.02)
    return value


@contextlib.contextmanager
def running(seed: Callable[[str], object] = lambda _: None, flags: tuple[str, ...] = ()) -> Iterator[Cluster]:
    """A cluster in a folder of its own; both are gone afterwards, also if a signal asks this process to end.
    Arguments: as Cluster has them."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    base = Path(tempfile.mkdtemp(dir="/tmp", prefix="hf-"))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, base, ignore_errors=True)
        cluster = Cluster(base, stack, seed, flags)
        cluster.script.write_text(SLEEPER)
        yield cluster


def _etcd() -> str:
    """The etcd that `holdfast run` would start. Raises SystemExit with a solution when there is none."""
    try:
        return find_binary().path
    except PrivateEtcdError as error:
        raise SystemExit(str(error)) from error


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)
        process.terminate()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
