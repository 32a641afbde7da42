"""Forks processes from an interpreter that has imported what they need, so that a test does not pay for it
each time: torch in ranks, and in daemons what is three quarters of their start.

Run as a program it serves one socket, in lines of JSON: {"script", "env", "log"} or {"code", "env", "out",
"err"} in, {"pid"} and {"ended", "code"} out. Its children end with it: when the test session closes the
socket, or is killed, it kills the sessions of its ranks and ends; when it ends or is killed itself, the
kernel kills each rank, and sends each daemon SIGTERM."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from controlplane.parent_death import PR_SET_PDEATHSIG

if TYPE_CHECKING:
    from collections.abc import Mapping

TORCH = ("torch", "torch._dynamo", "torch.nn.parallel", "holdfast.session")
"""What every rank imports."""
_LIBC = ctypes.CDLL(None)  # loaded before any fork


class Zygote:
    """The client's side: one forking process for a whole test session."""

    def __init__(self, *preload: str, torch: bool = True) -> None:
        """`preload`: modules that all of its children have imported, beside torch and the SDK if `torch`."""
        ours, theirs = socket.socketpair()
        self._socket = ours
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.sdk.zygote",
                    str(theirs.fileno()),
                    *(TORCH if torch else ()),
                    *preload,
                ],
                pass_fds=[theirs.fileno()],
                cwd=Path(__file__).resolve().parents[2],
            )
        self._buffer = b""
        self._lock = threading.Lock()
        self.codes: dict[int, int] = {}

    @property
    def pid(self) -> int:
        """The process that forks."""
        return self._process.pid

    def spawn(self, script: Path, env: dict[str, str], log: Path, *argv: str) -> int:
        """Fork a process that becomes this script; its pid."""
        return self._ask({"script": str(script), "env": env, "log": str(log), "argv": argv})

    def run(
        self, code: str, *argv: str, err: Path, out: Path | None = None, env: Mapping[str, str]
    ) -> Forked:
        """Fork a daemon that runs this text, as `python -c` does, and appends what it prints to the files."""
        order = {"code": code, "env": dict(env), "out": str(out or err), "err": str(err), "argv": argv}
        return Forked(self, self._ask(order))

    def poll(self, pid: int) -> int | None:
        """The exit code of a process, negative for a signal; None while it runs."""
        with self._lock:
            while select.select([self._socket], [], [], 0)[0] or b"\n" in self._buffer:
                self._note(self._line())
            return self.codes.get(pid)

    def _ask(self, order: dict[str, Any]) -> int:
        with self._lock:
            self._socket.sendall(json.dumps(order).encode() + b"\n")
            while True:
                message = self._line()
                if "pid" in message:
                    pid = int(message["pid"])
                    self.codes.pop(pid, None)  # the exit code of an earlier process with the same pid
                    return pid
                self._note(message)

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


@functools.cache
def daemons(*preload: str) -> Zygote:
    """One that has imported these modules but no torch, for all daemons that this process starts."""
    made = Zygote(*preload, torch=False)
    atexit.register(made.close)
    return made


class Forked:
    """A process of a zygote, by the methods of `subprocess.Popen`."""

    def __init__(self, zygote: Zygote, pid: int) -> None:
        self._zygote, self.pid = zygote, pid

    def poll(self) -> int | None:
        return self._zygote.poll(self.pid)

    def wait(self, timeout: float | None = None) -> int:
        began = time.monotonic()
        while (code := self.poll()) is None:
            if timeout is not None and time.monotonic() - began > timeout:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            time.sleep(0.005)
        return code

    def send_signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def serve(connection: socket.socket) -> dict[str, Any] | None:
    """Fork a process for each order. Returns the order in a daemon, which is to run its text, and None at the
    end."""
    buffer, living, ended = b"", set[int](), of_children()
    while True:
        ready = select.select([connection, ended], [], [])[0]
        if ended in ready:
            ended.recv(1 << 16)
        if connection in ready:
            data = connection.recv(1 << 20)
            if not data:
                end(living)
                return None
            buffer += data
        while b"\n" in buffer:
            line, _, buffer = buffer.partition(b"\n")
            order: dict[str, Any] = json.loads(line)
            server, pid = os.getpid(), os.fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                connection.close()
                ended.close()
                if "code" in order:
                    end_with(server, signal.SIGTERM)
                    return order
                end_with(server, signal.SIGKILL)
                become(order)
            if "code" not in order:
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


def end_with(server: int, number: int) -> None:
    """Have the kernel send this child a signal when the server is gone, in whatever way: a killed one ends
    nobody."""
    _LIBC.prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)
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


def begin(order: dict[str, Any]) -> dict[str, Any]:
    """Make this process a new one; the names that its text begins with."""
    os.setsid()
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(order[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), number)
    os.environ.clear()
    os.environ.update(order["env"])
    paths = order["env"].get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [path for path in paths if path and path not in sys.path]
    sys.argv = ["-c", *order["argv"]]
    return {"__name__": "__main__"}


def main() -> dict[str, Any] | None:
    """Import the modules once, without a collector that would look through them, and serve."""
    os.environ["OMP_NUM_THREADS"] = "1"
    gc.disable()
    for module in sys.argv[2:]:
        importlib.import_module(module)
    gc.freeze()
    gc.enable()
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    return serve(socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__" and (given := main()) is not None:
    exec(given["code"], begin(given))
