"""Checkpoints that the script asks for: a handle for each, which is told what became of it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from holdfast.errors import SessionError
from holdfast.snapshots import keeping

if TYPE_CHECKING:
    from holdfast.ipc.frames import Message
    from holdfast.reentry.agent_client import Gate
    from holdfast.session import Session

_OUTCOMES = ("committed", "skipped", "failed")
_ROOM_WAIT_S = 10.0
"""How long a forced snapshot waits for a slot: the others must have theirs, and an upload its bytes."""


class CheckpointHandle:
    """What became of a checkpoint that was asked for. `outcome`: "" while that is open, then committed,
    skipped or failed; `reason` says why, or what was made; `checkpoint` is the id of a committed one."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._setting = threading.Lock()
        self.request = ""
        self.generation = session.generation
        self.outcome = self.reason = self.checkpoint = ""

    def wait(self, timeout_s: float | None = None) -> str:
        """Block until the outcome is known or the time is over; the outcome. Raises SessionError when it is
        asked within the very step whose end the checkpoint waits for."""
        if not self.request and not self.outcome:
            raise SessionError(
                "the checkpoint is made when the step that asked for it is complete: wait after that, or ask "
                "for it between steps"
            )
        gate = self._session._gate
        if gate is not None and not self.outcome:
            gate.wait(lambda orders: self.outcome or orders.interrupted >= self.generation, timeout_s)
            if not self.outcome and gate.interrupted(self.generation):
                self.resolve("failed", _ended(self.generation))
        return self.outcome

    def resolve(self, outcome: str, reason: str = "", checkpoint: str = "") -> None:
        """Set the outcome; the first one stays."""
        with self._setting:
            if not self.outcome:
                self.reason, self.checkpoint, self.outcome = reason, checkpoint, outcome

    def told(self, message: Message) -> None:
        """The agent's word. From the gate's thread."""
        outcome = str(message.get("outcome"))
        reason, checkpoint = str(message.get("reason", "")), str(message.get("checkpoint", ""))
        if outcome not in _OUTCOMES:
            outcome, reason = "failed", f"the agent says {outcome!r:.80}, which is no outcome: {reason}"
        self.resolve(outcome, reason, checkpoint)


class Asking:
    """The checkpoints asked for in one generation and not yet told of."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._waiting: list[CheckpointHandle] = []  # for the end of the step
        self._open: list[CheckpointHandle] = []
        self._count = 0

    def ask(self, *, now: bool) -> CheckpointHandle:
        """A new handle; its checkpoint is made now or at the end of the step."""
        handle = CheckpointHandle(self._session)
        if self._session._gate is None:
            handle.resolve("skipped", "no agent: this process was not started by Holdfast")
        elif not self._session._tracked.objects:
            handle.resolve("skipped", "nothing is tracked")
        else:
            self._waiting.append(handle)
            if now:
                self.step_ended()
        return handle

    @property
    def due(self) -> bool:
        """Whether a snapshot is wanted at the end of this step."""
        return bool(self._waiting)

    def step_ended(self) -> None:
        """Make the snapshot and have it made durable."""
        session, gate = self._session, self._session._gate
        assert gate is not None
        waiting, self._waiting = self._waiting, []
        reason = _snapshot(session, gate)
        self._open = [handle for handle in self._open if not handle.outcome]
        for handle in waiting:
            self._count += 1
            handle.request = f"{session._generation}.{session._completed}.{self._count}"
            if reason:
                handle.resolve("skipped", reason)
            else:
                self._say(handle, gate)
        if reason:
            keeping.skipped(session, gate, reason)

    def end(self, reason: str = "") -> None:
        """The generation is over: what is open will not be told of."""
        session = self._session
        for handle in (*self._waiting, *self._open):
            handle.resolve("failed", reason or _ended(handle.generation))
            if session._gate is not None:
                session._gate.give_up(handle.request)
        self._waiting, self._open = [], []

    def _say(self, handle: CheckpointHandle, gate: Gate) -> None:
        session = self._session
        self._open.append(handle)
        message = {
            "op": "checkpoint",
            "request": handle.request,
            "step": session._completed,
            "generation": session._generation,
        }
        gate.ask(message, handle.told)


def _snapshot(session: Session, gate: Gate) -> str:
    """A snapshot of this very step, if there is none yet: "" or why not. Waits a while for the room."""
    if session._made == (session._completed, session._generation):
        return ""
    reason = keeping.snapshot(session, gate)
    if reason and gate.orders.arena is None:
        keeping.ask_for_room(session, gate, forced=True)
    return keeping.insist(session, gate, reason, _ROOM_WAIT_S) if reason else ""


def _ended(generation: int) -> str:
    return f"generation {generation} ended before the checkpoint was committed"
