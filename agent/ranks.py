"""What ranks say at the gate, and what becomes of it: a table from op to handler."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

from agent.forms import seat_of
from agent.gate import BadMessage, integer, number, text
from agent.members import survey
from controlplane.core import events
from controlplane.core.model import WHOLE_STATE, Cause, Failure, MemberPhase

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.frames import Message
    from agent.members import Member
    from agent.node import Node

_REPORTED_MAX = 32
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_ASKS_MAX = 64
_REQUEST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,119}")
_TEXT_MAX = 64_000
"""Characters of a traceback that travel on to the coordinator."""
_ALIVE_PHASES = (
    MemberPhase.STARTING,
    MemberPhase.READY,
    MemberPhase.FORMING,
    MemberPhase.RUNNING,
    MemberPhase.FINISHED,
)
FAULT_KINDS = ("nan", "user")
log = logging.getLogger("holdfast.agent.ranks")


class Ranks:
    """The handlers of the ranks' messages."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._ops: dict[str, Callable[[Member, Message], None]] = {
            "beat": self._beat,
            "tracked": self._tracked,
            "ready": self._ready,
            "forming": self._forming,
            "running": self._running,
            "started": self._started,
            "broken": self._broken,
            "snapshot": self._snapshot,
            "checkpoint": self._checkpoint,
            "snapshot_skipped": self._snapshot_skipped,
            "finished": self._finished,
            "raised": self._raised,
            "report": self._report,
            "restore_failed": self._restore_failed,
            "standing": node.stacks.standing,
            "fault": self._fault,
        }

    def hear(self, member: Member, message: Message) -> None:
        """Take one message. Raises BadMessage."""
        handler = self._ops.get(str(message.get("op")))
        if handler is None:
            raise BadMessage(f"unknown op {message.get('op')!r:.80}")
        if member.alive:
            handler(member, message)

    def greet(self, member: Member, message: Message) -> list[Message]:
        """Take a hello; the answer is what the rank may have missed. Raises BadMessage."""
        phase, generation = _phase(message), integer(message, "generation")
        changes: dict[str, Any] = {
            "elastic": True,
            "store": text(message, "store", member.status.store),
            "step": integer(message, "step"),
            "held_step": integer(message, "held_step"),
            "held_generation": _held_in(message),
        }
        if member.status.phase != MemberPhase.RAISED:
            changes["phase"] = phase
        member.formed = max(member.formed, generation)
        if generation > 0:
            changes["generation"] = generation
        self._node.members.update(member, **changes)
        return self._missed(member)

    def _missed(self, member: Member) -> list[Message]:
        """Levels, whatever the rank is doing: one that has finished must hear of an interrupt, too."""
        if member.complete is not None:
            return [member.complete]
        missed: list[Message] = []
        if member.form is not None and member.form.number > max(member.formed, member.interrupt):
            missed = [self._node.form_message(member, member.form)]
        elif member.interrupt > 0 and member.interrupt >= member.formed:
            missed = [interrupt_message(member)]
        return [*missed, member.release] if member.release is not None else missed

    def _beat(self, member: Member, message: Message) -> None:
        """Its phase came with the message that changed it: a beat may be older than that."""
        self._node.members.note(member, step=integer(message, "step"))

    def _tracked(self, member: Member, message: Message) -> None:
        needed, shard = integer(message, "bytes"), text(message, "shard", WHOLE_STATE)
        if not _WORD.fullmatch(shard):
            raise BadMessage(f"tracked: shard {shard!r:.80} is no word of letters and digits")
        self._node.members.update(member, state_bytes=needed, shard=shard)
        self._node.arenas.ask(member, needed)

    def _ready(self, member: Member, message: Message) -> None:
        self._node.members.update(
            member,
            phase=MemberPhase.READY,
            held_step=integer(message, "held_step"),
            held_generation=_held_in(message),
            step=integer(message, "step"),
            generation=max(member.status.generation, integer(message, "generation")),
        )

    def _forming(self, member: Member, message: Message) -> None:
        generation = integer(message, "generation")
        member.formed = max(member.formed, generation)
        form = member.form
        changes: dict[str, Any] = {"phase": MemberPhase.FORMING, "generation": generation}
        if form is not None and form.number == generation:
            changes["rank"] = seat_of(member, form).rank
            if form.world_size != member.world_size > 0:
                changes["shard"] = ""  # of state in shards it holds another part from now on, and will say so
            member.world_size = form.world_size
        self._node.members.update(member, **changes)

    def _running(self, member: Member, message: Message) -> None:
        self._node.members.update(
            member,
            phase=MemberPhase.RUNNING,
            generation=integer(message, "generation"),
            step=integer(message, "step"),
        )

    def _started(self, member: Member, message: Message) -> None:
        node, status = self._node, member.status
        node.tell(
            events.MemberStarted(
                node.name,
                node.incarnation,
                member.name,
                status.job,
                integer(message, "generation"),
                integer(message, "step"),
                number(message, "form_s"),
                number(message, "restore_s"),
                number(message, "first_step_s"),
            )
        )

    def _broken(self, member: Member, message: Message) -> None:
        self._node.count("broken_collectives")
        log.info("%s: a collective broke: %.200s", member.name, message.get("message"))

    def _snapshot(self, member: Member, message: Message) -> None:
        node, step, generation = self._node, integer(message, "step"), integer(message, "generation")
        stall_s = number(message, "stall_s")
        survey(member)
        node.members.note(member, snapshot_step=step, snapshot_generation=generation)
        node.members.keep(member)
        node.tell(
            events.SnapshotReady(
                node.name, node.incarnation, member.name, member.status.job, generation, step, stall_s
            )
        )

    def _checkpoint(self, member: Member, message: Message) -> None:
        """Said again after a reconnect: what was told already is told again, the rest asked again."""
        node, request = self._node, text(message, "request")
        if not _REQUEST.fullmatch(request):
            raise BadMessage(f"checkpoint: request {request!r:.80} must be 1 to 120 letters, digits, . _ - :")
        step, generation = integer(message, "step"), integer(message, "generation")
        if request in member.told:
            node.gate.push(member.name, member.told[request])
            return
        asked = events.CheckpointAsked(
            node.name, node.incarnation, member.status.job, member.name, generation, step, request
        )
        member.asks[request] = asked
        while len(member.asks) > _ASKS_MAX:
            del member.asks[next(iter(member.asks))]
        node.tell(asked)

    def _snapshot_skipped(self, member: Member, message: Message) -> None:
        self._node.count("snapshots_skipped")
        log.info("%s skipped a snapshot: %.200s", member.name, message.get("reason"))

    def _finished(self, member: Member, message: Message) -> None:
        step = integer(message, "step")
        self._node.members.update(
            member,
            phase=MemberPhase.FINISHED,
            generation=integer(message, "generation"),
            step=step,
            held_step=step,
            held_generation=integer(message, "generation"),
        )

    def _raised(self, member: Member, message: Message) -> None:
        failure = Failure(
            Cause.RAISED,
            f"{text(message, 'exception')}: {text(message, 'message')}"[:2000],
            step=integer(message, "step") if "step" in message else member.step(),
            exception=text(message, "exception")[:200],
            traceback=text(message, "traceback", "")[-_TEXT_MAX:],
        )
        self._node.conceal(member, failure.traceback)
        if member.status.failure is None:
            self._node.members.update(member, phase=MemberPhase.RAISED, failure=failure)

    def _report(self, member: Member, message: Message) -> None:
        values = message.get("values")
        if not isinstance(values, dict):
            raise BadMessage("report: values must map names to numbers")
        for name, value in list(values.items())[:_REPORTED_MAX]:
            known = name in member.reported or len(member.reported) < _REPORTED_MAX
            if known and (type(value) is float or (type(value) is int and abs(value) < 1 << 62)):
                member.reported[name] = float(value)
        self._node.members.note(member, step=integer(message, "step"))

    def _fault(self, member: Member, message: Message) -> None:
        node, kind = self._node, text(message, "kind")
        if kind not in FAULT_KINDS:
            raise BadMessage(f"fault: kind {kind!r:.80} is none of {', '.join(FAULT_KINDS)}")
        node.count("faults")
        node.tell(
            events.UserFault(
                node.name,
                node.incarnation,
                member.status.job,
                member.name,
                integer(message, "generation"),
                integer(message, "step"),
                kind,
                text(message, "reason")[:2000],
                message.get("rollback") is True,
            )
        )

    def _restore_failed(self, member: Member, message: Message) -> None:
        reason = f"state could not be put in place: {text(message, 'reason')}"
        log.error("%s: %s", member.name, reason)
        self._node.order_failed(member.status.job, member.name, Failure(Cause.STUCK, reason[:2000]))


def interrupt_message(member: Member) -> Message:
    """The frame that has a member leave the newest generation it is to leave."""
    return {
        "op": "interrupt",
        "generation": member.interrupt,
        "reason": member.interrupt_reason,
        "incident": member.incident,
    }


def _held_in(message: Message) -> int:
    """The generation of its state; 0 when an older SDK does not tell. Raises BadMessage."""
    return integer(message, "held_generation") if "held_generation" in message else 0


def _phase(message: Message) -> MemberPhase:
    word = message.get("phase")
    for phase in _ALIVE_PHASES:
        if phase.value == word:
            return phase
    known = ", ".join(phase.value for phase in _ALIVE_PHASES)
    raise BadMessage(f"{message.get('op')}: phase {word!r:.80} is none of {known}")
