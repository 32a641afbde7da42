"""Keep the zygote alive, ask it to fork members, and teach it what scripts import: the launcher's end.

The zygote may die at any time. Requests that it has not answered are sent again to the next one. Libraries
that scripts import are preloaded for later starts. If a lesson kills the zygote or takes too long, none of
its modules is tried again. A module that spoils it (starts a thread, reads a rank's variables) is refused
alone."""

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

from holdfast.ipc import traces
from holdfast.launch.script import HASHING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_PACKET_BYTES_MAX = 64 << 10
_QUICK_DEATH_S = 5.0
_RESTART_PAUSE_S = 1.0
log = logging.getLogger("holdfast.launcher")
# Seconds without new imports before the zygote is taught; the longest time for a lesson.
_LESSON_PAUSE_S = 1.0
_LESSON_MAX_S = 60.0
_LESSON_MAX = 100
"""Modules in one packet to the zygote, at most."""
_FORK_MAX_S = 10.0
"""A process that is asked to fork, and learns nothing, may be silent so long; a fork takes milliseconds."""
_QUICK_DEATHS_MAX = 3
"""After so many deaths right after the start, imports are to blame: the next zygote preloads nothing."""


@dataclass(slots=True)
class ForkRequest:
    """A member to be forked, with its end of the control socket and its log, both passed to the zygote."""

    member: str
    control: socket.socket
    log: int
    sent_at: float = field(default=0.0)
    """When the present process was asked for it (s, monotonic); 0: not yet."""

    def close(self) -> None:
        """Close both: they were passed on, or never will be."""
        if self.log >= 0:
            self.control.close()
            os.close(self.log)
            self.log = -1


class Zygote:
    """Forks members. `receive` is called with its messages: ready, forked, failed."""

    def __init__(self, receive: Callable[[dict[str, Any]], None]) -> None:
        self._receive = receive
        self._waiting: dict[str, ForkRequest] = {}
        self._control: socket.socket | None = None
        self._ready = False
        self._quick_deaths = 0
        self._started = 0.0
        self._restart: asyncio.TimerHandle | None = None
        self.pid = 0
        self._learned: dict[str, str] = {}  # from scripts: libraries to preload, with their files
        self._refused: set[str] = set()  # libraries that must not be preloaded
        self._changed: set[str] = set()  # variables that scripts set before they import
        self._known: set[str] = set()  # what the present process has been taught
        self._taking: dict[str, str] = {}
        self._replaced = False  # the present process was killed to be replaced
        self._lesson: asyncio.TimerHandle | None = None
        self._limit: asyncio.TimerHandle | None = None  # ends a lesson that takes too long
        self._heard = 0.0  # when the present process has said something (s, monotonic)
        self._look: asyncio.TimerHandle | None = None  # whether it answers

    def start(self) -> None:
        """Start the process. Requests wait until it sends `ready`. Raises OSError."""
        self._restart = None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            os.set_inheritable(theirs.fileno(), True)
            argv = [sys.executable, "-P", "-m", "holdfast.launch.warm"]
            argv += ["--control", str(theirs.fileno()), "--launcher", str(os.getpid())]
            argv += ["--bare"] if self._quick_deaths >= _QUICK_DEATHS_MAX else []
            try:
                self.pid = os.posix_spawn(sys.executable, argv, HASHING | os.environ, setsid=True)
            except OSError:
                ours.close()
                raise
        ours.setblocking(False)
        self._control, self._started, self._ready = ours, time.monotonic(), False
        asyncio.get_running_loop().add_reader(ours.fileno(), self._read)

    def take_report(self, message: dict[str, Any]) -> None:
        """Take a member's report of its script's imports, or of a variable that was set too late."""
        if message["op"] == "imported":
            self._learn(message["modules"], message["changed"])
        else:
            self._late(message["variable"])

    def _learn(self, modules: dict[str, str], changed: Sequence[str]) -> None:
        """Preload what scripts import, once nothing new has come for a while.

        `changed`: variables that the script had set before."""
        self._changed.update(changed)
        known = self._learned.keys() | self._refused
        new = {name: origin for name, origin in modules.items() if name not in known}
        if new:  # a script that restarts brings nothing new, and postpones no lesson
            self._learned.update(new)
            self._teach_in(_LESSON_PAUSE_S)

    def _late(self, variable: str) -> None:
        """A script has set this variable after a preloaded library had read it."""
        if variable not in self._changed:
            self._changed.add(variable)
            self._replace()

    def _replace(self) -> None:
        """Replace the process: its imports cannot be undone."""
        self._replaced = True
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

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
            self._control.send(json.dumps({"preload": new, "changed": sorted(self._changed)}).encode())
        except (BlockingIOError, ConnectionError):
            return
        self._taking = new
        self._limit = asyncio.get_running_loop().call_later(_LESSON_MAX_S, self._too_long, self.pid)
        self._known |= set(new)

    def _too_long(self, pid: int) -> None:
        """Stop an import for which members wait. `ended` refuses all modules of this lesson."""
        if self._taking and pid == self.pid:
            log.warning("importing %s takes too long: it is not preloaded", ", ".join(sorted(self._taking)))
            self._replace()

    def _taught(self, spoilt: str) -> None:
        """The lesson is over. `spoilt`: a module that must not be preloaded; then the process is replaced."""
        taken, self._taking = self._taking, {}
        if self._limit is not None:
            self._limit.cancel()
        if spoilt:
            log.info("%s is not preloaded: forked interpreters could not use it", spoilt)
            self._refuse(spoilt)
            self._replace()
        elif taken:
            log.info("preloaded for the next start: %s", ", ".join(sorted(taken)))
            self._teach_in(0)

    def _refuse(self, *names: str) -> None:
        self._refused.update(names)
        for name in names:
            self._learned.pop(name, None)

    def fork(self, request: ForkRequest) -> None:
        """Have a member forked, now or once the zygote is ready."""
        self._waiting[request.member] = request
        if self._ready:
            self._send(request)

    def forget(self, member: str) -> None:
        """Drop a request: the member was forked, or is not wanted any more."""
        request = self._waiting.pop(member, None)
        if request is not None:
            request.close()

    def ended(self) -> None:
        """The process has ended: start another. Requests that it did not answer are sent again."""
        self._close_control()
        self.pid = 0
        self._refuse(*self._taking)  # one of them may have killed it: none is tried again
        self._taking, self._known = {}, set()
        quick = not self._replaced and time.monotonic() - self._started < _QUICK_DEATH_S
        self._replaced = False
        self._quick_deaths = self._quick_deaths + 1 if quick else 0
        pause_s = _RESTART_PAUSE_S if quick and self._quick_deaths > 1 else 0.0
        self._start_in(pause_s)

    def _start_in(self, pause_s: float) -> None:
        self._restart = asyncio.get_running_loop().call_later(pause_s, self._start_again)

    def _start_again(self) -> None:
        try:
            self.start()
        except OSError as error:  # no process or descriptor is free now
            log.error("the zygote cannot be started, trying again: %s", error)
            self._start_in(_RESTART_PAUSE_S)

    def close(self) -> None:
        """Drop everything. The process ends with its socket, or the caller kills it."""
        for timer in (self._restart, self._lesson, self._limit, self._look):
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

    def _send(self, request: ForkRequest) -> None:
        assert self._control is not None
        packet = json.dumps({"member": request.member}).encode()
        descriptors = [request.control.fileno(), request.log]
        try:
            socket.send_fds(self._control, [packet], descriptors)
            request.sent_at = time.monotonic()
            self._look_in(_FORK_MAX_S)
        except BlockingIOError:  # hundreds are queued: try again later
            asyncio.get_running_loop().call_later(0.05, self._resend, request.member)
        except ConnectionError:
            return  # it died; `ended` follows, and sends this again

    def _look_in(self, pause_s: float) -> None:
        if self._look is None:
            self._look = asyncio.get_running_loop().call_later(pause_s, self._look_now)

    def _look_now(self) -> None:
        """Replace a process that does not answer (it is stopped, say): members would wait for it for ever."""
        self._look = None
        asked = [request.sent_at for request in self._waiting.values() if request.sent_at > self._started]
        if not asked or not self._ready:
            return
        silent_s = time.monotonic() - max(self._heard, min(asked))
        if self._taking or silent_s < _FORK_MAX_S:
            self._look_in(max(_FORK_MAX_S - silent_s, 1.0))
            return
        how = traces.process_state(self.pid) or "it is gone"
        names = ", ".join(sorted(self._waiting))
        text = f"the zygote has not forked {names} for {silent_s:.0f} s: {how}; another one is started"
        self._receive({"op": "silent", "notes": [text]})
        self._replace()

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
        self._handle(json.loads(data))

    def _handle(self, message: dict[str, Any]) -> None:
        self._heard = time.monotonic()
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
        self._receive(message)
