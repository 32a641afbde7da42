"""What ranks say at the gate, and what becomes of it: a table from op to handler."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from agent.deciding import effects as fx
from agent.deciding.fields import BadMessage, integer, number, text
from agent.deciding.member import interrupt_message, return_message, seat_of
from controlplane.core.records import events
from controlplane.core.records.model import WHOLE_STATE, Cause, Failure, MemberPhase

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.deciding.fields import Message
    from agent.deciding.member import Member
    from agent.deciding.node_state import Book

_REPORTED_MAX = 32
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_ASKS_MAX = 64
_REQUEST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,119}")
_STORE_MAX = 300
_ACTIVITY_MAX = 40
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


class Ranks:
    """The handlers of the ranks' messages."""

    def __init__(self, book: Book) -> None:
        self._book = book
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
            "fault": self._fault,
            "standing": self._standing,
        }

    def hear(self, member: Member, message: Message) -> None:
        """Take one message. Raises BadMessage."""
        handler = self._ops.get(str(message.get("op")))
        if handler is None:
            raise BadMessage(f"unknown op {message.get('op')!r:.80}")
        if member.alive:
            handler(member, message)

    def greet(self, member: Member, message: Message) -> None:
        """Take a hello; what the rank may have missed is said again. Raises BadMessage."""
        phase, generation = _phase(message), integer(message, "generation")
        changes: dict[str, Any] = {
            "elastic": True,
            "store": _store(message, member.status.store),
            "step": integer(message, "step"),
            "held_step": integer(message, "held_step"),
            "held_generation": _held_in(message),
            "ended_step": _ended(message),
        }
        if member.status.phase != MemberPhase.RAISED:
            changes["phase"] = phase
        if not member.status.elastic:
            changes["activity"] = ""  # what it wrote before it spoke tells nothing any more
        member.formed = max(member.formed, generation)
        if generation > 0:
            changes["generation"] = generation
        self._book.update(member, **changes)
        self._repeat(member)

    def _repeat(self, member: Member) -> None:
        """Levels, whatever the rank is doing: one that has finished must hear of an interrupt, too."""
        book = self._book
        if member.complete is not None:
            book.push(member, member.complete)
            return
        if member.form is not None and member.form.number > max(member.formed, member.interrupt):
            book.do(fx.Form(member.name, member.form, member.incident))
        elif member.behind:
            book.push(member, return_message(member))
        elif member.interrupt > 0 and member.interrupt >= member.formed:
            book.push(member, interrupt_message(member))
        if member.release is not None:
            book.push(member, member.release)

    def _standing(self, member: Member, message: Message) -> None:
        """Whoever asked for it has it already; here it counts as a word."""

    def _beat(self, member: Member, message: Message) -> None:
        """Its phase came with the message that changed it: a beat may be older than that."""
        self._book.note(member, step=integer(message, "step"))

    def _tracked(self, member: Member, message: Message) -> None:
        needed, shard = integer(message, "bytes"), text(message, "shard", WHOLE_STATE)
        if not _WORD.fullmatch(shard):
            raise BadMessage(f"tracked: shard {shard!r:.80} is no word of letters and digits")
        self._book.update(member, state_bytes=needed, shard=shard)
        self._book.do(fx.MakeRoom(member.name, needed))

    def _ready(self, member: Member, message: Message) -> None:
        self._book.update(
            member,
            phase=MemberPhase.READY,
            held_step=integer(message, "held_step"),
            held_generation=_held_in(message),
            ended_step=_ended(message),
            step=integer(message, "step"),
            generation=max(member.status.generation, integer(message, "generation")),
        )

    def _forming(self, member: Member, message: Message) -> None:
        generation = integer(message, "generation")
        member.formed = max(member.formed, generation)
        form = member.form
        activity = text(message, "activity", "")[:_ACTIVITY_MAX]
        changes: dict[str, Any] = {
            "phase": MemberPhase.FORMING,
            "generation": generation,
            "activity": activity,
        }
        if form is not None and form.number == generation:
            changes["rank"] = seat_of(member.name, form).rank
            if form.world_size != member.world_size > 0:
                changes["shard"] = ""  # of state in shards it holds another part from now on, and will say so
            member.world_size = form.world_size
        self._book.update(member, **changes)

    def _running(self, member: Member, message: Message) -> None:
        self._book.update(
            member,
            phase=MemberPhase.RUNNING,
            activity="",
            generation=integer(message, "generation"),
            step=integer(message, "step"),
        )

    def _started(self, member: Member, message: Message) -> None:
        facts, status = self._book.facts, member.status
        self._book.tell(
            events.MemberStarted(
                facts.node,
                facts.incarnation,
                member.name,
                status.job,
                integer(message, "generation"),
                integer(message, "step"),
                number(message, "form_s"),
                number(message, "restore_s"),
                number(message, "first_step_s"),
                text(message, "inexact", "")[:500],
            )
        )

    def _broken(self, member: Member, message: Message) -> None:
        self._book.count("broken_collectives")
        said = str(message.get("message"))[:200]
        self._book.say(f"{member.name}: a collective broke: {said}")

    def _snapshot(self, member: Member, message: Message) -> None:
        facts, step, generation = self._book.facts, integer(message, "step"), integer(message, "generation")
        stall_s = number(message, "stall_s")
        self._book.survey(member)
        self._book.note(member, snapshot_step=step, snapshot_generation=generation)
        self._book.do(fx.Keep(member.status))
        self._book.tell(
            events.SnapshotReady(
                facts.node, facts.incarnation, member.name, member.status.job, generation, step, stall_s
            )
        )

    def _checkpoint(self, member: Member, message: Message) -> None:
        """Said again after a reconnect: what was told already is told again, the rest asked again."""
        facts, request = self._book.facts, text(message, "request")
        if not _REQUEST.fullmatch(request):
            raise BadMessage(f"checkpoint: request {request!r:.80} must be 1 to 120 letters, digits, . _ - :")
        step, generation = integer(message, "step"), integer(message, "generation")
        if request in member.told:
            self._book.push(member, member.told[request])
            return
        asked = events.CheckpointAsked(
            facts.node, facts.incarnation, member.status.job, member.name, generation, step, request
        )
        member.asks[request] = asked
        while len(member.asks) > _ASKS_MAX:
            del member.asks[next(iter(member.asks))]
        self._book.tell(asked)

    def _snapshot_skipped(self, member: Member, message: Message) -> None:
        self._book.count("snapshots_skipped")
        reason = str(message.get("reason"))[:200]
        self._book.say(f"{member.name} skipped a snapshot: {reason}")

    def _finished(self, member: Member, message: Message) -> None:
        step = integer(message, "step")
        self._book.update(
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
            step=integer(message, "step") if "step" in message else self._book.step(member),
            exception=text(message, "exception")[:200],
            traceback=text(message, "traceback", "")[-_TEXT_MAX:],
        )
        self._book.do(fx.Conceal(member.name, failure.traceback))
        if member.status.failure is None:
            self._book.update(member, phase=MemberPhase.RAISED, failure=failure)

    def _report(self, member: Member, message: Message) -> None:
        values = message.get("values")
        if not isinstance(values, dict):
            raise BadMessage("report: values must map names to numbers")
        for name, value in list(values.items())[:_REPORTED_MAX]:
            known = name in member.reported or len(member.reported) < _REPORTED_MAX
            if known and (type(value) is float or (type(value) is int and abs(value) < 1 << 62)):
                member.reported[name] = float(value)
        self._book.note(member, step=integer(message, "step"))

    def _fault(self, member: Member, message: Message) -> None:
        facts, kind = self._book.facts, text(message, "kind")
        if kind not in FAULT_KINDS:
            raise BadMessage(f"fault: kind {kind!r:.80} is none of {', '.join(FAULT_KINDS)}")
        self._book.count("faults")
        self._book.tell(
            events.UserFault(
                facts.node,
                facts.incarnation,
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
        self._book.say(f"{member.name}: {reason}", warning=True)
        self._book.failed(member.status.job, member.name, Failure(Cause.STUCK, reason[:2000]))


def _held_in(message: Message) -> int:
    """The generation of its state; 0 when an older SDK does not tell. Raises BadMessage."""
    return integer(message, "held_generation") if "held_generation" in message else 0


def _ended(message: Message) -> int | None:
    """The newest step that a generation may begin at; None when the rank sets no limit. Raises BadMessage."""
    return integer(message, "ended_step") if message.get("ended_step") is not None else None


def _store(message: Message, known: str) -> str:
    """Where its store listens; every beat of the node carries it. Raises BadMessage."""
    store = text(message, "store", known)
    if len(store) > _STORE_MAX:
        raise BadMessage(f"{message.get('op')}: store of {len(store)} characters is no host:port")
    return store


def _phase(message: Message) -> MemberPhase:
    word = message.get("phase")
    for phase in _ALIVE_PHASES:
        if phase.value == word:
            return phase
    known = ", ".join(phase.value for phase in _ALIVE_PHASES)
    raise BadMessage(f"{message.get('op')}: phase {word!r:.80} is none of {known}")
