"""The launcher's end of the zygote: it is kept alive, and asked to fork."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_PACKET_BYTES_MAX = 64 << 10
_QUICK_DEATH_S = 5.0
_RESTART_PAUSE_S = 1.0
log = logging.getLogger("holdfast.launcher")
_LESSON_PAUSE_S = 1.0
_LESSON_MAX = 100
"""Modules in one packet to the zygote."""
_QUICK_DEATHS_MAX = 3
"""After so many deaths right after the start, imports are to blame: the next one preloads nothing."""


@dataclass(slots=True)
class Request:
    """A member to be forked: its end of the control socket and its log, both given away."""

    member: str
    control: socket.socket
    log: int
    sent: bool = field(default=False)

    def close(self) -> None:
        """Close what was given away, or never will be."""
        if self.log >= 0:
            self.control.close()
            os.close(self.log)
            self.log = -1


class Zygote:
    """Forks members. `told` gets its messages: ready, forked, failed."""

    def __init__(self, told: Callable[[dict[str, Any]], None]) -> None:
        self._told = told
        self._waiting: dict[str, Request] = {}
        self._control: socket.socket | None = None
        self._ready = False
        self._quick_deaths = 0
        self._started = 0.0
        self._restart: asyncio.TimerHandle | None = None
        self.pid = 0
        self._learned: dict[str, str] = {}  # of scripts: library and origin, to be preloaded
        self._known: set[str] = set()  # of these, what this process has, or must not have
        self._taking: dict[str, str] = {}
        self._lesson: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start the process. It tells when it is ready; requests wait until then. Raises OSError."""
        self._restart = None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            os.set_inheritable(theirs.fileno(), True)
            argv = [sys.executable, "-P", "-m", "holdfast.launch.warm"]
            argv += ["--control", str(theirs.fileno()), "--launcher", str(os.getpid())]
            argv += ["--bare"] if self._quick_deaths >= _QUICK_DEATHS_MAX else []
            try:
                self.pid = os.posix_spawn(sys.executable, argv, os.environ, setsid=True)
            except OSError:
                ours.close()
                raise
        ours.setblocking(False)
        self._control, self._started, self._ready = ours, time.monotonic(), False
        asyncio.get_running_loop().add_reader(ours.fileno(), self._read)

    def learn(self, modules: dict[str, str]) -> None:
        """Scripts import these: have them preloaded, once nothing new has come for a while."""
        new = {name: origin for name, origin in modules.items() if name not in self._learned}
        if new:  # a script that starts again and again puts nothing off
            self._learned.update(new)
            self._teach_in(_LESSON_PAUSE_S)

    def _teach_in(self, pause_s: float) -> None:
        if self._lesson is not None:
            self._lesson.cancel()
        self._lesson = asyncio.get_running_loop().call_later(pause_s, self._teach)

    def _teach(self) -> None:
        new = {name: origin for name, origin in self._learned.items() if name not in self._known}
        new = dict(list(new.items())[:_LESSON_MAX])
        bare = self._quick_deaths >= _QUICK_DEATHS_MAX
        if not new or bare or self._taking or not self._ready or self._control is None:
            return
        try:
            self._control.send(json.dumps({"preload": new}).encode())
        except (BlockingIOError, ConnectionError):
            return
        self._taking = new
        self._known |= set(new)

    def _taught(self, spoilt: str) -> None:
        """It has what it was to import. `spoilt`: what it must not have; then another takes its place."""
        taken, self._taking = self._taking, {}
        if spoilt:
            log.info("%s is not preloaded: forked interpreters could not use it", spoilt)
            del self._learned[spoilt]
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        elif taken:
            log.info("preloaded for the next start: %s", ", ".join(sorted(taken)))
            self._teach_in(0)

    def fork(self, request: Request) -> None:
        """Have a member forked, now or once the zygote is ready."""
        self._waiting[request.member] = request
        if self._ready:
            self._send(request)

    def forget(self, member: str) -> None:
        """The member is known to be forked, or is wanted no more."""
        request = self._waiting.pop(member, None)
        if request is not None:
            request.close()

    def ended(self) -> None:
        """The process died: start another. What was asked for and not yet forked is asked for again."""
        self._close_control()
        self.pid = 0
        for name in self._taking:  # it may have died of one of them: none is tried again
            self._learned.pop(name, None)
        self._taking, self._known = {}, set()
        quick = time.monotonic() - self._started < _QUICK_DEATH_S
        self._quick_deaths = self._quick_deaths + 1 if quick else 0
        pause_s = _RESTART_PAUSE_S if quick and self._quick_deaths > 1 else 0.0
        self._start_in(pause_s)

    def _start_in(self, pause_s: float) -> None:
        self._restart = asyncio.get_running_loop().call_later(pause_s, self._start_again)

    def _start_again(self) -> None:
        try:
            self.start()
        except OSError as error:  # no process or descriptor to be had now
            log.error("the zygote cannot be started, and is tried again: %s", error)
            self._start_in(_RESTART_PAUSE_S)

    def close(self) -> None:
        """Forget everything. The process ends when its socket does, or is killed by the caller."""
        for timer in (self._restart, self._lesson):
            if timer is not None:
                timer.cancel()
        self._close_control()
        for member in list(self._waiting):
            self.forget(member)

    def _close_control(self) -> None:
        if self._control is not None:
            asyncio.get_running_loop().remove_reader(self._control.fileno())
            self._control.close()
        self._control, self._ready = None, False

    def _send(self, request: Request) -> None:
        assert self._control is not None
        packet = json.dumps({"member": request.member}).encode()
        descriptors = [request.control.fileno(), request.log]
        try:
            socket.send_fds(self._control, [packet], descriptors)
        except BlockingIOError:  # hundreds are queued: try again when it has worked some off
            asyncio.get_running_loop().call_later(0.05, self._resend, request.member)
        except ConnectionError:
            return  # it died; `ended` follows, and sends again

    def _resend(self, member: str) -> None:
        request = self._waiting.get(member)
        if request is not None and self._ready:
            self._send(request)

    def _read(self) -> None:
        assert self._control is not None
        try:
            data = self._control.recv(_PACKET_BYTES_MAX)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._control.fileno())
            return
        self._heard(json.loads(data))

    def _heard(self, message: dict[str, Any]) -> None:
        if message["op"] == "ready":
            self._ready = True
            for request in list(self._waiting.values()):
                self._send(request)
            self._teach_in(0)
        elif message["op"] == "preloaded":
            self._taught(message["spoilt"])
            return
        else:
            self.forget(message["member"])
        self._told(message)
