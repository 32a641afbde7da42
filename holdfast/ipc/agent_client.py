"""Connect a rank to its agent, from a daemon thread that goes on while training blocks.

Whatever happens to the agent, training goes on: the thread reconnects for ever, and messages that must not
get lost (the newest of each kind with `keep`) are sent again to the agent that comes back."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from holdfast.ipc import formation, traces
from holdfast.ipc.frames import FORM_BYTES_MAX, Decoder, FrameError, Message, encode
from holdfast.ipc.messages import agent as told
from holdfast.ipc.messages import rank as said

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("holdfast.sdk")
_PAUSE_S = 0.2  # between attempts to reach an agent that is away
_SWEEP_S = 0.02  # between looks at a generation that is to be broken
_BACKLOG_BYTES = 1 << 20  # unsent bytes after which the connection is given up and made anew


class Orders:
    """What the agent wants, as levels: the newest of each kind. Guarded by the client's condition."""

    def __init__(self) -> None:
        self.interrupted = 0  # generations up to this one are broken
        self.reason = ""
        self.halted = 0  # this generation ends at the next step boundary
        self.keep = 0  # and the state is to be kept in the arena then
        self.form: formation.Formation | None = None
        self.arena: told.ArenaMade | told.ArenaFailed | None = None
        self.released_step = -1
        self.void_step = -1
        self.returned = 0  # the elastic function of this generation is over on all ranks: return from it
        self.complete: told.Complete | None = None
        self.incident = ""  # that the newest interrupt or form is part of; over with its first step
        self.refused = ""


class AgentClient:
    """The connection to the agent. `greet` makes the hello, `beat` the beat, `sever(generation)` breaks
    what the main thread may be blocked in and returns whether to try again; all run in its thread."""

    def __init__(
        self,
        path: str,
        greet: Callable[[], said.Hello],
        beat: Callable[[], said.Beat],
        sever: Callable[[int], bool],
    ) -> None:
        self.orders = Orders()
        self.dropped = 0
        self.arena_taken: told.ArenaMade | None = None  # the answer whose arena is in use
        self.describe: Callable[[], list[dict[str, Any]]] = list  # the groups, when the agent asks
        self._path, self._greet, self._beat, self._sever = path, greet, beat, sever
        self._changed = threading.Condition()
        self._kept: dict[str, said.RankMessage] = {}
        self._asked: dict[str, Callable[[told.CheckpointTold], None]] = {}
        self._outbox: deque[said.RankMessage] = deque()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._socket: socket.socket | None = None
        self._beat_interval_s = 1.0
        self._severing = False
        self._unsevered = 0  # the newest generation whose groups could not be severed at once
        self._closed = False
        self._owner = os.getpid()
        self._thread = threading.Thread(target=self._run, name="holdfast-gate", daemon=True)

    @property
    def owner(self) -> int:
        """The process that made it; in a forked child it is of no use."""
        return self._owner

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def say(self, message: said.RankMessage, *, keep: bool = False) -> None:
        """Send when connected; never blocks. `keep`: sent again after every reconnect, until `forget`."""
        if os.getpid() != self._owner or self._closed:
            return
        with self._changed:
            if keep:
                self._kept.pop(_key(message), None)
                self._kept[_key(message)] = message  # in the order in which they were sent
            self._outbox.append(message)
        os.eventfd_write(self._wake, 1)

    def forget(self, op: str) -> None:
        """A kept message is no longer true."""
        with self._changed:
            self._kept.pop(op, None)

    def ask(self, message: said.Checkpoint, answered: Callable[[told.CheckpointTold], None]) -> None:
        """Send a request, again after every reconnect until its answer, which names it, has come.
        `answered` runs in the client's thread."""
        with self._changed:
            self._asked[message.request] = answered
        self.say(message, keep=True)

    def give_up(self, request: str) -> None:
        """No answer to this request is wanted any more."""
        with self._changed:
            self._asked.pop(request, None)
            self._kept.pop(f"checkpoint {request}", None)
            self._changed.notify_all()

    def wait(self, ready: Callable[[Orders], Any], timeout_s: float | None = None) -> Any:
        """Block until `ready(orders)` is true or the time is over; its last value."""
        with self._changed:
            return self._changed.wait_for(lambda: ready(self.orders), timeout_s)

    def interrupted(self, generation: int) -> bool:
        """Whether this generation is known to be broken."""
        return self.orders.interrupted >= generation

    def halted(self, generation: int) -> bool:
        """Whether this generation is to end at the next step boundary."""
        return self.orders.halted >= generation > 0

    def keeps(self, generation: int) -> bool:
        """Whether a snapshot is wanted of where this generation ends."""
        return self.orders.keep >= generation > 0

    def close(self) -> None:
        """End the thread; what waits is sent first if the agent takes it."""
        if os.getpid() != self._owner:
            return
        self._closed = True
        os.eventfd_write(self._wake, 1)
        self._thread.join(1.0)

    def neutralise(self) -> None:
        """In a forked child: let go of the connection, which is the parent's."""
        self._closed = True
        self._changed = threading.Condition()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def inodes(self) -> set[int]:
        """The sockets of this connection, so that nobody takes them for a peer's."""
        connection = self._socket
        if connection is None:
            return set()
        try:
            return {os.fstat(connection.fileno()).st_ino}
        except OSError:
            return set()

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        while not self._closed and not self.orders.refused:
            with contextlib.suppress(OSError):  # the agent is away
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                    connection.connect(self._path)
                    self._meet(connection)
            self._pause()

    def _meet(self, connection: socket.socket) -> None:
        self._socket = connection
        try:
            self._converse(connection)
        except (OSError, FrameError):
            self.dropped += 1
        finally:
            self._socket = None

    def _pause(self) -> None:
        deadline = time.monotonic() + _PAUSE_S
        while not self._closed and (left := deadline - time.monotonic()) > 0:
            self._sweep()
            time.sleep(min(left, _SWEEP_S) if self._severing else left)

    def _converse(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        decoder, unsent = Decoder(bytes_max=FORM_BYTES_MAX), bytearray(encode(self._greet().encode()))
        welcomed, next_beat = False, 0.0
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        poll.register(connection, select.POLLIN)
        while not self._closed or (welcomed and (unsent or self._outbox)):
            if welcomed:
                next_beat = self._fill(unsent, next_beat)
            self._flush(connection, unsent)
            poll.modify(connection, select.POLLIN | (select.POLLOUT if unsent else 0))
            for descriptor, _ in poll.poll(self._timeout_ms(next_beat if welcomed else None)):
                if descriptor == self._wake:
                    with contextlib.suppress(BlockingIOError):
                        os.eventfd_read(self._wake)
                elif not self._receive(connection, decoder):
                    return
            if not welcomed and self._welcomed:
                welcomed, next_beat = True, time.monotonic() + self._beat_interval_s
                self._welcomed = False
                self._repeat()
            self._sweep()

    _welcomed = False

    def _timeout_ms(self, next_beat: float | None) -> float:
        if self._severing:
            return _SWEEP_S * 1000
        until = self._beat_interval_s if next_beat is None else next_beat - time.monotonic()
        return max(until, 0) * 1000 + 1

    def _repeat(self) -> None:
        """A new connection: send kept messages again, then those that wait, in the order in which they were
        first sent. One that waits is left out where a newer one of its kind is kept."""
        with self._changed:
            waiting = [m for m in self._outbox if self._kept.get(_key(m), m) is m]
            wait = {id(message) for message in waiting}
            self._outbox = deque([m for m in self._kept.values() if id(m) not in wait] + waiting)

    def _fill(self, unsent: bytearray, next_beat: float) -> float:
        while self._outbox:
            unsent += encode(self._outbox.popleft().encode())
        if len(unsent) > _BACKLOG_BYTES:
            raise ConnectionError("the agent does not read")
        now = time.monotonic()
        if now < next_beat:
            return next_beat
        if not unsent:  # else it does not read: one more beat would tell it nothing
            unsent += encode(self._beat().encode())
        return now + self._beat_interval_s

    def _flush(self, connection: socket.socket, unsent: bytearray) -> None:
        while unsent:
            try:
                sent = connection.send(unsent, socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return
            del unsent[:sent]

    def _receive(self, connection: socket.socket, decoder: Decoder) -> bool:
        """Take what has come. False when the connection has ended."""
        try:
            data = connection.recv(1 << 16)
        except BlockingIOError:
            return True
        for message in decoder.feed(data) if data else ():
            self._hear(message)
        return bool(data) and not self.orders.refused

    def _hear(self, message: Message) -> None:
        try:
            heard = told.from_agent(message)
            with self._changed:
                _HANDLERS[type(heard)](self, heard)
                self._changed.notify_all()
        except (LookupError, TypeError, ValueError):  # it must not end this thread, whatever is in it
            self.dropped += 1
        self._sweep()

    def _sweep(self) -> None:
        if not self.orders.interrupted:
            return
        try:
            self._severing = self._sever(self.orders.interrupted)
        except OSError:  # no descriptor is left to look with: come again
            self._severing = True
        except RuntimeError:  # torch could not abort a group: this thread must go on hearing the agent
            if self._unsevered < self.orders.interrupted:
                self._unsevered = self.orders.interrupted
                log.exception("the groups of generation %d cannot be severed yet", self._unsevered)
            self._severing = True

    def _hear_welcome(self, welcome: told.Welcome) -> None:
        self._beat_interval_s = welcome.beat_interval_s
        self._welcomed = True

    def _hear_refused(self, refused: told.Refused) -> None:
        self.orders.refused = refused.reason

    def _hear_arena(self, arena: told.ArenaMade | told.ArenaFailed) -> None:
        self.orders.arena = arena

    def _note_incident(self, generation: int, incident: str) -> None:
        if generation >= max(self.orders.interrupted, self.orders.halted):
            self.orders.incident = incident

    def _hear_halt(self, halt: told.Halt) -> None:
        self._note_incident(halt.generation, halt.incident)
        self.orders.halted = max(self.orders.halted, halt.generation)
        if halt.keep:
            self.orders.keep = max(self.orders.keep, halt.generation)

    def _hear_interrupt(self, interrupt: told.Interrupt) -> None:
        self._note_incident(interrupt.generation, interrupt.incident)
        if interrupt.generation > self.orders.interrupted:
            self.orders.interrupted, self.orders.reason = interrupt.generation, interrupt.reason

    def _hear_form(self, form: told.Form) -> None:
        formed = formation.parse(form.encode())
        newest = self.orders.form
        if newest is None or formed.number > newest.number:
            # After a roll back, what was released of the steps to come is so no more.
            self.orders.released_step = min(self.orders.released_step, formed.resume.step)
            self.orders.void_step = -1
        if newest is None or formed.number >= newest.number:
            self.orders.form, self.orders.incident = formed, form.incident

    def _hear_release(self, release: told.Release) -> None:
        self.orders.released_step = max(self.orders.released_step, release.step)
        self.orders.void_step = max(self.orders.void_step, release.void)

    def _hear_told(self, answer: told.CheckpointTold) -> None:
        answered = self._asked.pop(answer.request, None)
        self._kept.pop(f"checkpoint {answer.request}", None)
        if answered is not None:
            answered(answer)

    def _hear_stand(self, stand: told.Stand) -> None:
        groups: tuple[said.Group, ...] = ()
        trouble = ""
        try:
            groups = tuple(said.Group(**group) for group in self.describe())
        except Exception as error:  # torch's recorder is none of our making, and this thread must live
            trouble = repr(error)[:200]
        self._outbox.append(said.Standing(stand.round, groups, trouble, traces.others()))

    def _hear_return(self, over: told.Return) -> None:
        self.orders.returned = max(self.orders.returned, over.generation)

    def _hear_complete(self, complete: told.Complete) -> None:
        self.orders.complete = complete


def _key(message: said.RankMessage) -> str:
    """Of one kind only the newest is kept; of requests, each."""
    return f"{message.op} {message.request}" if isinstance(message, said.Checkpoint) else message.op


_HANDLERS: dict[type[told.AgentMessage], Callable[[AgentClient, Any], None]] = {
    told.Welcome: AgentClient._hear_welcome,
    told.Refused: AgentClient._hear_refused,
    told.ArenaMade: AgentClient._hear_arena,
    told.ArenaFailed: AgentClient._hear_arena,
    told.Interrupt: AgentClient._hear_interrupt,
    told.Halt: AgentClient._hear_halt,
    told.Form: AgentClient._hear_form,
    told.Release: AgentClient._hear_release,
    told.Return: AgentClient._hear_return,
    told.Complete: AgentClient._hear_complete,
    told.CheckpointTold: AgentClient._hear_told,
    told.Stand: AgentClient._hear_stand,
}
