"""Carry out the leader's orders about members, as levels.

The leader repeats an order until it sees the effect, and a new leader repeats all of them. So each handler
first compares the order with what is known: one that is done already, or is older than the newest, changes
nothing. An order about a member that has ended is answered with its status, which may be what the leader has
missed."""

from __future__ import annotations

import re
import signal
from functools import partial
from typing import TYPE_CHECKING, Any

from agent.deciding import effects as fx
from agent.deciding.member import LocalMember, interrupt_message, return_message
from controlplane.core.failures import blame
from controlplane.core.records import effects
from controlplane.core.records.model import Cause, Failure, MemberPhase, MemberStatus
from holdfast.ipc.messages import agent as agent_msg
from holdfast.ipc.messages.launcher import JobOverCommand

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.deciding.events import LaunchFailed, Ordered
    from agent.deciding.node_state import NodeState

COMPLETE_GRACE_S = 5.0
"""How long members of a completed job that have not finished may take to end by themselves."""

_MEMBER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
_ANSWERS_MAX = 64
_REASON_CHARS = 2000
_RETRY_S, _RETRY_MAX_S = 0.5, 10.0
"""The pause before a process that could not be made is tried again: the first, and the longest. It
doubles."""


class OrderHandlers:
    """The handlers of the leader's orders."""

    def __init__(self, state: NodeState) -> None:
        self._state = state
        self._incident = ""  # the incident that the order in hand is part of

    def carry_out(self, event: Ordered) -> None:
        """Carry out one order. Raises KeyError for a kind that is not in TABLE."""
        self._incident = event.incident
        TABLE[type(event.order)](self, event.order)

    def launch_failed(self, event: LaunchFailed) -> None:
        """Report a launch that failed, or retry it when the obstacle may pass by itself."""
        member = self._state.get(event.member)
        if member is None:
            return
        self._state.count("orders_failed")
        if event.heals and not event.spawned and member.launch is not None:
            self._wait(member, event.reason[:_REASON_CHARS])
            return
        self._state.failed(member.status.job, event.member, _not_launched(event.reason))
        if not event.spawned:
            self._state.drop(member)

    def _wait(self, member: LocalMember, reason: str) -> None:
        """Retry after a pause that grows, and report why the member has not started."""
        pause_s = min(_RETRY_S * 2.0**member.tries, _RETRY_MAX_S)
        member.tries += 1
        words = f"{member.name} cannot be started now, it is tried again in {pause_s:g} s: {reason}"
        self._state.log(words, warning=True)
        self._state.update(member, no_room=reason)
        self._state.later(pause_s, partial(self._launch_again, member))

    def _launch_again(self, member: LocalMember) -> None:
        state = self._state
        if state.get(member.name) is not member or not member.alive or member.launch is None:
            return
        # If it fails, the dispatcher drops the effects behind it
        state.do(fx.Spawn(member.name, member.launch))
        if member.ordered_to_run:
            state.do(fx.Run(member.name, member.launch))
        state.update(member, no_room="")

    def _launch(self, order: effects.Launch) -> None:
        state, member = self._state, self._state.get(order.member)
        if not _MEMBER.fullmatch(order.member):
            reason = f"member name {order.member!r:.120} is not allowed"
            state.count("orders_failed")
            state.failed(order.spec.job, order.member, _not_launched(reason))
            return
        if member is None:
            if refusal := self._refusal(order):
                state.count("orders_failed")
                failure = Failure(Cause.LAUNCH_FAILED, refusal[:_REASON_CHARS], exception=blame.NOT_ALLOWED)
                state.failed(order.spec.job, order.member, failure)
                return
            member = self._spawn(order)
        elif not member.alive:
            state.report(member)
            return
        if not order.warm_only and not member.ordered_to_run:
            self._run(member, order)

    def _refusal(self, order: effects.Launch) -> str:
        """Why this node refuses such a job (a storage that is not allowed here); "" when it accepts."""
        allowed, spec = self._state.facts.storages, order.spec
        return allowed.refusal(spec.storage) or allowed.refusal(spec.mirror)

    def _spawn(self, order: effects.Launch) -> LocalMember:
        status = MemberStatus(
            order.member, order.spec.job, MemberPhase.LAUNCHED, role=order.role, rank=order.rank
        )
        member = LocalMember(status, spec=order.spec, launch=order)
        self._state.take(member)
        self._state.do(fx.Spawn(order.member, order))
        self._state.update(member)
        return member

    def _run(self, member: LocalMember, order: effects.Launch) -> None:
        member.ordered_to_run, member.launch = True, order
        self._state.do(fx.Run(member.name, order))
        generation = order.generation.number if order.generation else 0
        self._state.note(member, rank=order.rank, role=order.role, generation=generation)
        self._state.do(fx.Keep(member.status))

    def _interrupt(self, order: effects.Interrupt) -> None:
        if order.gentle:
            self._halt(order)
            return
        stopping = []
        for member in self._state.of(order.job):
            known = member.form.number if member.form is not None else member.formed
            concerned = member.alive and member.status.elastic and known <= order.generation
            if concerned and member.interrupt < order.generation:
                member.interrupt, member.interrupt_reason = order.generation, order.reason
                member.incident = self._incident
                self._state.push(member, interrupt_message(member))
                stopping.append(member.name)
        if stopping:
            names = ", ".join(stopping)
            self._state.log(f"generation {order.generation} is broken ({order.reason}): {names} stop")

    def _halt(self, order: effects.Interrupt) -> None:
        """Have ranks leave at the next step boundary. Sent once: the coordinator repeats the order until they
        have."""
        halt = agent_msg.Halt(
            order.generation, order.reason, gentle=True, keep=order.keep, incident=self._incident
        )
        for member in self._state.of(order.job):
            if member.alive and member.status.elastic and member.formed == order.generation:
                self._state.push(member, halt)

    def _form(self, order: effects.Form) -> None:
        state, generation = self._state, order.generation
        for seat in generation.seats:
            if seat.node != state.facts.node:
                continue
            member = state.get(seat.member)
            if member is None:
                failure = Failure(Cause.LAUNCH_FAILED, f"{seat.member} is not on node {state.facts.node}")
                state.failed(generation.job, seat.member, failure)
            elif not member.alive:
                state.report(member)
            elif member.form is None or member.form.number < generation.number:
                member.form, member.release, member.incident = generation, None, self._incident
                if generation.number > member.formed:
                    state.log(f"{member.name} forms generation {generation.number} as rank {seat.rank}")
                    state.do(fx.Form(member.name, generation, member.incident))

    def _kill(self, order: effects.Kill) -> None:
        state, member = self._state, self._state.get(order.member)
        if member is None:
            state.log(f"kill {order.member}: there is no such member on this node")
        elif member.alive:
            state.log(f"kill {order.member}: {order.reason}")
            member.kill_reason = order.reason
            state.kill(member, signal.SIGKILL)
        else:
            state.report(member)

    def _complete(self, order: effects.Complete) -> None:
        """Have a job's members end, after a grace period for those that are still connected.

        With `left` the job goes on elsewhere: the launcher gets no JobOverCommand, or `holdfast exec
        --job` would exit as if the job had ended. Members that have finished may end by themselves, unless
        the job failed after they had returned from their function."""
        state = self._state
        if not order.left:
            state.do(fx.Command(JobOverCommand(order.job, order.ok, order.reason)))
        complete = agent_msg.Complete(order.ok, order.reason)
        for member in state.of(order.job):
            if not member.alive:
                state.dismiss(member)
            elif member.complete is None:
                member.complete = complete
                state.push(member, complete)
                if member.status.phase is not MemberPhase.FINISHED or (member.behind and not order.ok):
                    member.kill_reason = f"the job is over: {order.reason}"
                    grace_s = COMPLETE_GRACE_S if state.view.connected(member.name) else 0.0
                    state.later(grace_s, partial(self._end, member.name))

    def _return(self, order: effects.Return) -> None:
        for member in self._state.of(order.job):
            status = member.status
            if (
                member.returned < order.generation == status.generation
                and status.phase is MemberPhase.FINISHED
            ):
                member.returned = order.generation
                self._state.push(member, return_message(member))

    def _end(self, name: str) -> None:
        member = self._state.get(name)
        if member is not None and member.alive:
            self._state.kill(member, signal.SIGKILL)

    def _release(self, order: effects.Release) -> None:
        for member in self._state.of(order.job):
            if member.alive:
                member.release = agent_msg.Release(order.step, order.void_step, order.kept_from)
                self._state.push(member, member.release)
            elif self._of_no_use(member, order.step):
                self._state.dismiss(member)

    def _of_no_use(self, member: LocalMember, released_step: int) -> bool:
        """Whether nothing needs a dead member's snapshots: newer ones exist, and no upload reads these.

        A release of the very state with which the member finished does not count. It was sent to make room
        for a snapshot of that state, came too late, and this member's snapshots may be all there is."""
        status = member.status
        newest = max(status.snapshot_step, status.snapshot_before, status.former_step)
        is_final = status.held_step == released_step
        return newest < released_step and not is_final and not self._state.view.wants(member.name)

    def _answer_checkpoint(self, order: effects.CheckpointTold) -> None:
        member = self._state.get(order.member)
        if member is None or not member.alive:
            return
        answer = agent_msg.CheckpointTold(order.request, order.outcome, order.reason, order.checkpoint)
        member.asks.pop(order.request, None)
        member.answers[order.request] = answer
        while len(member.answers) > _ANSWERS_MAX:
            del member.answers[next(iter(member.answers))]
        self._state.push(member, answer)


def _not_launched(reason: str) -> Failure:
    return Failure(Cause.LAUNCH_FAILED, reason[:_REASON_CHARS])


TABLE: dict[type[Any], Callable[[OrderHandlers, Any], None]] = {
    effects.Launch: OrderHandlers._launch,
    effects.Interrupt: OrderHandlers._interrupt,
    effects.Form: OrderHandlers._form,
    effects.Kill: OrderHandlers._kill,
    effects.Complete: OrderHandlers._complete,
    effects.Return: OrderHandlers._return,
    effects.Release: OrderHandlers._release,
    effects.CheckpointTold: OrderHandlers._answer_checkpoint,
}
"""The orders that the core carries out. All others are work for components of the daemon."""
