"""Measure reactions: to a leader that hangs, a node that falls silent, a process that dies.

`python -m benchmarks.failover` runs real etcd, coordinators, agents and ranks on this machine. The leader is
stopped (SIGSTOP), not killed: another coordinator on the same machine notices at once when a process is dead,
but a hung one only when its lease runs out. Ranks train meanwhile; steps that they take twice are counted as
lost. Deaths, hangs and resizes are in verdicts.py."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any

from benchmarks import log, verdicts
from benchmarks.coordinators import NODE_TIMEOUT_S, TTL_S, running, until
from benchmarks.load import LoadMeter
from benchmarks.peers import WORKERS

if TYPE_CHECKING:
    from benchmarks.coordinators import Cluster

RANKS = 2
SIZES = ("100", "1000", "10000")
SIZE_TIMEOUT_S = 900.0


def failover(cluster: Cluster) -> tuple[float, int]:
    """Stop the leader, and measure the time (s) until another coordinator has taken and stored a decision.

    Also returns how many steps the training ranks took twice, or not at all."""
    until(lambda: _submitted(cluster), 60)
    until(lambda: _trained(cluster, 20), 240)
    leader, asker = cluster.leaders[0], Asker(cluster, "after", f"127.0.0.1:{cluster.ports[1]}")
    asker.answer()
    begun = time.monotonic()
    leader.send_signal(signal.SIGSTOP)
    spent_s = float(asker.answer()) - begun
    leader.send_signal(signal.SIGCONT)
    until(lambda: _trained(cluster, 40, since=time.monotonic()), 240)
    return spent_s, _lost(cluster)


class Asker:
    """A process that submits a job to one coordinator until it is taken. It prints `ready`, then the time."""

    def __init__(self, cluster: Cluster, job: str, address: str) -> None:
        self._job, self._output = job, cluster.base / "asker.log"
        argv = (str(WORKERS / "asking.py"), address, job, str(cluster.script))
        self._process = cluster.start("asker", sys.executable, *argv)
        self._heard = 0

    def answer(self) -> str:
        """Its next line. Raises SystemExit, with what it has printed, when none comes."""
        self._heard += 1
        try:
            until(lambda: len(self._lines()) >= self._heard or self._process.poll(), 6 * TTL_S)
        except SystemExit as error:
            raise SystemExit(f"job {self._job} was not accepted: {error}") from None
        if len(self._lines()) < self._heard:
            raise SystemExit(f"job {self._job} could not be submitted: {self._output.read_text()}")
        return self._lines()[self._heard - 1]

    def _lines(self) -> list[str]:
        return log.lines(self._output)


def _trained(cluster: Cluster, steps: int, since: float = 0.0) -> bool:
    """Whether every rank has taken this many steps, the last one just now."""
    last = log.newest(log.read(cluster.logs))
    fresh = since - 2.0
    return len(last) == RANKS and all(row["step"] >= steps and row["t"] > fresh for row in last.values())


def _lost(cluster: Cluster) -> int:
    """The number of steps that a rank took more than once, or skipped between its first and last."""
    steps: dict[int, list[int]] = {}
    for row in log.read(cluster.logs):
        if row["event"] == "step":
            steps.setdefault(row["rank"], []).append(row["step"])
    again = sum(len(taken) - len(set(taken)) for taken in steps.values())
    return again + sum(max(taken) - min(taken) + 1 - len(set(taken)) for taken in steps.values())


def agent(cluster: Cluster) -> subprocess.Popen[bytes]:
    """Start the agent of the one node, and wait until it is up."""
    process = cluster.holdfast(
        "agent", f"--coordinator={cluster.addresses}", "--node=n0", f"--slots={RANKS}", "--address=127.0.0.1",
        "--drain-grace-s=0", f"--run-dir={tempfile.mkdtemp(dir='/tmp', prefix='hf-')}",
    )  # fmt: skip
    until(lambda: [row for row in cluster.get("nodes") if row["state"] == "up"], 60)
    return process


def silent_node(cluster: Cluster, agent: subprocess.Popen[bytes]) -> float:
    """The time from the moment an agent hangs until its node is lost, in s."""
    until(lambda: [row for row in cluster.get("nodes") if row["state"] == "up"], 60)
    begun = time.monotonic()
    agent.send_signal(signal.SIGSTOP)
    (lost, *_) = until(lambda: cluster.noted("node_lost", "n0", begun), 10 * NODE_TIMEOUT_S)
    agent.send_signal(signal.SIGCONT)
    return float(lost - begun)


def _submitted(cluster: Cluster) -> bool:
    """Submit the job that trains. Whether it was taken."""
    argv = [sys.executable, "-m", "controlplane", "submit", "--coordinator", cluster.addresses]
    argv += ["--rdzv-id", "trains", "--nproc-per-node", str(RANKS), str(WORKERS / "elastic.py")]
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


def at_size(sizes: tuple[str, ...]) -> dict[str, dict[str, float] | None]:
    """What the core costs at each number of nodes; None where it did not end in time."""
    found: dict[str, dict[str, float] | None] = {}
    for size in sizes:
        argv = [sys.executable, "-m", "benchmarks.workers.decision", size]
        try:
            done = subprocess.run(argv, capture_output=True, check=True, timeout=SIZE_TIMEOUT_S)
            found[size] = json.loads(done.stdout)[size]
        except subprocess.TimeoutExpired:
            found[size] = None
    return found


def measure(sizes: tuple[str, ...], rounds: int) -> dict[str, Any]:
    """Measure everything, by the names in README.md. null: a size that was too slow."""
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
        "rejoin_us": {size: round(core["rejoin_us"], 1) if core else None for size, core in cores.items()},
        "load": meter.result(),
    }


def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.failover", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--sizes", default=",".join(SIZES), help="cluster sizes in nodes")
    parser.add_argument(
        "--rounds", type=int, default=20, metavar="N", help="how many times a process is killed"
    )
    values = parser.parse_args(argv)
    if values.rounds < 1:
        parser.error(f"--rounds {values.rounds} measures nothing: give 1 or more")
    result = measure(tuple(size for size in values.sizes.split(",") if size), values.rounds)
    print(json.dumps(result) if values.json else "\n".join(f"{k:24} {v}" for k, v in result.items()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
