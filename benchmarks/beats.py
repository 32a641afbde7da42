"""Measure how many beats per second one coordinator takes, in plaintext and over mTLS, in turns.

`python -m benchmarks.beats --json`: {"plaintext_beats_per_s", "mtls_beats_per_s", "ratio", "cpu_ratio",
"journal_and_metrics_share", ...}. Server and agents are processes of their own. On a busy machine the rates
mean little; `cpu_ratio` compares beats per second of the coordinator's own CPU, which other processes disturb
less."""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.load import LoadMeter
from benchmarks.page import elected, running
from benchmarks.scale.shape import RANKS
from controlplane.access.client_credentials import ClientCredentials, plain
from controlplane.core.records.events import NodeBeat, NodeJoined
from controlplane.daemon.loop.stepping import Loop
from controlplane.daemon.telemetry.counters import FastHistogram
from controlplane.daemon.telemetry.observer import Observer
from controlplane.wire import codec
from controlplane.wire import control_pb2 as pb
from tests.security.authority import CLUSTER, Authority, Files
from tests.security.serving import OPTIONS, leading, serving

STREAMS = 16
ADOPTING_BEATS = 1000
"""Beats that are not counted: with the first ones the new leader takes the job over, which is no steady
state."""
LINK = "/holdfast.control.v1.Control/Link"


async def serve(files: Files | None) -> None:
    """Be a leading coordinator until standard input ends. Prints its address, at the end the results."""
    spent = _Spent()
    for kind, name in (
        (Loop, "_record"),
        (Observer, "event"),
        (Observer, "look"),
        (FastHistogram, "observe"),
    ):
        spent.watch(kind, name)
    tls = files.tls() if files else None
    async with serving(tls) as served, leading(served.front, elected(STREAMS)):
        print(served.address, flush=True)
        ended = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
        taken = served.front.metrics.heartbeats_total
        while taken.total < ADOPTING_BEATS and not ended.done():
            await asyncio.wait([ended], timeout=0.01)
        before, began_s, spent.seconds = taken.total, time.process_time(), 0.0
        await ended
        cpu_s = time.process_time() - began_s
        print(taken.total, (taken.total - before) / cpu_s, spent.seconds / cpu_s, flush=True)


class _Spent:
    """Measures the CPU seconds spent within some methods, none of which waits."""

    def __init__(self) -> None:
        self.seconds = 0.0
        begun = time.thread_time()
        for _ in range(10_000):
            time.thread_time()
        self._clock_s = (time.thread_time() - begun) / 10_000

    def watch(self, kind: type, name: str) -> None:
        """Measure this method from now on."""
        method = getattr(kind, name)

        def timed(*values: Any) -> Any:
            begun = time.thread_time()
            answer = method(*values)
            self.seconds += time.thread_time() - begun - self._clock_s
            return answer

        setattr(kind, name, timed)


async def talk(address: str, agents: list[ClientCredentials], seconds: float) -> None:
    """Send beats as fast as they are taken, each agent on a connection of its own."""
    ends_at = time.monotonic() + seconds
    await asyncio.gather(*(_agent(address, number, ends_at, each) for number, each in enumerate(agents)))


async def _agent(address: str, number: int, ends_at: float, access: ClientCredentials) -> None:
    async with access.channel(address, OPTIONS) as channel:
        await _stream(channel, number, ends_at)


async def _stream(channel: Any, number: int, ends_at: float) -> None:
    """A node that trains on under a new leader, and is one step further at each beat."""
    call = channel.stream_stream(LINK, None, pb.CoordinatorMessage.FromString)()
    node, ranks = f"n{number:05}", range(number * RANKS, (number + 1) * RANKS)
    joined = NodeJoined(node, 1, "l", "127.0.0.1", RANKS, 29500, tuple(map(running, ranks)))
    await call.write(codec.hello(joined, CLUSTER, 0).SerializeToString())
    await call.read()
    seq = 0
    while time.monotonic() < ends_at:
        seq += 1
        members = tuple(running(rank, 7 + seq) for rank in ranks)
        beat = codec.to_coordinator(NodeBeat(node, 1, seq, 29500, members))
        await call.write(beat.SerializeToString())
    await call.done_writing()
    call.cancel()


Round = tuple[float, float, float]
"""The results of one round.

Beats taken per second; beats taken per second of the coordinator's CPU; the share of that CPU that journal
and metrics took."""


def measure(server_files: Files | None, agents: list[ClientCredentials], seconds: float) -> Round:
    """Run one round."""
    document = json.dumps(vars(server_files) if server_files else None)
    argv = [sys.executable, "-m", "benchmarks.beats", "--serve", document]
    server = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdin is not None and server.stdout is not None
    try:
        address = server.stdout.readline().strip()
        begun = time.monotonic()
        uvloop.run(talk(address, agents, seconds))
        took_s = time.monotonic() - begun
        server.stdin.write("\n")
        server.stdin.flush()
        beats, beats_per_cpu_s, share = map(float, server.stdout.readline().split())
        return beats / took_s, beats_per_cpu_s, share
    finally:
        server.stdin.close()
        server.stdout.close()
        server.wait(30)


def compare(rounds: int, seconds: float) -> dict[str, Any]:
    """Run rounds of plaintext and mTLS in turns. Each ratio is the median of the rounds' ratios."""
    load = LoadMeter()
    plaintext: list[Round] = []
    mtls: list[Round] = []
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="hf-") as folder:
        authority = Authority(Path(folder))
        server = authority.issue("server")
        agents = [authority.of("agent", f"n{number:05}").access() for number in range(STREAMS)]
        for _ in range(rounds):
            plaintext.append(measure(None, [plain()] * STREAMS, seconds))
            mtls.append(measure(server, agents, seconds))
            load.sample()
    return {
        "plaintext_beats_per_s": round(_median(plaintext, 0)),
        "mtls_beats_per_s": round(_median(mtls, 0)),
        "ratio": _ratio(plaintext, mtls, 0),
        "cpu_ratio": _ratio(plaintext, mtls, 1),
        "plaintext_beats_per_cpu_s": round(_median(plaintext, 1)),
        "mtls_beats_per_cpu_s": round(_median(mtls, 1)),
        "journal_and_metrics_share": round(_median(plaintext, 2), 4),
        "rounds": rounds,
        "streams": STREAMS,
        "ranks_per_node": RANKS,
        "load": load.result(),
    }


def _median(rounds: list[Round], which: int) -> float:
    return statistics.median(each[which] for each in rounds)


def _ratio(plaintext: list[Round], mtls: list[Round], which: int) -> float:
    pairs = zip(mtls, plaintext, strict=True)
    return round(statistics.median(one[which] / other[which] for one, other in pairs), 3)


def main() -> None:
    """Measure, or be the server of a measurement."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.beats", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--serve", default="", help=argparse.SUPPRESS)
    values = parser.parse_args()
    if values.serve:
        document = json.loads(values.serve)
        uvloop.run(serve(Files(**document) if document else None))
        return
    found = compare(values.rounds, values.seconds)
    if values.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
