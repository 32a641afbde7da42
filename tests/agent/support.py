"""Support the agent's tests: a leader that sends what the test tells it to over the real wire, and real
processes."""

from __future__ import annotations

import asyncio
import contextlib
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

import grpc
import grpc.aio

from controlplane.core.records import effects, events, model
from controlplane.wire import codec
from controlplane.wire import control_pb2 as pb
from controlplane.wire.control_pb2_grpc import ControlServicer, add_ControlServicer_to_server
from holdfast.ipc.frames import Decoder, Message, encode
from tests.leashed import leashed
from tests.sdk.zygote import daemons

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

add_to_server: Any = add_ControlServicer_to_server  # generated code has no annotations
PATIENCE_S = 60.0
"""How long a test waits for what must happen. No test measures time by it: the machine may be busy."""


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A short temporary folder (sockets), gone afterwards."""
    path = Path(tempfile.mkdtemp(dir="/tmp", prefix="hf-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


async def until(met: Callable[[], Any], what: str = "it") -> Any:
    """Poll until the value of `met` is true, and return that value."""
    deadline = time.monotonic() + PATIENCE_S
    while not (value := met()):
        assert time.monotonic() < deadline, f"{what} did not happen within {PATIENCE_S} s"
        await asyncio.sleep(0.005)
    return value


def until_sync(met: Callable[[], Any], what: str = "it") -> Any:
    """The same as `until`, outside an event loop."""
    deadline = time.monotonic() + PATIENCE_S
    while not (value := met()):
        assert time.monotonic() < deadline, f"{what} did not happen within {PATIENCE_S} s"
        time.sleep(0.005)
    return value


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


class Frames:
    """A blocking client of one of the node's Unix sockets."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE_S)
        until_sync(lambda: self._connect(path), f"a listener at {path}")
        self._decoder = Decoder()
        self.heard: list[Message] = []
        self._next = 0

    def _connect(self, path: Path) -> bool:
        try:
            self.socket.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        return True

    def say(self, **message: Any) -> None:
        self.socket.sendall(encode(message))

    def get(self) -> Message:
        """The next message. Raises EOFError at the end."""
        while self._next >= len(self.heard):
            data = self.socket.recv(65536)
            if not data:
                raise EOFError
            self.heard += self._decoder.feed(data)
        self._next += 1
        return self.heard[self._next - 1]

    def until(self, op: str, **fields: Any) -> Message:
        """The next message of this op and these fields; others are passed over."""
        while True:
            message = self.get()
            if message["op"] == op and all(message.get(k) == v for k, v in fields.items()):
                return message

    def ended(self) -> bool:
        """Whether the other side closed; waits for it, reading what still comes."""
        try:
            while True:
                self.get()
        except (EOFError, ConnectionError):
            return True

    def close(self) -> None:
        self.socket.close()


class LauncherProcess:
    """A real launcher and a client attached to it."""

    def __init__(
        self,
        run_dir: Path,
        *,
        orphan_timeout_s: float = 60,
        preload: str | None = "",
        python: str = sys.executable,
    ) -> None:
        self.run_dir = run_dir
        env = dict(os.environ)
        if preload is not None:
            env["HOLDFAST_PRELOAD"] = preload
        argv = [python, "-P", "-m", "holdfast.launch.launcher", "--run-dir", str(run_dir)]
        argv += ["--orphan-timeout-s", str(orphan_timeout_s)]
        with (run_dir / "launcher.log").open("ab") as log:
            self.process = subprocess.Popen(
                leashed(argv), stdout=log, stderr=log, env=env, start_new_session=True
            )
        self.client = self.attach()

    def attach(self) -> Frames:
        client = Frames(self.run_dir / "launcher.sock")
        client.say(op="attach", version=1)
        return client

    def script(self, text: str, name: str = "script.py") -> Path:
        path = self.run_dir / name
        path.write_text(text)
        return path

    def spawn(self, member: str) -> None:
        self.client.say(op="spawn", member=member, log=str(self.run_dir / f"{member}.log"))

    def run(self, member: str, *argv: str, env: dict[str, str] | None = None, **more: Any) -> None:
        full = {**os.environ, **(env or {})}
        order = {"module": False, "no_python": False, "cwd": str(self.run_dir), **more}
        self.client.say(op="run", member=member, argv=list(argv), env=full, **order)

    def output(self, member: str) -> str:
        return (self.run_dir / f"{member}.log").read_text()

    def close(self) -> None:
        self.client.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE_S)


class Leader(ControlServicer):
    """A coordinator's end of the wire, driven by the test."""

    def __init__(self, term: int = 1) -> None:
        self.term = term
        self.port = 0
        self.clock_slow_s = 0.0  # what its clock is behind
        self.deaf = False  # takes streams, but reads nothing on them after the hello
        self.hellos: list[codec.Greeting] = []
        self.events: list[codec.AgentEvent] = []
        self.at: list[float] = []
        self.refusal: pb.CoordinatorMessage | None = None
        self._calls: list[Any] = []
        self._left = asyncio.Event()
        self._server: Any = None

    async def start(self) -> None:
        self._server = grpc.aio.server()
        add_to_server(self, self._server)
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(None)

    def leave(self) -> None:
        """Break every stream, and take no new one until `lead` is called."""
        self._left.set()
        self._calls.clear()

    def lead(self, term: int) -> None:
        """Take streams again, as the leader of this term."""
        self.term = term
        self._left.clear()

    async def __aenter__(self) -> Leader:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def Link(self, _requests: Any, context: Any) -> None:
        serving = asyncio.ensure_future(self._serve(context))
        leaving = asyncio.ensure_future(self._left.wait())
        done, _ = await asyncio.wait([serving, leaving], return_when=asyncio.FIRST_COMPLETED)
        for task in (serving, leaving):
            task.cancel()
        if leaving in done:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "away")
        serving.result()

    async def Clock(self, _request: Any, _context: Any) -> pb.ClockReply:
        return pb.ClockReply(
            received_s=time.time() - self.clock_slow_s, sent_s=time.time() - self.clock_slow_s
        )

    async def _serve(self, context: Any) -> None:
        hello = codec.greeting_from(await context.read())
        if self.refusal is not None:
            self.hellos.append(hello)
            await context.write(self.refusal)
            return
        await context.write(codec.welcome(hello.cluster, 0.2, self.term))
        self._calls.append(context)
        self.hellos.append(hello)
        joined = hello.joined
        if self.deaf:
            await asyncio.Event().wait()
        while (message := await context.read()) is not grpc.aio.EOF:
            self.at.append(time.monotonic())
            self.events.append(codec.event_from(joined.node, joined.incarnation, message))

    async def order(self, order: codec.Order, term: int | None = None) -> None:
        """Send an order on the newest stream."""
        await until(lambda: self._calls, "a stream")
        await self._calls[-1].write(codec.to_agent(order, self.term if term is None else term))

    def reports(self, member: str) -> list[model.MemberStatus]:
        """Every status of a member that was reported because it had changed."""
        statuses = [event.status for event in self.events if isinstance(event, events.MemberReport)]
        return [status for status in statuses if status.member == member]

    def of(self, kind: type[Any]) -> list[Any]:
        """Every event of a kind."""
        return [event for event in self.events if isinstance(event, kind)]

    async def phase(self, member: str, phase: model.MemberPhase) -> model.MemberStatus:
        """Wait until a member was reported in this phase."""

        def met() -> model.MemberStatus | None:
            found = [status for status in self.reports(member) if status.phase == phase]
            return found[-1] if found else None

        status: model.MemberStatus = await until(met, f"{member} {phase}")
        return status

    async def hello(self, count: int) -> codec.Greeting:
        """Wait for the hello of this number, counted from 1."""
        await until(lambda: len(self.hellos) >= count, f"hello {count}")
        return self.hellos[count - 1]


AGENT = """
import json, logging, sys
import uvloop
from agent.main import serve
from controlplane.settings import AgentSettings, SettingsError
logging.basicConfig(level=logging.INFO, stream=sys.stderr)
try:
    sys.exit(uvloop.run(serve(AgentSettings(**json.loads(sys.argv[1])))))
except SettingsError as error:
    sys.exit(f"settings: {error}")
"""


class AgentProcess:
    """A real agent process of one node."""

    def __init__(self, base: Path, coordinator: str, *, preload: str = "", **settings: Any) -> None:
        self.base = base
        values = {
            "cluster": "test",
            "coordinator": coordinator,
            "node": "n0",
            "slots": 4,
            "run_dir": str(base / "run"),
            "shm_dir": str(base / "shm"),
            "address_file": str(base / "agent.json"),
            "beat_interval_s": 0.2,
            "process_timeout_s": 2.0,
            "drain_grace_s": 0.0,  # the coordinator of these tests answers no drain
            "device_timeout_s": 2 * float(settings.get("process_timeout_s", 2.0)),
            **settings,
        }
        (base / "shm").mkdir(exist_ok=True)
        env = {**os.environ, "HOLDFAST_PRELOAD": preload}
        out, err = base / "out", base / "err"
        forking = daemons("agent.main", "uvloop")
        self.process = forking.run(AGENT, json.dumps(values), out=out, err=err, env=env)

    @property
    def run_dir(self) -> Path:
        return self.base / "run" / "test" / "n0"

    @property
    def memory(self) -> Path:
        return self.base / "shm" / f"holdfast-{os.getuid()}-test-n0"

    def out(self) -> str:
        return (self.base / "out").read_text()

    def err(self) -> str:
        return (self.base / "err").read_text()

    def addresses(self) -> dict[str, Any]:
        """The content of the agent's address file; waits until it exists."""
        path = self.base / "agent.json"
        until_sync(path.exists, "the address file")
        content: dict[str, Any] = json.loads(path.read_text())
        return content

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)

    async def end(self) -> int:
        """SIGTERM, and its exit code."""
        if self.process.poll() is None:
            self.process.terminate()
        return await asyncio.to_thread(self.process.wait, PATIENCE_S)


def spec(script: Path | str, *arguments: str, job: str = "job", **more: Any) -> model.JobSpec:
    """A job of one script."""
    return model.JobSpec(job, (str(script), *arguments), more.pop("cwd", "/tmp"), **more)


def generation(number: int, *members: str, node: str = "n0", **more: Any) -> model.Generation:
    """A generation on one node whose ranks are these members, in this order."""
    seats = tuple(model.Placement(rank, name, node, rank) for rank, name in enumerate(members))
    values: dict[str, Any] = {
        "store": "127.0.0.1:1",
        "master": "127.0.0.1:29500",
        "resume": model.Resume(model.Tier.FRESH, 0),
        "reason": "test",
        **more,
    }
    return model.Generation("job", number, 1, seats, **values)


def launch(member: str, job: model.JobSpec, rank: int = 0, **more: Any) -> effects.Launch:
    """Have a member run a job's script."""
    values: dict[str, Any] = {
        "role": model.Role.RANK,
        "rank": rank,
        "local_rank": rank,
        "generation": generation(1, *[f"job.{i}" for i in range(job.nproc_per_node)]),
        **more,
    }
    return effects.Launch("n0", member, job, **values)
