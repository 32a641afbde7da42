"""A simulated agent that obeys its orders: it sends just the messages that take a job from submission to its
end."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from typing import TYPE_CHECKING, Any

import grpc

from controlplane.core.records import effects
from controlplane.core.records.events import MemberReport, MemberStarted
from controlplane.core.records.model import Cause, Failure, MemberPhase, MemberStatus, Role
from controlplane.wire import codec
from tests.daemon.rig import Agent

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.wire import control_pb2 as pb


class Hand(Agent):
    """Its members live in `members`; `orders` has every order that it received, with the time of arrival."""

    def __init__(
        self, address: str, node: str = "n1", incarnation: int = 1, channel: grpc.aio.Channel | None = None
    ) -> None:
        super().__init__(address, node, incarnation, channel)
        self.members: dict[str, MemberStatus] = {}
        self.orders: list[tuple[float, Any]] = []
        self._obey: dict[type, Callable[[Any], Any]] = {
            effects.Launch: self._launch,
            effects.Interrupt: self._interrupt,
            effects.Form: self._form,
            effects.Kill: lambda order: self.die(order.member),
        }
        self._task: asyncio.Task[None] | None = None

    async def work(self, cluster: str) -> pb.CoordinatorMessage:
        """Say hello, then obey in the background."""
        answer = await self.hello(cluster, tuple(self.members.values()))
        self._task = asyncio.create_task(self._run())
        return answer

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await super().close()

    async def _run(self) -> None:
        while (message := await self.call.read()) is not grpc.aio.EOF:
            order = codec.order_from(message, self.node)
            self.orders.append((time.monotonic(), order))
            if type(order) in self._obey:
                await self._obey[type(order)](order)

    async def report(self, member: str, **changes: Any) -> None:
        self.members[member] = dataclasses.replace(self.members[member], **changes)
        self.seq += 1
        await self.tell(MemberReport(self.node, self.incarnation, self.seq, self.members[member]))

    async def die(self, member: str) -> None:
        """Report that a member's process was killed."""
        failure = Failure(Cause.SIGNALED, "killed by SIGKILL", signal=9)
        if member in self.members and self.members[member].phase is not MemberPhase.EXITED:
            await self.report(member, phase=MemberPhase.EXITED, failure=failure)

    async def _launch(self, order: effects.Launch) -> None:
        if order.member in self.members:
            return
        phase = MemberPhase.READY if not order.warm_only else MemberPhase.WARM
        self.members[order.member] = MemberStatus(
            order.member, order.spec.job, MemberPhase.STARTING, elastic=True, role=order.role
        )
        store = f"127.0.0.1:{40000 + len(self.members)}"
        await self.report(order.member, phase=phase, pid=1000 + len(self.members), store=store)

    async def _interrupt(self, order: effects.Interrupt) -> None:
        for name, status in self.members.items():
            if status.phase is MemberPhase.RUNNING and status.generation <= order.generation:
                await self.report(name, phase=MemberPhase.READY, held_step=status.step)

    async def _form(self, order: effects.Form) -> None:
        generation = order.generation
        for seat in generation.seats:
            status = self.members.get(seat.member)
            if seat.node != self.node or status is None or status.generation >= generation.number:
                continue
            step = generation.resume.step
            changes = {
                "rank": seat.rank,
                "role": Role.RANK,
                "generation": generation.number,
                "step": step + 1,
            }
            await self.report(seat.member, phase=MemberPhase.RUNNING, **changes)
            started = MemberStarted(
                self.node,
                self.incarnation,
                seat.member,
                generation.job,
                generation.number,
                step,
                0.01,
                0.02,
                0.03,
            )
            await self.tell(started)

    def formed(self, number: int) -> float:
        """When generation `number` was ordered to form; 0.0 when it was not."""
        forms = [at for at, order in self.orders if isinstance(order, effects.Form)]
        numbers = [order.generation.number for _, order in self.orders if isinstance(order, effects.Form)]
        return next((at for at, each in zip(forms, numbers, strict=True) if each == number), 0.0)
