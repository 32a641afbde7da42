"""Wait for the next generation of an elastic function, or for its end on all ranks.

A rank reports `ready` with the step at which its state is clean, and waits for the agent's description of the
next generation. One that has finished waits until all have, and keeps its state: if a peer is lost before
that, it reports `ready` as well."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from holdfast.errors import AwayError
from holdfast.ipc.messages.rank import Ready
from holdfast.reentry import ending, leaving
from holdfast.state import rehearsal
from holdfast.telemetry import own_reports

if TYPE_CHECKING:
    from holdfast.ipc.agent_client import AgentClient, AgentOrders
    from holdfast.ipc.formation import Formation
    from holdfast.ipc.messages.agent import Complete
    from holdfast.reentry.runtime import Runtime


class Barrier:
    """Where a rank waits between the generations of one call of an elastic function.

    `finished`: the function has returned here, and its end on the other ranks is waited for. `looks`: a step
    has broken off and runs again; what it has left is looked at once the coordinator has been told that this
    rank is ready, because it takes milliseconds."""

    def __init__(self, runtime: Runtime, agent: AgentClient, name: str) -> None:
        self._runtime, self._state = runtime, runtime.state
        self._agent, self._name = agent, name
        self.finished = self.looks = False

    def wait(self) -> Formation | None:
        """Wait for the next generation; None when the function is over on all ranks."""
        state, agent = self._state, self._agent
        if not self.finished:
            agent.send(self._ready(), keep=True)
            state.phase = "ready"
            state.progress.show("barrier")
            leaving.let_go(state)
            if self.looks:
                self._runtime.forgotten.broken_off()
            self.looks = False
        orders = self._await()
        agent.forget("ready")
        if orders.refused:
            raise AwayError(f"the agent refused this process: {orders.refused}")
        if orders.complete is not None:
            self._end(orders.complete)
        if self.finished:
            ending.leave(self._runtime, agent, self._name)  # all have finished, and the final state is safe
            return None
        return orders.form

    def _ready(self) -> Ready:
        state = self._state
        return Ready(
            generation=state.generation,
            held_step=state.clean.step,
            held_generation=state.clean.generation,
            ended_step=own_reports.ended(state),
            step=state.completed,
        )

    def _await(self) -> AgentOrders:
        state, agent = self._state, self._agent
        if not state.generation:
            self._runtime.equality.prepare()
        if state.environment.role == "spare" and not state.generation:
            rehearsal.while_idle(agent, state.environment.agent_socket, self._moved)
        agent.wait(self._moved)
        if self.finished and not self._over(agent.orders):
            self.finished = False  # a peer was lost before the end: it may need this state
            agent.forget("finished")
            self._runtime.requests.end()
            state.clean.step = state.ended = state.completed
            if state.entry.tracks_inside:
                leaving.stow(state)
            state.groups.dissolve()
            agent.send(self._ready(), keep=True)
            state.phase = "ready"
            leaving.let_go(state)
            agent.wait(self._moved)
        return agent.orders

    def _moved(self, orders: AgentOrders) -> bool:
        state = self._state
        if self._over(orders):
            return True
        if self.finished:
            return orders.interrupted >= state.generation
        form = orders.form
        return form is not None and form.number > max(state.generation, orders.interrupted)

    def _over(self, orders: AgentOrders) -> bool:
        """Whether the wait is over: the job is, or the agent refuses this process, or all may return."""
        if orders.complete is not None or orders.refused:
            return True
        return self.finished and orders.returned >= self._state.generation

    def _end(self, complete: Complete) -> None:
        """End with the job. A process without a result (a spare, or any rank of a failed job) exits here."""
        self._runtime.requests.end("the job has ended without an answer about the checkpoint")
        self._state.groups.dissolve()
        self._state.phase = "finished"
        if not complete.ok:
            reason = complete.reason.partition("\n")[0]  # the rank that raised has logged the traceback
            sys.exit(f"the job has ended: {reason}")
        if not self.finished:
            sys.exit(0)
