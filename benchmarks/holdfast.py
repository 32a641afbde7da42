"""Let Holdfast recover from the same failures as its peers: one local cluster per round.

Each cluster is started and commanded as users do it, through `holdfast run`."""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import sys
import time
from typing import TYPE_CHECKING

from benchmarks import log
from benchmarks.peers import START_S, WORKERS, restarted, strike
from benchmarks.processes import RANKS, Field, steady

if TYPE_CHECKING:
    from pathlib import Path

NODES, SPARES = 2, 1
LIMIT_S = 60.0
BETWEEN_S = (0.03, 0.11)  # between two deaths: the group is being formed, and not complete yet
OVERHEAD_STEPS, OVERHEAD_STEP_S = 800, 0.020
STALL_STEPS = 24


def start(field: Field, *flags: str, script: str, words: tuple[str, ...] = ()) -> None:
    """Start `holdfast run` with one of our workers. Its state folder is beside the field's logs."""
    env = {"LOGS": str(field.logs), "CHECKPOINT": str(field.logs / "checkpoint.pt")}
    argv = ["-m", "controlplane", "run", "--state-dir", str(state(field)), *flags]
    field.start(sys.executable, *argv, str(WORKERS / script), *words, env=env)


def four_ranks() -> tuple[str, ...]:
    """The flags of the cluster under test: two nodes of two ranks, a warm spare on each."""
    return ("--nnodes", str(NODES), "--nproc-per-node", str(RANKS // NODES), "--spares", str(SPARES))


def state(field: Field) -> Path:
    """The state folder of this field's cluster, with its journal."""
    return field.logs.with_name("state")


def recovery(victim: int) -> dict[str, float | None]:
    """SIGKILL, then SIGSTOP of one of four ranks: `survivors_s`, `full_world_s`, `silent_peer_s`."""
    with Field("elastic", grace_s=20) as field:
        start(field, *four_ranks(), script="elastic.py")
        field.expect("steady state with warm spares", lambda: _prepared(field), START_S)
        before, killed = strike(field, victim)
        full_s = _full_world(field, before, {victim}, killed)
        found = {"survivors_s": _survivors(field, before, victim, killed), "full_world_s": full_s}
        return found | {"silent_peer_s": _silent(field, victim) if full_s is not None else None}


def _prepared(field: Field) -> bool:
    """Whether all ranks train, and all spares are warm and waiting."""
    rows = field.rows()
    ready = {row["pid"] for row in rows if row["event"] == "ready"}
    entered = {row["pid"] for row in rows if row["event"] == "entered"}
    spares = [pid for pid in ready - entered if field.owns(pid)]
    last = log.newest(rows)
    counts = len(spares) == NODES * SPARES and all(row["world"] == RANKS for row in last.values())
    return counts and steady(field, 20)


def _silent(field: Field, victim: int) -> float | None:
    """The time from the verdict on a stopped rank to the last survivor's next step, in s."""
    field.expect("another warm spare", lambda: _prepared(field), START_S)
    before, stopped = strike(field, victim, signal.SIGSTOP)
    if _full_world(field, before, {victim}, stopped) is None:
        return None
    judged = next((line for line in journal(field, "Judged") if line["monotonic_s"] > stopped), None)
    last = _survivors(field, before, victim, stopped)
    return None if judged is None or last is None else stopped + last - float(judged["monotonic_s"])


def journal(field: Field, kind: str) -> list[log.Row]:
    """The lines of this type in the coordinator's journal."""
    rows = [json.loads(line) for line in log.lines(state(field) / "journal.jsonl")]
    return [row for row in rows if row["type"] == kind]


def _survivors(field: Field, before: dict[int, log.Row], victim: int, struck: float) -> float | None:
    entries = {row["pid"]: row["entry"] for rank, row in before.items() if rank != victim}
    again = log.first(field.rows(), "step", lambda row: row["entry"] > entries.get(row["pid"], row["entry"]))
    if {row["pid"] for row in again.values()} != set(entries):
        return None
    return float(max(row["t"] for row in again.values()) - struck)


def _full_world(field: Field, before: dict[int, log.Row], victims: set[int], struck: float) -> float | None:
    """The time until all four ranks have taken a step in a world of four; None: not within a minute."""
    entries = {row["pid"]: row["entry"] for row in before.values()}
    dead = {before[victim]["pid"] for victim in victims}

    def again() -> dict[int, log.Row]:
        return log.first(
            field.rows(),
            "step",
            lambda row: (
                row["pid"] not in dead
                and row["t"] > struck
                and row["world"] == RANKS
                and row["entry"] > entries.get(row["pid"], 0)
            ),
        )

    if not log.poll(lambda: len(again()) == RANKS, LIMIT_S):
        return None
    return float(max(row["t"] for row in again().values()) - struck)


def double_death(victim: int) -> float | None:
    """A second death, while the group forms without the first: the recovery time against that of one death.

    From the second death to the full world's next step, divided by the time for a single death in the same
    cluster."""
    with Field("double", grace_s=20) as field:
        start(field, *four_ranks(), script="elastic.py")
        field.expect("steady state with warm spares", lambda: _prepared(field), START_S)
        before, killed = strike(field, victim)
        single_s = _full_world(field, before, {victim}, killed)
        if single_s is None:
            return None
        field.expect("another warm spare", lambda: _prepared(field), START_S)
        other = (victim + RANKS // NODES) % RANKS  # on the other node, which has a warm spare of its own
        before, _ = strike(field, victim)
        time.sleep(random.uniform(*BETWEEN_S))
        killed = time.monotonic()
        os.kill(before[other]["pid"], signal.SIGKILL)
        double_s = _full_world(field, before, {victim, other}, killed)
        return None if double_s is None else double_s / single_s


def unmodified(victim: int) -> float | None:
    """SIGKILL, until all four ranks of a plain script (the one of torchrun's round) step again, in s."""
    with Field("plain", grace_s=20) as field:
        start(field, *four_ranks(), script="plain.py")
        field.expect("steady state", lambda: steady(field, 20), START_S)
        return restarted(field, victim, LIMIT_S)


def overhead() -> float:
    """What the SDK adds to a step, as a share of a step of 20 ms: the median over pairs of steps."""
    times = _cost("overhead", OVERHEAD_STEPS)
    pairs = list(zip(times["plain_s"], times["sdk_s"], strict=False))[OVERHEAD_STEPS // 10 :]
    return statistics.median(sdk - plain for plain, sdk in pairs) / OVERHEAD_STEP_S


def stall() -> float:
    """The pause that a snapshot makes, against a memcpy of the same bytes: medians without the first two."""
    times = _cost("stall", STALL_STEPS, "--snapshot-every", "2", "--checkpoint-every", "1000")
    memcpy_s = statistics.median(times["memcpy_s"][2:])
    pauses = [pause for pause in times["pause_s"] if pause > memcpy_s / 4][2:]
    return statistics.median(pauses) / memcpy_s


def _cost(kind: str, steps: int, *flags: str) -> dict[str, list[float]]:
    """Run workers/cost.py to its end on one rank. Snapshots are made only where `flags` ask for them."""
    cadence = flags or ("--snapshot-every", "1000000", "--checkpoint-every", "1000000")
    with Field(kind, grace_s=20) as field:
        start(field, *cadence, script="cost.py", words=(kind, str(steps)))

        def done() -> list[log.Row]:
            return [row for row in field.rows() if row["event"] == "done"]

        field.expect("end of the measurement", lambda: bool(done()), START_S)
        return {name: values for name, values in done()[0].items() if name.endswith("_s")}
