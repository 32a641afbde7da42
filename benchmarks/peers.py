"""Run what Holdfast is measured against: bare torch, torchrun and torchft. Each function is one round."""

from __future__ import annotations

import os
import random
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING

from benchmarks import log
from benchmarks.processes import RANKS, ROOT, Field, steady

if TYPE_CHECKING:
    from pathlib import Path

WORKERS = ROOT / "benchmarks" / "workers"
START_S = 120.0
TORCHRUN_LIMIT_S = 60.0
TORCHFT_LIMIT_S = 60.0


def limit(victim: int) -> float:
    """SIGKILL, until the last of three survivors has its first all-reduce in the new group, in s."""
    return _regroup(victim, [rank for rank in range(RANKS) if rank != victim])


def limit_full(victim: int) -> float:
    """The same until a waiting process has taken the victim's place and has its state, in s."""
    return _regroup(victim, [rank for rank in range(RANKS + 1) if rank != victim], "full")


def _regroup(victim: int, members: list[int], *words: str) -> float:
    with Field("limit") as field:
        port = free_port()
        for rank in sorted({*members, victim}):
            numbers = map(str, (rank, port, victim))
            field.start(sys.executable, str(WORKERS / "limit.py"), str(field.logs), *numbers, *words)
        field.expect("steady state", lambda: steady(field, 10) and _waits(field, members), START_S)
        _, killed = strike(field, victim)

        def resumed() -> list[log.Row]:
            return [row for row in field.rows() if row["event"] == "resumed"]

        field.expect("new group", lambda: len(resumed()) == len(members), 40)
        return regrouped_s(resumed(), members, killed)


def _waits(field: Field, members: list[int]) -> bool:
    """Whether the process that takes the victim's place, if there is one, waits for it."""
    return max(members) < RANKS or RANKS in log.newest(field.rows(), "waiting")


def regrouped_s(resumed: list[log.Row], members: list[int], killed: float) -> float:
    """The time from the kill to the last member's first sum. Raises RuntimeError on sums that are wrong."""
    said = sorted((row["rank"], row["total"]) for row in resumed)
    took = max(row["t"] for row in resumed) - killed
    if said != [(rank, float(len(members))) for rank in members] or min(row["t"] for row in resumed) < killed:
        raise RuntimeError(f"of {members} after a kill at {killed}, these report a sum: {resumed}")
    return float(took)


def torchrun(victim: int) -> float | None:
    """SIGKILL, until all four ranks step again under torchrun, in s; None: not within a minute.

    It needs a workaround (TORCH_DISABLE_SHARE_RDZV_TCP_STORE): without it torchrun never recovers."""
    with Field("torchrun") as field:
        env = {
            "LOGS": str(field.logs),
            "CHECKPOINT": str(field.logs / "checkpoint.pt"),
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        }
        flags = ["--standalone", "--nproc-per-node", str(RANKS), "--max-restarts", "100"]
        launcher = [sys.executable, "-m", "torch.distributed.run", *flags]
        field.start(*launcher, str(WORKERS / "plain.py"), env=env)
        field.expect("steady state", lambda: steady(field, 20), START_S)
        return restarted(field, victim, TORCHRUN_LIMIT_S)


def restarted(field: Field, victim: int, limit_s: float) -> float | None:
    """Kill a rank of a plain script. The time until all four ranks, in new processes, took a step; None: not
    in time."""
    before, killed = strike(field, victim)
    old = {row["pid"] for row in before.values()}

    def fresh() -> dict[int, log.Row]:
        return log.first(field.rows(), "step", lambda row: row["pid"] not in old and row["t"] > killed)

    if not log.poll(lambda: len(fresh()) == RANKS, limit_s):
        return None
    return float(max(row["t"] for row in fresh().values()) - killed)


def torchft(python: Path, victim: int) -> float | None:
    """SIGKILL, until all survivors commit again under torchft, in s; None: not within a minute.

    torchft has its best settings, see README.md. The victim is started again at once."""
    with Field("torchft") as field:
        port = free_port()
        field.start(
            str(python.with_name("torchft_lighthouse")),
            *("--bind", f"127.0.0.1:{port}", "--min_replicas", "1", "--quorum_tick_ms", "100"),
            *("--join_timeout_ms", "1000", "--heartbeat_timeout_ms", "1000"),
        )

        def start(rank: int) -> None:
            env = {
                "RANK": str(rank),
                "LOGS": str(field.logs),
                "TORCHFT_LIGHTHOUSE": f"http://127.0.0.1:{port}",
            }
            field.start(str(python), str(WORKERS / "replica.py"), env=env)

        for rank in range(RANKS):
            start(rank)
        field.expect("full quorum", lambda: _together(field), START_S)
        before, killed = strike(field, victim)
        start(victim)
        quorum = max(row["quorum"] for row in before.values())
        survivors = {row["pid"] for rank, row in before.items() if rank != victim}

        def again() -> dict[int, log.Row]:
            return log.first(
                field.rows(), "step", lambda row: row["pid"] in survivors and row["quorum"] > quorum
            )

        if not log.poll(lambda: len(again()) == RANKS - 1, TORCHFT_LIMIT_S):
            return None
        return float(max(row["t"] for row in again().values()) - killed)


def _together(field: Field) -> bool:
    last = log.newest(field.rows())
    return steady(field, 20) and all(row["world"] == RANKS for row in last.values())


def strike(
    field: Field, victim: int, how: signal.Signals = signal.SIGKILL
) -> tuple[dict[int, log.Row], float]:
    """Signal the rank at a random moment of a step. Returns each rank's last step before it, and the time
    (s)."""
    time.sleep(0.5 + random.random())
    last = log.newest(field.rows())
    killed = time.monotonic()
    os.kill(last[victim]["pid"], how)
    return last, killed


def free_port() -> int:
    """A TCP port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
