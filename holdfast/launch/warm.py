"""Fork warm interpreters: a zygote that has imported torch forks one process per member.

The launcher starts `python -m holdfast.launch.warm --control FD --launcher PID` and asks for members over the
socket. Each member is forked twice, so that the launcher (a subreaper) becomes its parent; it then waits for
its `run` order. The zygote has no threads, because a fork would lose them. Standard library only, besides
what it preloads by name."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from holdfast.ipc.frames import Decoder, FrameError, Message, encode
from holdfast.launch import imports, linux, reads, script

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PRELOAD = (
    "numpy",
    "torch",
    "torch.distributed",
    "torch.nn.parallel",
    "torch.utils.data",
    "torch._dynamo",  # the first optimizer of a process imports it: 1.2 s
    "holdfast.session",
)
"""What every training script is likely to import.

HOLDFAST_PRELOAD=a,b.c names other modules instead, and then nothing is learned from scripts (see
imports.py)."""
PACKET_BYTES_MAX = 64 << 10
_NANOBIND = "__nb_internals"
"""Modules made with nanobind keep their common record under such a name, in the interpreter's own dict."""


def preload(names: Iterable[str]) -> list[str]:
    """Import these modules. Returns a note for each that cannot be imported."""
    notes: list[str] = []
    missing: set[str] = set()
    for name in names:
        if name.partition(".")[0] in missing:
            continue
        try:
            importlib.import_module(name)
        except Exception as error:
            missing.add(name)
            notes.append(f"{name} is not preloaded: {type(error).__name__}: {error}")
    return notes


def _wanted(env: Mapping[str, str]) -> tuple[str, ...]:
    wanted = env.get("HOLDFAST_PRELOAD")
    return PRELOAD if wanted is None else tuple(name for name in wanted.split(",") if name)


def serve(control: socket.socket, launcher: int, bare: bool) -> ForkedMember:
    """Run the zygote. Returns only in the members that it forks. `bare`: preload nothing."""
    linux.die_with_parent(launcher)
    before = dict(os.environ)
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # a thread pool would be lost in the fork
    gc.disable()  # imports make a million objects that stay: looking through them each time finds nothing
    notes = preload(() if bare else _wanted(before))
    if linux.threads() > 1:
        notes.append(f"{linux.threads()} threads after the imports: forked interpreters may hang")
    gc.collect()
    gc.freeze()
    gc.enable()
    _send_packet(control, {"op": "ready", "notes": notes})
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, PACKET_BYTES_MAX, 2)
        if not data:
            raise SystemExit(0)
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        packet = json.loads(data)
        if "preload" in packet:
            spoilt = imports.take(packet["preload"], packet["changed"])
            _send_packet(control, {"op": "preloaded", "spoilt": spoilt})
            continue
        name = packet["member"]
        if _fork(control, name):
            control.close()
            return ForkedMember(socket.socket(fileno=descriptors[0]), descriptors[1], launcher, before)
        for descriptor in descriptors:
            os.close(descriptor)


def _send_packet(control: socket.socket, message: Message) -> None:
    control.send(json.dumps(message).encode())


def _fork(control: socket.socket, name: str) -> bool:
    """Fork a member. True in the member itself."""
    try:
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            return False
    except OSError as error:
        _send_packet(control, {"op": "failed", "member": name, "message": f"cannot fork: {error}"})
        return False
    _fork_member(control, name)
    return True


def _fork_member(control: socket.socket, name: str) -> None:
    """In the intermediate child: fork the member and exit, so that the launcher adopts it."""
    try:
        pid = os.fork()
        if not pid:
            return
        _send_packet(control, {"op": "forked", "member": name, "pid": pid})
    except OSError as error:
        _send_packet(control, {"op": "failed", "member": name, "message": f"cannot fork: {error}"})
    os._exit(0)


def thaw_for_nanobind() -> None:
    """At the end of a script: return what was preloaded to the garbage collector, if anything counts on it.

    nanobind (in triton) reports as leaked what the interpreter's last collection has not freed. Else that
    collection would only touch, and so copy, all memory that is shared with the zygote: a second of CPU time
    for each rank that ends."""
    if any(str(key).startswith(_NANOBIND) for key in linux.interpreter_dict()):
        gc.unfreeze()


class ForkedMember:
    """A forked interpreter that waits for its script."""

    def __init__(self, control: socket.socket, log: int, launcher: int, before: dict[str, str]) -> None:
        self._control, self._log, self._launcher, self._before = control, log, launcher, before

    def live(self) -> NoReturn:
        """Wait for the order, then become the script. Ends by SystemExit."""
        self._settle()
        self._send(op="warm", pid=os.getpid())
        message = self._receive()
        order = script.RunOrder.of(message)
        if order.no_python:
            self._run_program(order)
        causes = script.fresh_causes(self._before, order.env)
        self._send(op="running", pid=os.getpid(), fresh_for=causes)
        if causes:
            script.exec_fresh(message, order.env)
        os.environ.clear()
        os.environ.update(self._before)
        if "HOLDFAST_PRELOAD" not in self._before:
            imports.ImportWatch(self._report).start()
            reads.watch_writes(imports.frozen(), self._complain)
        atexit.register(thaw_for_nanobind)
        script.become(order)
        raise SystemExit(0)

    def _settle(self) -> None:
        os.setsid()
        try:
            linux.await_parent(self._launcher)
        except linux.OrphanedError:
            os._exit(1)
        for descriptor in (1, 2):
            os.dup2(self._log, descriptor)
        os.close(self._log)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        script.open_output()

    def _send(self, **message: Any) -> None:
        try:
            self._control.sendall(encode(message))
        except ConnectionError:  # the launcher has dropped this member, and nothing has run yet
            os._exit(0)

    def _report(self, modules: dict[str, str], changed: list[str]) -> None:
        """Report what was imported. What cannot be sent at once is dropped: the script must not wait."""
        message = {"op": "imported", "modules": modules, "changed": changed}
        with contextlib.suppress(OSError):
            self._control.send(encode(message), socket.MSG_DONTWAIT)

    def _complain(self, variable: str) -> None:
        """Report that a preloaded library has read this variable before the script set it."""
        sys.stderr.write(
            f"holdfast: {variable} is set too late for a library that was preloaded and has read it. Scripts "
            "started from now on have it in time; HOLDFAST_PRELOAD=torch for the agent preloads torch alone\n"
        )
        with contextlib.suppress(OSError):
            self._control.send(encode({"op": "late", "variable": variable}), socket.MSG_DONTWAIT)

    def _receive(self) -> Message:
        decoder = Decoder()
        while data := self._control.recv(PACKET_BYTES_MAX):
            for message in decoder.feed(data):
                return message
        os._exit(0)

    def _run_program(self, order: script.RunOrder) -> NoReturn:
        self._send(op="running", pid=os.getpid(), fresh_for=[])
        try:
            script.exec_program(order)
        except OSError as error:
            self._send(op="failed", message=f"cannot run {order.argv[0]}: {error}")
        os._exit(127)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="holdfast.launch.warm", description=__doc__)
    parser.add_argument("--control", type=int, help="descriptor of the socket to the launcher")
    parser.add_argument("--launcher", type=int, help="pid of the launcher")
    parser.add_argument("--bare", action="store_true", help="preload nothing")
    parser.add_argument("--fresh", type=int, help="descriptor that holds a run order to become at once")
    return parser.parse_args()


def main() -> None:
    """Be the zygote, one of its members, or a fresh interpreter that becomes a script."""
    arguments = _arguments()
    if arguments.fresh is not None:
        script.open_output()
        script.become(script.read_fresh(arguments.fresh))
        raise SystemExit(0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    control = socket.socket(fileno=arguments.control)
    try:
        member = serve(control, arguments.launcher, arguments.bare)
    except (linux.OrphanedError, ConnectionError, FrameError) as error:
        sys.exit(f"the zygote ends: {error}")
    member.live()


if __name__ == "__main__":
    main()
