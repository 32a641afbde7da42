"""A node for tests: it starts real ranks, speaks an agent's protocol, and forms generations itself.

It decides as little as it can: a dead or silent rank is replaced by a spare or a new process, the newest
clean step wins, snapshots are released when all ranks have them."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import socket
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from holdfast.ipc.arena import Arena
from holdfast.ipc.frames import Decoder, FrameError, Message, encode
from holdfast.ipc.progress_page import ProgressPage
from tests.sdk import resuming, stacks

if TYPE_CHECKING:
    from tests.sdk.zygote import Zygote

TIMEOUT_S = 100.0
COMPLETE = {"op": "complete", "ok": True, "reason": "all ranks finished"}


@dataclass
class Member:
    """One process."""

    name: str
    pid: int
    board: ProgressPage
    log: Path
    connection: socket.socket | None = None
    decoder: Decoder = field(default_factory=Decoder)
    ready: Message | None = None
    store: str = ""
    rank: int = -1
    finished: int = -1
    arena: Arena | None = None
    snapshot: tuple[int, int] = (-1, -1)  # generation, step
    shard: str = ""
    said: list[Message] = field(default_factory=list)
    gone: bool = False

    def last(self, op: str) -> Message | None:
        return next((message for message in reversed(self.said) if message["op"] == op), None)


class Node:
    """Ranks of one job on this machine."""

    def __init__(self, zygote: Zygote, script: Path, world_size: int, *, spares: int = 0, **env: str) -> None:
        self.folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="hf-"))
        self.shm = Path(tempfile.mkdtemp(dir="/dev/shm", prefix="hf-"))
        self.zygote = zygote
        self.script, self.world_size, self.env = script, world_size, env
        self.generation, self.interrupted = 0, 0
        self.members: dict[str, Member] = {}
        self.seats: list[str] = []
        self.incidents: list[dict[str, Any]] = []
        self.generations: list[Message] = []
        self.released = -1
        self.shards: dict[int, str] = {}  # what each rank holds
        self.complete = False
        self.functions = 1  # elastic functions that the script has yet to finish
        self.hold = False  # do not form while true
        self._selector = selectors.DefaultSelector()
        self._listener = self._listen()
        for _ in range(world_size + spares):
            self.start()

    def _listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX)
        path = self.folder / "gate.sock"
        path.unlink(missing_ok=True)
        listener.bind(str(path))
        listener.listen(64)
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ, None)
        return listener

    def start(self) -> Member:
        name = f"job.{len(self.members)}"
        board = ProgressPage.create(self.shm / f"{name}.board")
        log = self.folder / f"{name}.log"
        log.touch()
        pid = self.zygote.spawn(self.script, self._environment(name), log)
        self.members[name] = Member(name, pid, board, log)
        return self.members[name]

    def _environment(self, name: str) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
            "OMP_NUM_THREADS": "1",
            "HOLDFAST_GATE": str(self.folder / "gate.sock"),
            "HOLDFAST_MEMBER": name,
            "HOLDFAST_BOARD": str(self.shm / f"{name}.board"),
            "HOLDFAST_ADDRESS": "127.0.0.1",
            "HOLDFAST_SNAPSHOT_EVERY": "5",
            "HOLDFAST_LEDGER": str(self.folder / "ledger"),
            "OUT": str(self.folder),
            **self.env,
        }

    # ------------------------------------------------------------------ the protocol

    def run(self, until: Any = None, timeout_s: float = TIMEOUT_S) -> None:
        """Serve until `until()` is true, by default until every rank has ended well."""
        deadline = time.monotonic() + timeout_s
        while not (until or self.ended)():
            if time.monotonic() > deadline:
                raise TimeoutError(self.report())
            self.turn()

    def ended(self) -> bool:
        self.check_alive()
        return self.complete and all(member.gone for member in self.members.values())

    def turn(self, wait_s: float = 0.005) -> None:
        for key, _ in self._selector.select(wait_s):
            if key.data is None:
                connection, _ = self._listener.accept()
                connection.setblocking(False)
                self._selector.register(connection, selectors.EVENT_READ, Decoder())
            else:
                self._read(key)
        self.reap()
        self.decide()

    def _read(self, key: selectors.SelectorKey) -> None:
        connection: Any = key.fileobj
        try:
            data = connection.recv(1 << 16)
            messages = key.data.feed(data) if data else []
        except (OSError, FrameError):
            data, messages = b"", []
        for message in messages:
            self.hear(connection, message)
        if not data:
            self.drop(connection)

    def drop(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        connection.close()
        for member in self.members.values():
            if member.connection is connection:
                member.connection = None

    def hear(self, connection: socket.socket, message: Message) -> None:
        if message["op"] == "hello":
            member = self.members[message["member"]]
            member.connection, member.store = connection, message["store"]
            member.said.append(message)
            self.say(member, {"op": "welcome", "version": 1, "beat_interval_s": 0.1, "process_timeout_s": 5})
            if self.complete:  # a spare that was slow to start
                self.say(member, COMPLETE)
            return
        member = next(m for m in self.members.values() if m.connection is connection)
        member.said.append({**message, "at": time.monotonic()})
        handler = getattr(self, "on_" + message["op"], None)
        if handler is not None:
            handler(member, message)

    def say(self, member: Member, message: Message) -> None:
        if member.connection is not None:
            with contextlib.suppress(OSError):
                member.connection.send(encode(message), socket.MSG_NOSIGNAL)

    def everyone(self, message: Message) -> None:
        for member in self.members.values():
            if not member.gone:
                self.say(member, message)

    def on_ready(self, member: Member, message: Message) -> None:
        if member.name in self.seats and message["generation"] == self.generation:
            self.interrupt("a collective broke")
        member.ready, member.finished = message, -1

    def on_finished(self, member: Member, message: Message) -> None:
        member.finished = message["step"]

    def on_tracked(self, member: Member, message: Message) -> None:
        member.shard = message["shard"]
        self.shards[member.rank] = member.shard
        if member.arena is None or member.arena.slot_bytes < message["bytes"]:
            member.arena = Arena.create(self.shm / f"{member.name}.arena", message["bytes"])
        room = {"path": str(member.arena.path), "slot_bytes": member.arena.slot_bytes}
        self.say(member, {"op": "arena", **room})

    def on_snapshot(self, member: Member, message: Message) -> None:
        member.snapshot = max(member.snapshot, (message["generation"], message["step"]))
        seated = [self.members[name].snapshot[1] for name in self.seats]
        if min(seated) > self.released:
            self.released = min(seated)
            self.everyone({"op": "release", "step": self.released})

    # ------------------------------------------------------------------ decisions

    def reap(self) -> None:
        for member in self.members.values():
            if member.gone or member.connection is not None:  # its last messages are read first
                continue
            if self.zygote.poll(member.pid) is not None:
                member.gone = True
                if member.name in self.seats and not self.complete:
                    self.interrupt(f"{member.name} ended with {self.zygote.poll(member.pid)}")

    def interrupt(self, reason: str) -> None:
        """Break the generation: order every rank back to the barrier."""
        if self.interrupted >= self.generation:
            return
        self.interrupted = self.generation
        self.incidents.append({"at": time.monotonic(), "reason": reason, "generation": self.generation})
        for name in self.seats:
            self.members[name].ready = None
        self.everyone({"op": "interrupt", "generation": self.generation, "reason": reason})

    def decide(self) -> None:
        alive = [member for member in self.members.values() if not member.gone]
        if self.generation > self.interrupted:
            seated = [self.members[name] for name in self.seats]
            if not self.complete and all(member.finished >= 0 for member in seated):
                self._finish()
            return
        ready = [member for member in alive if member.ready is not None]
        kept = {name: self.members[name] for name in self.seats if self.members[name] in alive}
        waiting = [member for member in alive if member.name not in self.seats]
        if len(kept) + len(waiting) < self.world_size and not self.hold:
            self.start()
        if self.hold or any(member.ready is None for member in kept.values()):
            return
        fresh = [member for member in ready if member.name not in self.seats]
        seats: list[str] = []
        for rank in range(self.world_size):
            name = self.seats[rank] if rank < len(self.seats) else ""
            if name in kept:
                seats.append(name)
            elif fresh:
                seats.append(fresh.pop(0).name)
            else:
                return
        self.form(seats)

    def _finish(self) -> None:
        """Act on all ranks having finished a function: let them return from it, or end the job after the last
        one."""
        if self.functions == 1:
            self.complete = True
            self.everyone(COMPLETE)
            return
        self.functions -= 1
        self.interrupted = self.generation  # sends no interrupt: this generation has ended, it was not broken
        for name in self.seats:
            self.members[name].finished = -1
        self.everyone({"op": "return", "generation": self.generation})

    def resume(self, seats: list[str]) -> Message:
        """Where the next generation's state comes from."""
        return resuming.nearest(self, seats)

    def worn(self, name: str) -> bool:
        """Whether a member was in a generation. By the core's rule such a member does not have what its
        script built any more: it has trained since, or has begun to receive a state."""
        return self.members[name].rank >= 0

    def _begin_again(self, seats: list[str]) -> bool:
        """When no state is left, and no member still has what its script built: have all begin in new
        processes. Returns whether."""
        if any(not self.worn(name) for name in seats) or self.resume(seats)["tier"] != "fresh":
            return False
        for name in seats:
            self.discard(self.members[name])
        return True

    def form(self, seats: list[str]) -> None:
        if self._begin_again(seats):
            return
        self.generation = max(self.generation, self.interrupted) + 1
        self.seats = seats
        places = [
            {"rank": rank, "member": name, "node": "n0", "local_rank": rank}
            for rank, name in enumerate(seats)
        ]
        generation = {
            "number": self.generation,
            "term": 1,
            "world_size": self.world_size,
            "local_world_size": self.world_size,
            "seats": places,
            "store": self.members[seats[0]].store,
            "master": "127.0.0.1:1",
            "restarts": len(self.incidents),
            "resume": {"reason": "", **self.resume(seats)},
        }
        self.generations.append(generation)
        for rank, name in enumerate(seats):
            member = self.members[name]
            member.rank, member.ready = rank, None
            own = {**generation, "rank": rank, "local_rank": rank}
            self.say(member, {"op": "form", "generation": own})

    # ------------------------------------------------------------------ for tests

    def seat(self, rank: int) -> Member:
        return self.members[self.seats[rank]]

    def bury(self, member: Member) -> None:
        """Give a silent rank up: count it as gone and interrupt the others. It may live on, as behind a cut
        network, until `discard`."""
        member.gone = True
        self.interrupt(f"{member.name} is silent")

    def deafen(self) -> None:
        """Take the agent away: no socket, no connection."""
        for key in list(self._selector.get_map().values()):
            connection: Any = key.fileobj
            self.drop(connection)
        (self.folder / "gate.sock").unlink()

    def listen_again(self) -> None:
        """Bring the agent back."""
        self._listener = self._listen()

    def discard(self, member: Member) -> None:
        """End a member that was buried, if it has not ended by itself meanwhile."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(member.pid, signal.SIGKILL)

    def check_alive(self) -> None:
        for member in self.members.values():
            code = self.zygote.poll(member.pid)
            if code not in (None, 0, -signal.SIGKILL):
                raise AssertionError(f"{member.name} ended with {code}\n{self.report()}")

    def report(self) -> str:
        lines = [f"generation {self.generation}, seats {self.seats}, incidents {self.incidents}"]
        for member in self.members.values():
            said = [message for message in member.said if message["op"] not in ("beat", "report")][-6:]
            lines.append(f"--- {member.name} gone={member.gone} said {said}")
            if not member.gone:
                lines.append(stacks.of(member.pid, str(self.shm / f"{member.name}.board")))
            lines.append(member.log.read_text(errors="replace")[-3000:])
        return "\n".join(lines)

    def results(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in sorted(self.folder.glob("result.*.json"))]

    def close(self) -> None:
        for member in self.members.values():
            while self.zygote.poll(member.pid) is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(member.pid, signal.SIGKILL)
                time.sleep(0.002)
            member.board.close()
            if member.arena is not None:
                member.arena.close()
            if member.connection is not None:
                member.connection.close()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()
        shutil.rmtree(self.folder)
        shutil.rmtree(self.shm)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def samples(ledger: Path) -> dict[int, list[int]]:
    """For each step, the samples of the generation that committed it first."""
    attempts: dict[tuple[int, int], dict[int, list[int]]] = {}
    first: dict[int, tuple[int, int]] = {}
    for path in sorted(ledger.glob("*.jsonl")):
        for text in path.read_text().splitlines():
            line = json.loads(text)
            if line["kind"] == "skipped":
                continue
            key = (line["step"], line["generation"])
            if line["kind"] == "attempt":
                attempts.setdefault(key, {})[line["rank"]] = line["indices"]
            else:
                found = (line["t_ns"], line["generation"])
                first[line["step"]] = min(first.get(line["step"], found), found)
    return {
        step: [index for _, part in sorted(attempts[step, generation].items()) for index in part]
        for step, (_, generation) in sorted(first.items())
    }
