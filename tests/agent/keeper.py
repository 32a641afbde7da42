"""A rank that only keeps snapshots: it speaks a rank's protocol and fills its arena with known bytes.

    python keeper.py <shard> <MiB> <step>... [waits]

`waits`: after its snapshots it waits at the barrier.

The numbers come from a generator that is seeded with the shard id and the step, so a test can make them
again."""

from __future__ import annotations

import os
import socket
import sys
import time
import zlib

import numpy as np

from holdfast.ipc import layout
from holdfast.ipc.arena import Arena
from holdfast.ipc.frames import Decoder, encode
from holdfast.ipc.skips import Skip

SMALL = 1000
"""Bytes of the second tensor, which is packed."""


def content(shard: str, mib: int, step: int) -> dict[str, bytes]:
    """The tensors that a keeper holds after this many steps. Only the last MiB depends on the step."""
    same = np.random.default_rng(zlib.crc32(shard.encode())).bytes((mib << 20) - (1 << 20))
    new = np.random.default_rng(zlib.crc32(f"{shard} {step}".encode())).bytes(1 << 20)
    return {"big": same + new, "small": new[:SMALL]}


def room(mib: int) -> int:
    """Bytes of a slot."""
    return (mib << 20) + (1 << 20)


def fill(arena: Arena, shard: str, mib: int, step: int, generation: int = 1) -> int:
    """Write one snapshot, and return the number of its slot."""
    tensors = content(shard, mib, step)
    placed, data_bytes = layout.place(
        (name, "uint8", (len(data),), len(data)) for name, data in tensors.items()
    )
    writer = arena.begin(step, generation, released_step=step)
    if isinstance(writer, Skip):
        raise SystemExit(f"no slot for step {step}: {writer}")
    for tensor in placed:
        writer.memory[tensor.offset : tensor.offset + tensor.nbytes] = tensors[tensor.name]
    writer.layout(layout.encode(placed, {"t": "none"}, shard), data_bytes)
    writer.ready()
    return writer.index


class Keeper:
    """The process."""

    def __init__(self, shard: str, mib: int, steps: list[int], *, waits: bool = False) -> None:
        self.shard, self.mib, self.steps, self.waits = shard, mib, steps, waits
        self.connect()

    def connect(self) -> None:
        """Say hello, for as long as it takes."""
        self.decoder = Decoder()
        while True:
            self.link = socket.socket(socket.AF_UNIX)
            try:
                self.link.connect(os.environ["HOLDFAST_GATE"])
                break
            except OSError:
                self.link.close()
                time.sleep(0.02)
        self.link.settimeout(0.1)
        member, phase = os.environ["HOLDFAST_MEMBER"], "running"
        self.say(op="hello", version=1, member=member, pid=os.getpid(), store="127.0.0.1:5",
                 phase=phase, generation=1, step=99, held_step=-1)  # fmt: skip
        self.say(op="tracked", bytes=room(self.mib), shard=self.shard)

    def say(self, **message: object) -> None:
        """One frame."""
        self.link.sendall(encode(message))

    def run(self) -> None:
        """Until it is killed."""
        while True:
            try:
                self.say(op="beat", phase="running", generation=1, step=99)
                data = self.link.recv(65536)
                if not data:
                    raise ConnectionError
            except TimeoutError:
                continue
            except OSError:
                self.connect()
                continue
            for message in self.decoder.feed(data):
                self.hear(message)

    def hear(self, message: dict[str, object]) -> None:
        """Take snapshots once there is room for them."""
        if message["op"] == "complete":
            sys.exit(0)
        if message["op"] != "arena":
            return
        with Arena.open(str(message["path"])) as arena:
            for step in self.steps:
                slot = fill(arena, self.shard, self.mib, step)
                self.say(op="snapshot", generation=1, step=step, slot=slot, stall_s=0.01)
        if self.steps and self.waits:
            self.say(op="ready", generation=1, held_step=-1, step=99)
        self.steps = []


if __name__ == "__main__":
    words = [word for word in sys.argv[3:] if word != "waits"]
    Keeper(sys.argv[1], int(sys.argv[2]), list(map(int, words)), waits="waits" in sys.argv).run()
