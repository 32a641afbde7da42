"""Beats per second that one coordinator takes, in plaintext and over mTLS, in turns.

`python -m benchmarks.beats --json`: {"plaintext_beats_per_s", "mtls_beats_per_s", "ratio", "cpu_ratio", ...}.
Server and agents are processes of their own. On a busy machine the rates say little;
`cpu_ratio` compares beats per second of the coordinator's own CPU."""

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
from controlplane.access.own import Access, plain
from controlplane.core.events import NodeBeat, NodeJoined
from controlplane.core.model import MemberPhase, MemberStatus
from controlplane.wire import codec
from controlplane.wire import control_pb2 as pb
from tests.security.authority import CLUSTER, Authority, Files
from tests.security.serving import OPTIONS, serving

STREAMS, RANKS = 16, 8
LINK = "/holdfast.control.v1.Control/Link"


async def serve(files: Files | None) -> None:
    """Be a leading coordinator until standard input ends; prints the address, then beats taken and CPU s."""
    async with serving(files.tls() if files else None, reigns=True) as served:
        print(served.address, flush=True)
        began_s = time.process_time()
        await asyncio.to_thread(sys.stdin.readline)
        beats = int(served.front.metrics.heartbeats_total._value.get())
        print(beats, time.process_time() - began_s, flush=True)


async def talk(address: str, agents: list[Access], seconds: float) -> None:
    """Say beats as fast as they are taken, each agent on a connection of its own."""
    ends_at = time.monotonic() + seconds
    await asyncio.gather(
        *(_agent(address, f"n{number}", ends_at, each) for number, each in enumerate(agents))
    )


async def _agent(address: str, node: str, ends_at: float, access: Access) -> None:
    async with access.channel(address, OPTIONS) as channel:
        await _stream(channel, node, ends_at)


async def _stream(channel: Any, node: str, ends_at: float) -> None:
    call = channel.stream_stream(LINK, None, pb.CoordinatorMessage.FromString)()
    joined = NodeJoined(node, 1, "l", "127.0.0.1", RANKS, 29500, ())
    await call.write(codec.hello(joined, CLUSTER, 0).SerializeToString())
    await call.read()
    members = tuple(
        MemberStatus(f"j.{rank}", "j", MemberPhase.RUNNING, generation=1, rank=rank, step=7)
        for rank in range(RANKS)
    )
    seq = 0
    while time.monotonic() < ends_at:
        seq += 1
        beat = codec.to_coordinator(NodeBeat(node, 1, seq, 29500, members))
        await call.write(beat.SerializeToString())
    await call.done_writing()
    call.cancel()


def measure(server_files: Files | None, agents: list[Access], seconds: float) -> tuple[float, float]:
    """Beats that were taken per second, and per second of the coordinator's CPU."""
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
        beats, cpu_s = map(float, server.stdout.readline().split())
        return beats / took_s, beats / cpu_s
    finally:
        server.stdin.close()
        server.stdout.close()
        server.wait(30)


def compare(rounds: int, seconds: float) -> dict[str, Any]:
    """Plaintext and mTLS in turns; the ratio is the median of the rounds'."""
    load = LoadMeter()
    plaintext: list[tuple[float, float]] = []
    mtls: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="hf-") as folder:
        authority = Authority(Path(folder))
        server = authority.issue("server")
        agents = [authority.of("agent", f"n{number}").access() for number in range(STREAMS)]
        for _ in range(rounds):
            plaintext.append(measure(None, [plain()] * STREAMS, seconds))
            mtls.append(measure(server, agents, seconds))
            load.sample()
    return {
        "plaintext_beats_per_s": _median(plaintext, 0),
        "mtls_beats_per_s": _median(mtls, 0),
        "ratio": _ratio(plaintext, mtls, 0),
        "cpu_ratio": _ratio(plaintext, mtls, 1),
        "plaintext_beats_per_cpu_s": _median(plaintext, 1),
        "mtls_beats_per_cpu_s": _median(mtls, 1),
        "rounds": rounds,
        "streams": STREAMS,
        "ranks_per_node": RANKS,
        "load": load.result(),
    }


def _median(rounds: list[tuple[float, float]], which: int) -> int:
    return round(statistics.median(each[which] for each in rounds))


def _ratio(plaintext: list[tuple[float, float]], mtls: list[tuple[float, float]], which: int) -> float:
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
