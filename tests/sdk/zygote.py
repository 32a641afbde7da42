"""Forks ranks from an interpreter that has imported torch, so that a test does not pay for it each time.

Run as a program it serves one socket, in lines of JSON: {"script", "env", "log"} in, {"pid"} and
{"ended", "code"} out. Its children end with it: when the test session closes the socket, or is killed, it
kills their sessions and ends; when it is killed itself, the kernel kills each child."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

from controlplane.parent_death import PR_SET_PDEATHSIG

_LIBC = ctypes.CDLL(None)  # loaded before any fork


class Zygote:
    """The client's side: one forking process for a whole test session."""

    def __init__(self, *preload: str) -> None:
        """`preload`: modules that all of its children have imported, beside torch and the SDK."""
        ours, theirs = socket.socketpair()
        self._socket = ours
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.sdk.zygote", str(theirs.fileno()), *preload],
                pass_fds=[theirs.fileno()],
                cwd=Path(__file__).resolve().parents[2],
            )
        self._buffer = b""
        self.codes: dict[int, int] = {}

    @property
    def pid(self) -> int:
        """The process that forks."""
        return self._process.pid

    def spawn(self, script: Path, env: dict[str, str], log: Path, *argv: str) -> int:
        """Fork a process that becomes this script; its pid."""
        order = {"script": str(script), "env": env, "log": str(log), "argv": argv}
        self._socket.sendall(json.dumps(order).encode() + b"\n")
        while True:
            message = self._line()
            if "pid" in message:
                pid = int(message["pid"])
                self.codes.pop(pid, None)  # the exit code of an earlier process with the same pid
                return pid
            self._note(message)

    def poll(self, pid: int) -> int | None:
        """The exit code of a process, negative for a signal; None while it runs."""
        while select.select([self._socket], [], [], 0)[0] or b"\n" in self._buffer:
            self._note(self._line())
        return self.codes.get(pid)

    def close(self) -> None:
        self._socket.close()
        self._process.wait()

    def _note(self, message: dict[str, Any]) -> None:
        self.codes[message["ended"]] = message["code"]

    def _line(self) -> dict[str, Any]:
        while b"\n" not in self._buffer:
            data = self._socket.recv(1 << 16)
            if not data:
                raise RuntimeError("the zygote has ended")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message


def serve(connection: socket.socket) -> None:
    buffer, living, ended = b"", set[int](), of_children()
    while True:
        ready = select.select([connection, ended], [], [])[0]
        if ended in ready:
            ended.recv(1 << 16)
        if connection in ready:
            data = connection.recv(1 << 20)
            if not data:
                end(living)
                return
            buffer += data
        while b"\n" in buffer:
            line, _, buffer = buffer.partition(b"\n")
            server, pid = os.getpid(), os.fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                connection.close()
                ended.close()
                end_with(server)
                become(json.loads(line))
            living.add(pid)
            report(connection, {"pid": pid})
        reap(connection, living)


def of_children() -> socket.socket:
    """A socket that can be read from whenever a child has ended."""
    ours, theirs = socket.socketpair()
    for each in (ours, theirs):
        each.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(theirs.detach())
    return ours


def end_with(server: int) -> None:
    """Have the kernel kill this child when the server is gone, in whatever way: a killed one ends nobody."""
    _LIBC.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != server:  # it ended before the request, so no signal will come
        os._exit(1)


def end(living: set[int]) -> None:
    """Kill what the children have started, too. One that has just been forked may have no session yet."""
    for pid in living:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)  # a child that is not reaped yet keeps its pid
    for pid in living:
        os.waitpid(pid, 0)


def report(connection: socket.socket, message: dict[str, int]) -> None:
    """Send a line. A client that has gone is noticed where it is read from."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        connection.sendall(json.dumps(message).encode() + b"\n")


def reap(connection: socket.socket, living: set[int]) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        living.discard(pid)
        report(connection, {"ended": pid, "code": os.waitstatus_to_exitcode(status)})


def become(order: dict[str, Any]) -> NoReturn:
    os.setsid()
    output = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.clear()
    os.environ.update(order["env"])
    sys.argv = [order["script"], *order["argv"]]
    sys.path.insert(0, str(Path(order["script"]).parent))
    code = 0
    try:
        runpy.run_path(order["script"], run_name="__main__")
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        if isinstance(leaving.code, str):
            print(leaving.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    started = time.monotonic()
    import torch
    import torch._dynamo
    import torch.nn.parallel

    import holdfast.session  # noqa: F401

    for module in sys.argv[2:]:
        importlib.import_module(module)
    torch.set_num_threads(1)
    serve(socket.socket(fileno=int(sys.argv[1])))
