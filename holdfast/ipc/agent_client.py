"""Connect a rank to its agent, from a daemon thread that keeps running while training blocks.

Whatever happens to the agent, training goes on. The thread reconnects for ever. Messages that must not get
lost are kept, the newest of each kind (`keep`), and sent again to the agent that comes back. An interrupt
must end a collective that blocks the main thread, so this thread breaks the groups itself (`sever`), again
and again until that is done."""

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
from holdfast.ipc.messages import agent as agent_msg
from holdfast.ipc.messages import rank as rank_msg
from holdfast.ipc.messages.profiles import Profiled, ProfileTaken

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("holdfast.sdk")
_PAUSE_S = 0.2  # seconds between attempts to reach an agent
_SWEEP_S = 0.02  # seconds between attempts to break a generation's groups
_BACKLOG_BYTES = 1 << 20  # with more unsent bytes the connection is closed and made again


class AgentOrders:
    """What the agent wants, as levels: the newest of each kind. Guarded by the client's condition."""

    def __init__(self) -> None:
        self.interrupted = 0  # generations up to this one are broken; 0: none
        self.reason = ""
        self.halted = 0  # generations up to this one end at the next step boundary; 0: none
        # For generations up to this one, a snapshot is wanted of the state at their end; 0: none.
        self.keep = 0
        self.form: formation.Formation | None = None
        self.arena: agent_msg.ArenaMade | agent_msg.ArenaFailed | None = None
        self.released_step = -1
        self.void_step = -1
        self.kept_from = 0  # snapshots before this step need not be kept for a checkpoint
        self.returned = 0  # the generation in which the elastic function is over on all ranks; 0: none
        self.complete: agent_msg.Complete | None = None
        self.incident = ""  # of the newest interrupt or form; "" after its first step
        self.refused = ""


class AgentClient:
    """The connection to the agent.

    These functions run in its thread: `greet` makes the hello, `beat` the beat; `sever(generation)` breaks
    what the main thread may be blocked in, and returns whether to try again."""

    def __init__(
        self,
        path: str,
        greet: Callable[[], rank_msg.Hello],
        beat: Callable[[], rank_msg.Beat],
        sever: Callable[[int], bool],
    ) -> None:
        self.orders = AgentOrders()
        self.dropped = 0
        self.arena_taken: agent_msg.ArenaMade | None = None  # the answer whose arena is attached
        self.describe: Callable[[], list[dict[str, Any]]] = list  # returns how far the groups have come
        self.recorded: Callable[[int, int], str] = _no_record  # returns a generation's flight record
        self.profile: Callable[[agent_msg.Profile], str] = _no_profile  # notes a request, or says why not
        self._path, self._greet, self._beat, self._sever = path, greet, beat, sever
        self._changed = threading.Condition()
        self._kept: dict[str, rank_msg.RankMessage] = {}
        self._asked: dict[str, Callable[[agent_msg.CheckpointTold], None]] = {}
        self._outbox: deque[rank_msg.RankMessage] = deque()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._socket: socket.socket | None = None
        self._beat_interval_s = 1.0
        self._severing = False
        self._unsevered = 0  # the newest generation whose groups could not be severed at once
        self._closed = False
        self._owner = os.getpid()
        self._thread = threading.Thread(target=self._run, name="holdfast-agent-client", daemon=True)

    @property
    def owner(self) -> int:
        """The pid of the process that made it; it does nothing in a forked child."""
        return self._owner

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def send(self, message: rank_msg.RankMessage, *, keep: bool = False) -> None:
        """Send a message once connected; never blocks.

        `keep`: send it again after every reconnect, until `forget` or a newer message of its kind."""
        if os.getpid() != self._owner or self._closed:
            return
        with self._changed:
            if keep:
                self._kept.pop(_key(message), None)
                self._kept[_key(message)] = message  # keep the order of sending
            self._outbox.append(message)
        os.eventfd_write(self._wake, 1)

    def forget(self, op: str) -> None:
        """Drop a kept message that is no longer true."""
        with self._changed:
            self._kept.pop(op, None)

    def ask(self, message: rank_msg.Checkpoint, answered: Callable[[agent_msg.CheckpointTold], None]) -> None:
        """Send a request, again after every reconnect until its answer has come.

        `answered` runs in the client's thread."""
        with self._changed:
            self._asked[message.request] = answered
        self.send(message, keep=True)

    def give_up(self, request: str) -> None:
        """Drop a request: its answer is not wanted any more."""
        with self._changed:
            self._asked.pop(request, None)
            self._kept.pop(f"checkpoint {request}", None)
            self._changed.notify_all()

    def wait(self, ready: Callable[[AgentOrders], Any], timeout_s: float | None = None) -> Any:
        """Block until `ready(orders)` is true or `timeout_s` seconds are over. Returns its last value."""
        with self._changed:
            return self._changed.wait_for(lambda: ready(self.orders), timeout_s)

    def interrupted(self, generation: int) -> bool:
        """Whether this generation is known to be broken."""
        return self.orders.interrupted >= generation

    def halted(self, generation: int) -> bool:
        """Whether this generation is to end at the next step boundary."""
        return self.orders.halted >= generation > 0

    def keeps(self, generation: int) -> bool:
        """Whether a snapshot is wanted of the state at this generation's end."""
        return self.orders.keep >= generation > 0

    def close(self) -> None:
        """End the thread. Waiting messages are sent first if the agent takes them."""
        if os.getpid() != self._owner:
            return
        self._closed = True
        os.eventfd_write(self._wake, 1)
        self._thread.join(1.0)

    def neutralise(self) -> None:
        """In a forked child: close the connection, which is the parent's."""
        self._closed = True
        self._changed = threading.Condition()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def inodes(self) -> set[int]:
        """The sockets of this connection, so that they are not taken for a peer's."""
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
            with contextlib.suppress(OSError):  # no agent is listening
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
        """After a reconnect, queue the kept messages again, then the waiting ones, in the order of first
        sending.

        A waiting message is dropped if a newer one of its kind is kept."""
        with self._changed:
            waiting = [m for m in self._outbox if self._kept.get(_key(m), m) is m]
            wait = {id(message) for message in waiting}
            self._outbox = deque([m for m in self._kept.values() if id(m) not in wait] + waiting)

    def _fill(self, unsent: bytearray, next_beat: float) -> float:
        while self._outbox:
            unsent += encode(self._outbox.popleft().encode())
        if len(unsent) > _BACKLOG_BYTES:
            raise ConnectionError("the agent does not read its messages")
        now = time.monotonic()
        if now < next_beat:
            return next_beat
        if not unsent:  # else it does not read, and needs no further beat
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
        """Read what has come. False if the connection has ended."""
        try:
            data = connection.recv(1 << 16)
        except BlockingIOError:
            return True
        for message in decoder.feed(data) if data else ():
            self._take(message)
        return bool(data) and not self.orders.refused

    def _take(self, message: Message) -> None:
        try:
            order = agent_msg.from_agent(message)
            with self._changed:
                _HANDLERS[type(order)](self, order)
                self._changed.notify_all()
        except (LookupError, TypeError, ValueError):  # no message may end this thread, whatever is in it
            self.dropped += 1
        self._sweep()

    def _sweep(self) -> None:
        """Break the groups of interrupted generations, if there are any."""
        if not self.orders.interrupted:
            return
        try:
            self._severing = self._sever(self.orders.interrupted)
        except OSError:  # no descriptor is free: try again
            self._severing = True
        except RuntimeError:  # torch could not abort a group: this thread must keep listening to the agent
            if self._unsevered < self.orders.interrupted:
                self._unsevered = self.orders.interrupted
                log.exception("the groups of generation %d cannot be severed yet", self._unsevered)
            self._severing = True

    def _on_welcome(self, welcome: agent_msg.Welcome) -> None:
        self._beat_interval_s = welcome.beat_interval_s
        self._welcomed = True

    def _on_refused(self, refused: agent_msg.Refused) -> None:
        self.orders.refused = refused.reason

    def _on_arena(self, arena: agent_msg.ArenaMade | agent_msg.ArenaFailed) -> None:
        self.orders.arena = arena

    def _note_incident(self, generation: int, incident: str) -> None:
        if generation >= max(self.orders.interrupted, self.orders.halted):
            self.orders.incident = incident

    def _on_halt(self, halt: agent_msg.Halt) -> None:
        self._note_incident(halt.generation, halt.incident)
        self.orders.halted = max(self.orders.halted, halt.generation)
        if halt.keep:
            self.orders.keep = max(self.orders.keep, halt.generation)

    def _on_interrupt(self, interrupt: agent_msg.Interrupt) -> None:
        self._note_incident(interrupt.generation, interrupt.incident)
        if interrupt.generation > self.orders.interrupted:
            self.orders.interrupted, self.orders.reason = interrupt.generation, interrupt.reason

    def _on_form(self, form: agent_msg.Form) -> None:
        formed = formation.parse(form.encode())
        newest = self.orders.form
        if newest is None or formed.number > newest.number:
            # After a roll back, releases of later steps are not valid any more.
            self.orders.released_step = min(self.orders.released_step, formed.resume.step)
            self.orders.void_step, self.orders.kept_from = -1, 0
        if newest is None or formed.number >= newest.number:
            self.orders.form, self.orders.incident = formed, form.incident

    def _on_release(self, release: agent_msg.Release) -> None:
        if release.step >= self.orders.released_step:
            self.orders.released_step, self.orders.kept_from = release.step, release.kept_from
        self.orders.void_step = max(self.orders.void_step, release.void)

    def _on_checkpoint_answer(self, answer: agent_msg.CheckpointTold) -> None:
        answered = self._asked.pop(answer.request, None)
        self._kept.pop(f"checkpoint {answer.request}", None)
        if answered is not None:
            answered(answer)

    def _on_report_groups(self, order: agent_msg.ReportGroups) -> None:
        groups: tuple[rank_msg.Group, ...] = ()
        trouble = record = ""
        try:
            if order.record_bytes_max > 0:
                record = self.recorded(order.generation, order.record_bytes_max)
            groups = tuple(rank_msg.Group(**group) for group in self.describe())
        except Exception as error:  # torch's recorder may raise anything, and this thread must live
            trouble = repr(error)[:200]
        self._outbox.append(rank_msg.GroupProgress(order.round, groups, trouble, traces.others(), record))

    def _on_profile(self, order: agent_msg.Profile) -> None:
        reason = self.profile(order)
        refused = Profiled(order.request, order.generation, reason)
        self._outbox.append(refused if reason else ProfileTaken(order.request))

    def _on_return(self, over: agent_msg.Return) -> None:
        self.orders.returned = max(self.orders.returned, over.generation)

    def _on_complete(self, complete: agent_msg.Complete) -> None:
        self.orders.complete = complete


def _no_record(_generation: int, _bytes_max: int) -> str:
    return ""


def _no_profile(_order: agent_msg.Profile) -> str:
    return "this process trains no steps that could be profiled"


def _key(message: rank_msg.RankMessage) -> str:
    """Under which key a message is kept: the newest of each kind, but every request."""
    return f"{message.op} {message.request}" if isinstance(message, rank_msg.Checkpoint) else message.op


_HANDLERS: dict[type[agent_msg.AgentMessage], Callable[[AgentClient, Any], None]] = {
    agent_msg.Welcome: AgentClient._on_welcome,
    agent_msg.Refused: AgentClient._on_refused,
    agent_msg.ArenaMade: AgentClient._on_arena,
    agent_msg.ArenaFailed: AgentClient._on_arena,
    agent_msg.Interrupt: AgentClient._on_interrupt,
    agent_msg.Halt: AgentClient._on_halt,
    agent_msg.Form: AgentClient._on_form,
    agent_msg.Release: AgentClient._on_release,
    agent_msg.Return: AgentClient._on_return,
    agent_msg.Complete: AgentClient._on_complete,
    agent_msg.CheckpointTold: AgentClient._on_checkpoint_answer,
    agent_msg.ReportGroups: AgentClient._on_report_groups,
    agent_msg.Profile: AgentClient._on_profile,
}
