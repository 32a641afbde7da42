"""Measure how fast a copy comes back from a peer's memory, against a bare gRPC stream of as many bytes.

    python -m benchmarks.peer_stream --json

Both run over loopback between the same two processes, in turns: messages of 1 MiB that are read and thrown
away (`bare_s`), and a snapshot that is fetched into a member's arena whose pages are mapped, every byte of it
verified (`fetch_s`). What counts is the ratio of the medians (`restore_peer_vs_grpc`)."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import uvloop

from agent.host.arena_files import ArenaFiles
from agent.host.paths import Paths
from agent.peers.service import Peers
from benchmarks.load import LoadMeter
from controlplane.core.records import effects, events
from controlplane.core.records.model import MemberPhase, MemberStatus, Partner
from controlplane.settings import AgentSettings
from holdfast.ipc import layout
from holdfast.ipc.arena import Arena
from holdfast.ipc.skips import Skip

if TYPE_CHECKING:
    from collections.abc import Callable

_OPTIONS = (("grpc.max_receive_message_length", 4 << 20), ("grpc.max_send_message_length", 4 << 20))
_BLOCK_BYTES = 1 << 20
_TIMEOUT_S = 120.0
_METHOD = "/bare/Stream"
MEMBER = "job.1"


def peers(folder: Path, name: str, send_event: Callable[[events.Event], None]) -> Peers:
    """One node's peer service, with shared memory of its own."""
    paths = Paths(folder / name, folder / f"{name}.shm")
    paths.memory.mkdir(mode=0o700)
    status = MemberStatus(MEMBER, "job", MemberPhase.RUNNING, rank=0, shard="all")
    settings = AgentSettings(peer_listen="127.0.0.1:0")
    return Peers(
        settings,
        paths,
        "127.0.0.1",
        node=name,
        incarnation=1,
        send_event=send_event,
        status=lambda _: status,
        room=ArenaFiles(paths, lambda _: False).ensure_to_fill,
        loaded=lambda _: None,
    )


async def keep(folder: Path) -> None:
    """Be the other process: keep the copy, and serve bare bytes, until standard input ends."""
    kept = peers(folder, "partner", lambda _: None)
    await kept.start()
    server = grpc.aio.server(options=_OPTIONS)
    content = random.Random(0).randbytes(_BLOCK_BYTES)

    async def stream(request: bytes, context: Any) -> None:
        for _ in range(int(request)):
            await context.write(content)

    handlers = {"Stream": grpc.unary_stream_rpc_method_handler(stream)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bare", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(json.dumps({"peers": kept.address, "bare": f"127.0.0.1:{port}"}), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(None)
    await kept.stop()


async def bare(address: str, blocks: int) -> float:
    """The seconds for this many blocks, read and thrown away."""
    async with grpc.aio.insecure_channel(address, options=_OPTIONS) as channel:
        began = time.perf_counter()
        call = channel.unary_stream(_METHOD)(str(blocks).encode())
        count = 0
        while await call.read() is not grpc.aio.EOF:
            count += 1
        took = time.perf_counter() - began
    if count != blocks:
        raise RuntimeError(f"{count} of {blocks} blocks came")
    return took


class Owner:
    """This process: owns the snapshot, has it copied once, and fetches it back again and again."""

    def __init__(self, folder: Path, partner: str, nbytes: int) -> None:
        self._partner, self._paths = partner, Paths(folder / "owner", folder / "owner.shm")
        self._answers: asyncio.Queue[events.Event] = asyncio.Queue()
        self.peers = peers(folder, "owner", self._answers.put_nowait)
        self._room = self._snapshot(nbytes)

    def _snapshot(self, nbytes: int) -> int:
        tensors, data_bytes = layout.place([("state", "uint8", (nbytes,), nbytes)])
        header = layout.encode(tensors, {})
        room = layout.room(data_bytes, len(header))
        with Arena.create(self._paths.arena(MEMBER), room) as arena:
            writer = arena.begin(1, 1, released_step=1)
            assert not isinstance(writer, Skip)
            for at in range(0, nbytes, _BLOCK_BYTES):
                part = os.urandom(min(_BLOCK_BYTES, nbytes - at))
                writer.memory[at : at + len(part)] = part
            writer.layout(header, data_bytes)
            writer.ready()
        return room

    async def copy(self) -> float:
        """Have the partner keep a copy. Returns the seconds until it does, making room included."""
        began = time.perf_counter()
        partner = Partner(MEMBER, "partner", self._partner)
        self.peers.replicate(effects.Replicate("owner", "job", (partner,)))
        self.peers.release(effects.Release("owner", "job", 1))
        while not self.peers.counts["peer_copies_sent"]:
            if time.perf_counter() - began > _TIMEOUT_S:
                raise RuntimeError(f"no copy within {_TIMEOUT_S} s")
            await asyncio.sleep(0.005)
        return time.perf_counter() - began

    async def fetch(self, number: int) -> float:
        """Fetch the copy. Returns the seconds until it is verified and READY in the arena of a new member."""
        member = f"job.{number + 2}"
        Arena.create(self._paths.arena(member), self._room).close()
        began = time.perf_counter()
        (vouched,) = self.peers.vouched()
        order = effects.Fetch("owner", member, "job", MEMBER, 1, 1, self._partner, vouched.digest)
        self.peers.fetch(order)
        async with asyncio.timeout(_TIMEOUT_S):
            while isinstance(answer := await self._answers.get(), events.SnapshotVouched):
                pass  # sent before the copy left
        took = time.perf_counter() - began
        self._paths.arena(member).unlink()
        if not isinstance(answer, events.Fetched) or answer.reason:
            raise RuntimeError(f"not fetched: {answer}")
        return took


def run(folder: Path, nbytes: int, rounds: int) -> dict[str, Any]:
    """Start the other process, and measure against it."""
    argv = [sys.executable, "-m", "benchmarks.peer_stream", "--keep", str(folder)]
    partner = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert partner.stdin is not None and partner.stdout is not None
    try:
        addresses = json.loads(partner.stdout.readline())
        result: dict[str, Any] = uvloop.run(measure(folder, addresses, nbytes, rounds))
    finally:
        partner.stdin.close()
        partner.stdout.close()
        partner.wait()
    return result


async def measure(folder: Path, addresses: dict[str, str], nbytes: int, rounds: int) -> dict[str, Any]:
    """Run all rounds. Returns the medians, and every value."""
    owner = Owner(folder, addresses["peers"], nbytes)
    await owner.peers.start()
    load, times = LoadMeter(), {"bare_s": list[float](), "fetch_s": list[float]()}
    copied_s = await owner.copy()
    for number in range(rounds):
        times["bare_s"].append(await bare(addresses["bare"], -(-nbytes // _BLOCK_BYTES)))
        times["fetch_s"].append(await owner.fetch(number))
        load.sample()
    await owner.peers.stop()
    medians = {name: round(statistics.median(series), 4) for name, series in times.items()}
    ratio = round(medians["fetch_s"] / medians["bare_s"], 3)
    raw = {name: [round(value, 4) for value in series] for name, series in times.items()}
    about = {"bytes": nbytes, "rounds": rounds, "first_copy_s": round(copied_s, 4), "load": load.result()}
    return {"restore_peer_vs_grpc": ratio, **medians, **about, "raw": raw}


def main() -> None:
    """Measure and print: a few lines, or with --json one object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peer_stream", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a few lines")
    parser.add_argument("--bytes", type=int, default=400_000_000, help="size of the state")
    parser.add_argument("--rounds", type=int, default=5, help="rounds, each contender once in each")
    parser.add_argument("--shm-dir", default="/dev/shm", help="folder in memory")
    parser.add_argument("--keep", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.keep:
        uvloop.run(keep(Path(options.keep)))
        return
    folder = Path(tempfile.mkdtemp(dir=options.shm_dir, prefix="hf-"))
    try:
        result = run(folder, options.bytes, options.rounds)
    finally:
        shutil.rmtree(folder)
    if options.json:
        print(json.dumps(result))
        return
    for name in ("bare_s", "fetch_s", "restore_peer_vs_grpc"):
        print(f"{name:22} {result[name]:.4f}")


if __name__ == "__main__":
    main()
