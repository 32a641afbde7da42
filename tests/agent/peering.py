"""Real peers for tests: each side has its own shared memory and serves on a real socket.

`python -m tests.agent.peering FOLDER NAME JSON` is one side as a process: it takes orders as lines of JSON,
and prints after each order which copies it keeps."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

from agent.host.arena_files import ArenaFiles
from agent.host.paths import Paths
from agent.peers.service import Peers
from agent.relays.collecting import BeatCollector
from controlplane.core.records import effects, events
from controlplane.core.records.model import MemberPhase, MemberStatus, Partner, PeerCopy
from controlplane.settings import AgentSettings
from holdfast import removal
from holdfast.ipc import layout
from holdfast.ipc.arena import Arena
from holdfast.ipc.skips import Skip
from tests.agent.support import PATIENCE_S, until

JOB = "job"
CHUNK = 8 << 20
LARGE = 2 * CHUNK
Values = dict[str, bytes]


def values(seed: int, frozen: int = 0, nbytes: int = LARGE) -> Values:
    """The values of a state of three tensors: `w` changes with the seed, `frozen` does not."""
    return {"w": noise(seed, nbytes), "frozen": noise(~frozen, nbytes), "b": noise(seed + 1, 256)}


def noise(seed: int, nbytes: int) -> bytes:
    """Random bytes, in which no two megabytes are equal."""
    source = random.Random(seed)
    parts = [source.randbytes(64) * (1 << 14) for _ in range(-(-nbytes // (1 << 20)))]
    return b"".join(parts)[:nbytes]


def header(state: Values, step: int, shard: str = "all") -> tuple[bytes, tuple[layout.Tensor, ...], int]:
    """The header of such a state, where its tensors lie, and how many bytes they take."""
    tensors, nbytes = layout.place((name, "uint8", (len(data),), len(data)) for name, data in state.items())
    return layout.encode(tensors, {"step": step}, shard), tensors, nbytes


def write(path: Path, state: Values, step: int, generation: int = 1, shard: str = "all") -> None:
    """Copy a state into a member's arena as a rank does; everything before it is released."""
    head, tensors, nbytes = header(state, step, shard)
    room = layout.room(nbytes, len(head))
    with Arena.open(path) if path.exists() else Arena.create(path, room) as arena:
        writer = arena.begin(step, generation, released_step=1 << 60)
        assert not isinstance(writer, Skip), writer
        for tensor in tensors:
            writer.memory[tensor.offset : tensor.offset + tensor.nbytes] = state[tensor.name]
        writer.layout(head, nbytes)
        writer.ready()


def read(path: Path, step: int) -> tuple[int, bytes, bytes]:
    """Generation, header and data of a READY slot."""
    with Arena.open(path) as arena:
        slot = arena.find(step)
        assert slot is not None, f"{path} holds no snapshot {step}"
        return slot.generation, slot.header, bytes(slot.memory)


class Side:
    """One node's peers, in this process."""

    def __init__(self, base: Path, name: str, **settings: Any) -> None:
        self.name = name
        self.paths = Paths(base / name, base / f"{name}.shm")
        self.paths.memory.mkdir(mode=0o700, exist_ok=True)
        removal.claim(self.paths.memory)
        self.settings = AgentSettings(**{"peer_listen": "127.0.0.1:0", "peer_timeout_s": 5.0, **settings})
        self.told: list[events.Event] = []
        self.loaded: list[str] = []
        self.members: dict[str, MemberStatus] = {}
        self.collector = BeatCollector()
        self.disturbs = ""  # why nothing may be measured with this node
        self.peers = self._peers()

    def _peers(self) -> Peers:
        return Peers(
            self.settings,
            self.paths,
            "127.0.0.1",
            node=self.name,
            incarnation=1,
            send_event=self.told.append,
            status=self.members.get,
            room=ArenaFiles(self.paths, lambda _: False).ensure_to_fill,
            loaded=self.loaded.append,
            relay=self.collector.serve,
            disturbs=lambda: self.disturbs,
        )

    async def __aenter__(self) -> Side:
        await self.peers.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.collector.close()
        await self.peers.stop()

    async def restart(self) -> None:
        """Replace the agent by another one in the same folders."""
        await self.peers.stop()
        self.peers = self._peers()
        await self.peers.start()

    def snapshot(
        self, member: str, state: Values, step: int, *, rank: int = 0, generation: int = 1, shard: str = "all"
    ) -> None:
        """Have a member of this node take a snapshot, and release it as if all ranks had theirs."""
        self.members[member] = MemberStatus(
            member, JOB, MemberPhase.RUNNING, rank=rank, generation=generation, shard=shard
        )
        write(self.paths.arena(member), state, step, generation, shard)
        self.peers.release(effects.Release(self.name, JOB, step))

    def replicate(self, *partners: tuple[str, str]) -> None:
        """Order copies of (member, address)."""
        every = tuple(Partner(member, "partner", address) for member, address in partners)
        self.peers.replicate(effects.Replicate(self.name, JOB, every))

    async def keeps(self, member: str, step: int, generation: int = 1) -> PeerCopy:
        """Wait until this side keeps a whole copy."""

        def found() -> PeerCopy | None:
            what = (member, step, generation)
            return next((c for c in self.peers.copies() if (c.member, c.step, c.generation) == what), None)

        copy: PeerCopy = await until(found, f"{self.name}'s copy of {member} at {step}")
        return copy

    def copy(self, member: str, step: int) -> tuple[int, bytes, bytes]:
        """The copy of a member's snapshot that this side keeps."""
        return read(self.paths.copies / f"{member}.arena", step)

    def steps(self, member: str) -> list[int]:
        """The steps of the copies that this side keeps of a member."""
        return sorted(copy.step for copy in self.peers.copies() if copy.member == member)

    async def fetch(self, member: str, source: str, step: int, address: str, generation: int = 1) -> str:
        """Order a fetch. Returns why it failed, "" when it did not."""
        return (await self.fetched(member, source, step, address, generation)).reason

    async def fetched(
        self, member: str, source: str, step: int, address: str, generation: int = 1, digest: str = ""
    ) -> events.Fetched:
        """Order a fetch, and return its answer. `digest`: the one that the snapshot must have; "" for any."""
        before = len(self.told)
        order = effects.Fetch(self.name, member, JOB, source, step, generation, address, digest)
        self.peers.fetch(order)
        await until(lambda: len(self.told) > before, "the answer to a fetch")
        answer = self.told[-1]
        assert isinstance(answer, events.Fetched)
        assert (answer.member, answer.source, answer.step) == (member, source, step)
        return answer

    def vouched(self, member: str, step: int) -> str:
        """The digest of a member's snapshot that this side has reported to the leader."""
        said = [event for event in self.told if isinstance(event, events.SnapshotVouched)]
        (digest,) = {each.digest for each in said if (each.member, each.step) == (member, step)}
        return digest


class Process:
    """One side as a process of its own, that can be killed."""

    def __init__(self, base: Path, name: str, **settings: Any) -> None:
        argv = [sys.executable, "-m", "tests.agent.peering", str(base), name, json.dumps(settings)]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.address = str(self.answer()["address"])

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line: dict[str, Any] = json.loads(self.process.stdout.readline())
        return line

    def say(self, **order: Any) -> dict[str, Any]:
        """Give an order, and return which copies the side keeps after it."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.end()

    def end(self) -> None:
        """Close its standard input, which ends it."""
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()
        self.process.wait(PATIENCE_S)


async def _main(base: str, name: str, settings: dict[str, Any]) -> None:
    async with Side(Path(base), name, **settings) as side:
        print(json.dumps({"address": side.peers.address}), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            order = json.loads(line)
            if "snapshot" in order:
                member, seed, step = order["snapshot"]
                side.snapshot(member, values(seed), step)
            if "replicate" in order:
                side.replicate(*map(tuple, order["replicate"]))
            kept = [dataclasses.asdict(copy) for copy in side.peers.copies()]
            print(json.dumps({"copies": kept, "counts": side.peers.counts}), flush=True)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))
    os._exit(0)  # a thread may still wait for a line
