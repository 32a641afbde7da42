"""Take in what ranks report: a table from message to handler.

Most handlers change the member's status, or send the leader an event. A hello may follow a reconnect, so it
is answered with every order that the rank may have missed while it was away."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from agent.deciding import effects as fx
from agent.deciding.member import interrupt_message, return_message, seat_of
from controlplane.core.records import events
from controlplane.core.records.diagnosis import GradientReport, ParameterGradient
from controlplane.core.records.evidence import ReplayPass
from controlplane.core.records.model import NO_STEP, Cause, Failure, MemberPhase
from holdfast.ipc.messages import rank as rank_msg
from holdfast.ipc.messages.gradients import Gradients
from holdfast.ipc.messages.profiles import Profiled, ProfileTaken
from holdfast.ipc.messages.replicas import ReplicasCompared

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.deciding.member import LocalMember
    from agent.deciding.node_state import NodeState

_ASKS_MAX = 64
_ACTIVITY_MAX = 40
_WORDS_MAX = 1000
_LOSS = "loss"
"""The name of the number that is shown as the loss: `session.report(loss=...)`."""
_TEXT_MAX = 64_000
"""How many characters of a traceback go on to the coordinator: the last ones."""


class Ranks:
    """The handlers of the ranks' messages."""

    def __init__(self, state: NodeState) -> None:
        self._state = state
        self._handlers: dict[type[rank_msg.RankMessage], Callable[[LocalMember, Any], None]] = {
            rank_msg.Beat: self._beat,
            rank_msg.Tracked: self._tracked,
            rank_msg.Ready: self._ready,
            rank_msg.Forming: self._forming,
            rank_msg.Running: self._running,
            rank_msg.Started: self._started,
            rank_msg.Broken: self._broken,
            rank_msg.Snapshot: self._snapshot,
            rank_msg.Checkpoint: self._checkpoint,
            rank_msg.SnapshotSkipped: self._snapshot_skipped,
            rank_msg.Finished: self._finished,
            rank_msg.Raised: self._raised,
            rank_msg.Report: self._report,
            rank_msg.RestoreFailed: self._restore_failed,
            rank_msg.Fault: self._fault,
            rank_msg.GroupProgress: self._standing,
            ProfileTaken: self._standing,
            Profiled: self._standing,
            Gradients: self._gradients,
            ReplicasCompared: self._replicas,
        }

    def receive(self, member: LocalMember, message: rank_msg.RankMessage) -> None:
        """Take one message. A message of a member whose process has ended is ignored."""
        if member.alive:
            self._handlers[type(message)](member, message)

    def greet(self, member: LocalMember, hello: rank_msg.Hello) -> None:
        """Take a hello, and repeat the orders that the rank may have missed."""
        changes: dict[str, Any] = {
            "elastic": True,
            "store": member.status.store if hello.store is None else hello.store,
            "step": hello.step,
            "held_step": hello.held_step,
            "held_generation": hello.held_generation,
            "ended_step": hello.ended_step,
        }
        if member.status.phase != MemberPhase.RAISED:
            changes["phase"] = MemberPhase(hello.phase)
        if not member.status.elastic:
            changes["activity"] = ""  # "output" was for a script without the SDK; now it reports for itself
        member.formed = max(member.formed, hello.generation)
        if hello.generation > 0:
            changes["generation"] = hello.generation
        self._state.update(member, **changes)
        self._repeat(member)

    def _repeat(self, member: LocalMember) -> None:
        """Repeat the newest orders, whatever the rank is doing: one that has finished must see an
        interrupt, too."""
        state = self._state
        if member.complete is not None:
            state.push(member, member.complete)
            return
        if member.form is not None and member.form.number > max(member.formed, member.interrupt):
            state.do(fx.Form(member.name, member.form, member.incident))
        elif member.behind:
            state.push(member, return_message(member))
        elif member.interrupt > 0 and member.interrupt >= member.formed:
            state.push(member, interrupt_message(member))
        if member.release is not None:
            state.push(member, member.release)

    def _standing(self, member: LocalMember, message: rank_msg.RankMessage) -> None:
        """Do nothing more: `Stacks` or `RankProfiles` has taken the answer, and it has shown that the rank
        lives."""

    def _beat(self, member: LocalMember, beat: rank_msg.Beat) -> None:
        self._state.note(member, step=beat.step)

    def _tracked(self, member: LocalMember, tracked: rank_msg.Tracked) -> None:
        self._state.update(member, state_bytes=tracked.bytes, shard=tracked.shard)
        self._state.do(fx.MakeRoom(member.name, tracked.bytes))

    def _ready(self, member: LocalMember, ready: rank_msg.Ready) -> None:
        self._state.survey(member)  # it overwrites nothing any more, and has not reported all that it holds
        self._state.update(
            member,
            phase=MemberPhase.READY,
            held_step=ready.held_step,
            held_generation=ready.held_generation,
            ended_step=ready.ended_step,
            step=ready.step,
            generation=max(member.status.generation, ready.generation),
        )

    def _forming(self, member: LocalMember, forming: rank_msg.Forming) -> None:
        generation, form = forming.generation, member.form
        member.formed = max(member.formed, generation)
        changes: dict[str, Any] = {
            "phase": MemberPhase.FORMING,
            "generation": generation,
            "activity": forming.activity[:_ACTIVITY_MAX],
        }
        if form is not None and form.number == generation:
            changes["rank"] = seat_of(member.name, form).rank
            if form.world_size != member.world_size > 0:
                # Sharded state is cut differently now: the rank will report its new shard id
                changes["shard"] = ""
            member.world_size = form.world_size
        self._state.update(member, **changes)

    def _running(self, member: LocalMember, running: rank_msg.Running) -> None:
        self._state.update(
            member,
            phase=MemberPhase.RUNNING,
            activity="",
            generation=running.generation,
            step=running.step,
        )

    def _started(self, member: LocalMember, started: rank_msg.Started) -> None:
        facts, status = self._state.facts, member.status
        self._state.send_event(
            events.MemberStarted(
                facts.node,
                facts.incarnation,
                member.name,
                status.job,
                started.generation,
                started.step,
                started.form_s,
                started.restore_s,
                started.first_step_s,
                started.inexact[:500],
            )
        )

    def _broken(self, member: LocalMember, broken: rank_msg.Broken) -> None:
        self._state.count("broken_collectives")
        self._state.log(f"{member.name}: a collective operation failed: {broken.message[:200]}")

    def _snapshot(self, member: LocalMember, made: rank_msg.Snapshot) -> None:
        facts = self._state.facts
        self._state.survey(member)
        self._state.note(
            member, snapshot_step=made.step, snapshot_generation=made.generation, offers=made.offered
        )
        if made.offered:  # what else there is of this generation may be overwritten at any moment
            self._state.note(member, snapshot_before=NO_STEP)
        self._state.do(fx.Keep(member.status))
        if self._state.snapshots_by_beats and made.offered and not made.spacing and member.status.rank > 0:
            return  # beats tell of it; what it costs is told by rank 0
        self._state.send_event(
            events.SnapshotReady(
                facts.node,
                facts.incarnation,
                member.name,
                member.status.job,
                made.generation,
                made.step,
                made.stall_s,
                made.spacing[:_WORDS_MAX],
            )
        )

    def _checkpoint(self, member: LocalMember, asked: rank_msg.Checkpoint) -> None:
        """Ask the leader for a checkpoint.

        The rank repeats its request after a reconnect. Then it gets the answer again, or the leader is asked
        again."""
        facts, request = self._state.facts, asked.request
        if request in member.answers:
            self._state.push(member, member.answers[request])
            return
        event = events.CheckpointAsked(
            facts.node,
            facts.incarnation,
            member.status.job,
            member.name,
            asked.generation,
            asked.step,
            request,
        )
        member.asks[request] = event
        while len(member.asks) > _ASKS_MAX:
            del member.asks[next(iter(member.asks))]
        self._state.send_event(event)

    def _snapshot_skipped(self, member: LocalMember, skipped: rank_msg.SnapshotSkipped) -> None:
        self._state.count("snapshots_skipped")
        self._state.log(f"{member.name} skipped a snapshot: {skipped.reason[:200]}")

    def _finished(self, member: LocalMember, finished: rank_msg.Finished) -> None:
        self._state.survey(member)
        self._state.update(
            member,
            phase=MemberPhase.FINISHED,
            generation=finished.generation,
            step=finished.step,
            held_step=finished.step,
            held_generation=finished.generation,
        )

    def _raised(self, member: LocalMember, raised: rank_msg.Raised) -> None:
        failure = Failure(
            Cause.RAISED,
            f"{raised.exception}: {raised.message}"[:2000],
            step=self._state.step(member) if raised.step is None else raised.step,
            exception=raised.exception[:200],
            traceback=raised.traceback[-_TEXT_MAX:],
        )
        self._state.do(fx.HideTraceback(member.name, failure.traceback))
        if member.status.failure is None:
            self._state.update(member, phase=MemberPhase.RAISED, failure=failure)

    def _report(self, member: LocalMember, report: rank_msg.Report) -> None:
        for name, value in report.values.items():
            if name in member.reported or len(member.reported) < rank_msg.VALUES_MAX:
                member.reported[name] = value
        self._tell_loss(member, report)
        self._state.note(member, step=report.step)

    def _tell_loss(self, member: LocalMember, report: rank_msg.Report) -> None:
        """Pass on the loss that rank 0 has reported, where no model is watched: nobody measures it then."""
        status, loss = member.status, report.values.get(_LOSS)
        if loss is not None and status.rank == 0 and not member.watches:
            told = (*self._places(member), status.generation, report.step)
            self._state.send_event(GradientReport(*told, loss=loss, loss_state="known"))

    def _places(self, member: LocalMember) -> tuple[str, int, str, str, int]:
        facts, status = self._state.facts, member.status
        return facts.node, facts.incarnation, status.job, status.member, status.rank

    def _fault(self, member: LocalMember, fault: rank_msg.Fault) -> None:
        facts = self._state.facts
        self._state.count("faults")
        self._state.send_event(
            events.UserFault(
                facts.node,
                facts.incarnation,
                member.status.job,
                member.name,
                fault.generation,
                fault.step,
                fault.kind,
                fault.reason[:2000],
                fault.rollback,
            )
        )

    def _gradients(self, member: LocalMember, found: Gradients) -> None:
        """Pass on what a rank has measured; nobody here judges it."""
        member.watches = member.watches or bool(found.parameters or found.trace)
        named = dataclasses.asdict(found)
        rows = tuple(ParameterGradient(**row) for row in named.pop("rows"))
        named |= {each: named[each][:_WORDS_MAX] for each in ("left_out", "origin", "words")}
        self._state.send_event(GradientReport(*self._places(member), **named, rows=rows))

    def _replicas(self, member: LocalMember, compared: ReplicasCompared) -> None:
        facts = self._state.facts
        self._state.count("replicas_differ" if compared.ranks else "replicas_agree")
        self._state.send_event(
            events.ReplicasReported(
                facts.node,
                facts.incarnation,
                member.status.job,
                member.name,
                compared.generation,
                compared.step,
                max(compared.agreed_step, 0),
                compared.ranks,
                compared.odd,
                compared.tensors,
                compared.more,
                compared.digests,
                compared.buffers,
                compared.uncovered,
                compared.replay,
                tuple(ReplayPass(**dataclasses.asdict(each)) for each in compared.passes),
                compared.gradients,
            )
        )

    def _restore_failed(self, member: LocalMember, failed: rank_msg.RestoreFailed) -> None:
        reason = f"state could not be put in place: {failed.reason}"
        self._state.log(f"{member.name}: {reason}", warning=True)
        self._state.failed(member.status.job, member.name, Failure(Cause.STUCK, reason[:2000]))
