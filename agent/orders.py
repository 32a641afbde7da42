"""The coordinator's orders, carried out as levels: an order that has its effect already does nothing."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
from typing import TYPE_CHECKING, Any

from agent.environment import environment
from agent.ranks import interrupt_message
from agent.snapshots import SNAPSHOT_ORDERS
from controlplane.core import effects
from controlplane.core.model import Cause, Failure, MemberPhase, MemberStatus
from controlplane.logs import incident

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.frames import Message
    from agent.members import Member
    from agent.node import Node
    from controlplane.core.model import JobSpec

_MEMBER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
_TOLD_MAX = 64
COMPLETE_GRACE_S = 5.0
"""Members of a completed job that have not finished may end by themselves for so long."""
log = logging.getLogger("holdfast.agent.orders")


class Orders:
    """The handlers of the orders."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._table: dict[type[Any], Callable[[Any], None]] = {
            effects.Launch: self._launch,
            effects.Interrupt: self._interrupt,
            effects.Form: self._form,
            effects.Kill: self._kill,
            effects.Complete: self._complete,
            effects.Release: self._release,
            effects.CheckpointTold: self._told,
            effects.Drained: self._drained,
            effects.Replicate: self._node.peers.replicate,
            effects.Fetch: self._node.peers.fetch,
            effects.CollectStacks: self._node.stacks.order,
            effects.LookAtPeers: self._node.looks.order,
            **dict.fromkeys(SNAPSHOT_ORDERS, self._node.snapshots.order),
        }

    def carry_out(self, order: Any) -> None:
        """Carry out one order. What cannot be is reported; it never ends the agent."""
        handler = self._table[type(order)]
        try:
            handler(order)
        except (OSError, ValueError) as error:
            log.exception("the order %s cannot be carried out", type(order).__name__)
            self._refuse(order, error)

    def _refuse(self, order: Any, error: Exception) -> None:
        self._node.count("orders_failed")
        member = getattr(order, "member", "")
        if member and isinstance(order, effects.Launch):
            failure = Failure(Cause.LAUNCH_FAILED, str(error)[:2000])
            self._node.order_failed(order.spec.job, member, failure)

    def _launch(self, order: effects.Launch) -> None:
        if not _MEMBER.fullmatch(order.member):
            raise ValueError(f"member name {order.member!r:.120} will not do")
        node, member = self._node, self._node.members.get(order.member)
        if member is None:
            member = self._spawn(order)
        elif not member.alive:
            node.link.report(node.members.status(member))
            return
        if not order.warm_only and not member.ordered_to_run:
            self._run(member, order)

    def _spawn(self, order: effects.Launch) -> Member:
        node = self._node
        status = MemberStatus(
            order.member, order.spec.job, MemberPhase.LAUNCHED, role=order.role, rank=order.rank
        )
        member = node.members.add(status, order.spec)
        member.launch = order
        path = node.paths.log(order.member)
        log.info("%s is launched as %s", order.member, order.role.value)
        node.launcher.say(op="spawn", member=order.member, log=str(path))
        node.show(member)
        return member

    def _run(self, member: Member, order: effects.Launch) -> None:
        node, spec = self._node, order.spec
        member.ordered_to_run, member.launch = True, order
        own = node.settings.own_launcher
        env = environment(os.environ if own else {}, order, node.facts, str(node.paths.board(order.member)))
        node.launcher.say(
            **({} if own else {"inherit": _mild(env, spec)}),
            op="run",
            member=order.member,
            argv=list(spec.argv),
            env=env,
            cwd=spec.cwd,
            module=spec.module,
            no_python=spec.no_python,
        )
        generation = order.generation.number if order.generation else 0
        node.members.note(member, rank=order.rank, role=order.role, generation=generation)
        node.members.keep(member)
        if order.generation is not None:
            node.port.used(int(order.generation.master.rpartition(":")[2] or 0))

    def _interrupt(self, order: effects.Interrupt) -> None:
        if order.gentle:
            self._halt(order)
            return
        told = []
        for member in self._node.members.of(order.job):
            known = member.form.number if member.form is not None else member.formed
            concerned = member.alive and member.status.elastic and known <= order.generation
            if concerned and member.interrupt < order.generation:
                member.interrupt, member.interrupt_reason = order.generation, order.reason
                member.incident = incident()
                self._node.gate.push(member.name, interrupt_message(member))
                told.append(member.name)
        if told:
            log.info("generation %d is broken (%s): %s stop", order.generation, order.reason, ", ".join(told))

    def _halt(self, order: effects.Interrupt) -> None:
        """At the next step boundary. Said again by the coordinator until it is done."""
        frame: Message = {
            "op": "interrupt",
            "generation": order.generation,
            "reason": order.reason,
            "gentle": True,
            "keep": order.keep,
            "incident": incident(),
        }
        for member in self._node.members.of(order.job):
            if member.alive and member.status.elastic and member.formed == order.generation:
                self._node.gate.push(member.name, frame)

    def _form(self, order: effects.Form) -> None:
        node, generation = self._node, order.generation
        for seat in generation.seats:
            if seat.node != node.name:
                continue
            member = node.members.get(seat.member)
            if member is None:
                failure = Failure(Cause.LAUNCH_FAILED, f"{seat.member} is not on node {node.name}")
                node.order_failed(generation.job, seat.member, failure)
            elif not member.alive:
                node.link.report(node.members.status(member))
            elif member.form is None or member.form.number < generation.number:
                member.form, member.release, member.incident = generation, None, incident()
                if generation.number > member.formed:
                    log.info("%s forms generation %d as rank %d", member.name, generation.number, seat.rank)
                    node.gate.push(member.name, node.form_message(member, generation))

    def _kill(self, order: effects.Kill) -> None:
        node, member = self._node, self._node.members.get(order.member)
        if member is None:
            log.info("kill %s: it is not here", order.member)
        elif member.alive:
            log.info("kill %s: %s", order.member, order.reason)
            member.kill_reason = order.reason
            node.launcher.say(op="signal", member=order.member, signal=int(signal.SIGKILL))
        else:
            node.link.report(node.members.status(member))

    def _complete(self, order: effects.Complete) -> None:
        node = self._node
        node.peers.complete(order)
        if not order.left:  # a launcher that was started for this job would end, as if the job had
            node.launcher.say(op="over", job=order.job, ok=order.ok, reason=order.reason)
        frame: Message = {"op": "complete", "ok": order.ok, "reason": order.reason}
        for member in node.members.of(order.job):
            if not member.alive:
                node.dismiss(member)
            elif member.complete is None:
                member.complete = frame
                reached = node.gate.push(member.name, frame)
                finished = member.status.phase == MemberPhase.FINISHED
                if not finished:
                    member.kill_reason = f"the job is over: {order.reason}"
                    grace_s = COMPLETE_GRACE_S if reached else 0.0
                    asyncio.get_running_loop().call_later(grace_s, self._end, member)

    def _end(self, member: Member) -> None:
        if member.alive and self._node.members.get(member.name) is member:
            self._node.launcher.say(op="signal", member=member.name, signal=int(signal.SIGKILL))

    def _release(self, order: effects.Release) -> None:
        node = self._node
        node.peers.release(order)
        for member in node.members.of(order.job):
            if member.alive:
                member.release = {"op": "release", "step": order.step, "void": order.void_step}
                node.gate.push(member.name, member.release)
            elif self._of_no_use(member, order.step):
                node.dismiss(member)

    def _of_no_use(self, member: Member, released_step: int) -> bool:
        """Whether nobody will want what a dead member left: its replacement has newer state, and no
        upload reads it."""
        status = member.status
        newest = max(status.snapshot_step, status.snapshot_before, status.former_step)
        return newest < released_step and not self._node.snapshots.wants(member.name)

    def _drained(self, order: effects.Drained) -> None:
        log.info("this node is drained: %s", order.reason)
        self._node.drained.set()

    def _told(self, order: effects.CheckpointTold) -> None:
        member = self._node.members.get(order.member)
        if member is None or not member.alive:
            return
        frame: Message = {
            "op": "checkpoint_told",
            "request": order.request,
            "outcome": order.outcome,
            "reason": order.reason,
            "checkpoint": order.checkpoint,
        }
        member.asks.pop(order.request, None)
        member.told[order.request] = frame
        while len(member.told) > _TOLD_MAX:
            del member.told[next(iter(member.told))]
        self._node.gate.push(member.name, frame)


def _mild(env: dict[str, str], spec: JobSpec) -> dict[str, str]:
    """Take out of `env` the defaults that the trainer container's own variables outweigh."""
    asked = {name for name, _ in spec.env}
    return {name: env.pop(name) for name in ("OMP_NUM_THREADS",) if name in env and name not in asked}
