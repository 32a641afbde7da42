"""Run an elastic function through its generations: barrier, form, restore, train, and again after a break.

`_Loop` is one call of the function; each turn of its loop is one generation. The rank reports `ready` with
the step at which its state is clean, waits for the agent's description of the next generation, forms the
process groups, restores the state and calls the function. After an interrupt or a broken collective it notes
which state is still clean and returns to the barrier; any other exception is raised unchanged. A rank that
has finished keeps its state until all have: if a peer is lost before that, it returns to the barrier."""

from __future__ import annotations

import dataclasses
import functools
import gc
import logging
import time
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from holdfast.anatomy import compiling
from holdfast.environment import announce
from holdfast.errors import CollectiveFailed, Interrupted, RestoreError, SessionError, StateError
from holdfast.ipc import recovery_log
from holdfast.ipc.messages import rank as rank_msg
from holdfast.ipc.shm import ArenaError
from holdfast.reentry import (
    alone,
    boundary,
    ending,
    joining,
    leaving,
    meeting,
    misuse,
    snapshotting,
    step_loop,
    stepping,
)
from holdfast.reentry.barrier import Barrier
from holdfast.state import compiled
from holdfast.state.functions import Joined

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.ipc.agent_client import AgentClient
    from holdfast.ipc.formation import Formation, Resume
    from holdfast.reentry.runtime import Runtime

P = ParamSpec("P")
R = TypeVar("R")
_SAME_BREAK_MAX = 3  # unexplained breaks at one step after which the error counts as the script's own
log = logging.getLogger("holdfast.sdk")


def wrap(runtime: Runtime, function: Callable[P, R]) -> Callable[P, R]:
    """The function in a wrapper that runs it through all generations."""
    state = runtime.state

    @functools.wraps(function)
    def entered(*args: P.args, **kwargs: P.kwargs) -> R:
        if state.entry.inside:
            raise SessionError("an elastic function cannot be called from within another one")
        state.environment.check_entry()
        if state.closed:
            raise SessionError(f"{function.__name__}: this Session is closed: {state.closed}")
        agent, name = state.agent, function.__qualname__
        run = runtime.mistakes.watched(functools.partial(function, *args, **kwargs), function.__name__)
        runtime.forgotten.entered(function, (*runtime.after_step.callbacks, runtime.streams.from_script))
        runtime.again.entered()
        socket = state.environment.agent_socket
        with compiled.by_call_alone(socket), compiling.declared(state.progress, state.times):
            return alone.run(runtime, name, run) if agent is None else _Loop(runtime, agent, name, run).run()

    return entered


class _Loop:
    """One call of an elastic function."""

    def __init__(self, runtime: Runtime, agent: AgentClient, name: str, run: Callable[[], Any]) -> None:
        self._runtime, self._state = runtime, runtime.state
        self._agent, self._name, self._run = agent, name, run
        self._number = 0  # index, from 0, among the elastic functions that the script calls
        self._barrier, self._result = Barrier(runtime, agent, name), None
        self._returned = False  # this process ran the function itself: the result is its own
        self._apart = False  # some rank of the generation has not reached this function yet
        self._entered = False  # state of this function was restored in this process
        self._breaks = (0, 0)  # (step, breaks there while no interrupt had come)
        self._before = 0  # ranks of the generation before, if this process was in it, else of this one

    def run(self) -> Any:
        state, known = self._state, self._state.functions
        self._number = known.call(self._name)
        joined = known.joined
        at_end = joined is not None and known.marks(self._number, joined.formation.resume.step)
        if known.over(self._number) and not at_end:
            return self._passed()
        joined = self._begin()
        while True:
            formation = joined.formation if joined is not None else self._barrier.wait()
            if formation is None:
                if state.entry.tracks_inside:
                    state.tracked.objects.clear()
                return self._result
            try:
                state.entry.inside, state.entry.counted = True, 0
                joined = joined or self._enter(formation)
                if known.over(self._number) and not known.marks(self._number, formation.resume.step):
                    return self._join(joined)
                self._begin_state(joined)
                self._go_through(formation)
                self._finish()
            except BaseException as error:
                misuse.explain(error)
                if not self._recoverable(error):
                    known.thrown = f"{type(error).__name__} was raised in {self._name}"
                    raise
                self._state.groups.flight_record.keep(error)
                meeting.clear(error)
                self._leave(error)
            finally:
                self._runtime.streams.leave()
                self._runtime.replay.declared.leave()
                self._runtime.profiler.leave(f"the rank has left generation {state.generation}")
                state.entry.inside, joined = False, None
                self._runtime.formations.left()
            self._collect()

    def _begin(self) -> Joined | None:
        """Prepare this call. Returns the generation that already waits here for a late process, or None."""
        state, known = self._state, self._state.functions
        state.clean.step = -1
        state.entry.tracks_inside = not state.tracked.objects
        joined, known.joined = known.joined, None
        if joined is None and self._number and not known.behind:
            state.completed = state.clean.step = state.ended = known.base
        if joined is None:
            return None
        if self._agent.interrupted(joined.formation.number):
            self._collect()
            return None
        self._agent.send(rank_msg.Forming(joined.formation.number))
        return joined

    def _go_through(self, formation: Formation) -> None:
        known = self._state.functions
        if not known.over(self._number):
            self._runtime.again.called()
            try:
                self._result = self._run()
            finally:
                step_loop.drop(self._runtime)
            return
        stepping.restore(self._runtime)
        if not self._returned:
            self._result = known.value(self._number)

    def _join(self, joined: Joined) -> Any:
        """Return from a function that the other ranks have finished; they wait in a later one."""
        known = self._state.functions
        known.joined, known.behind = joined, True
        self._agent.send(rank_msg.Forming(joined.formation.number, "script"))
        return self._passed()

    def _passed(self) -> Any:
        """Return the result of a function that this process did not take part in."""
        joining.mark_absent(self._state, self._name)
        stepping.between(self._state)
        return self._state.functions.value(self._number)

    # ------------------------------------------------------------------ into a generation

    def _enter(self, formation: Formation) -> Joined:
        """Form the generation's groups, and agree with the other ranks on which functions are over."""
        state, agent = self._state, self._agent
        known, state.generation = state.generation, formation.number
        self._before = state.world_size if known else formation.world_size
        if formation.world_size != state.world_size:
            # If the state is sharded, this rank holds another part now: its shard id is reported again.
            state.announced_shard = ""
        self._runtime.streams.weighting.reset()
        meeting.take_place(state, formation.local_rank)
        state.rank, state.world_size = formation.rank, formation.world_size
        agent.send(rank_msg.Forming(formation.number))
        state.phase = "forming"
        state.progress.show("forming")
        if state.page is not None:
            state.page.generation = formation.number
        announce(formation)
        begun = time.monotonic()
        state.groups.form(formation)
        port = state.groups.formed()
        meeting.check_past(state, agent, self._name, self._number, formation)
        formed = time.monotonic()
        agreed = joining.agree(state, formation.resume, entered=self._entered)
        state.groups.check_alike()
        return Joined(formation, port, begun, formed, *agreed)

    def _begin_state(self, joined: Joined) -> None:
        """Restore the state now, or arrange that it is restored once the function has tracked its objects."""
        state, formation, port = self._state, joined.formation, joined.port
        state.functions.behind, self._apart, state.entry.first = False, joined.apart, joined.first
        joining.lift(state)
        if not state.functions.over(self._number):
            self._runtime.formations.formed()
        if state.entry.tracks_inside:
            rows = meeting.gather(state, [port])
            state.groups.narrow(port, {row[0] for row in rows})
            state.groups.grow()
            state.completed = formation.resume.step
        state.entry.pending = functools.partial(self._place, formation, port, joined.begun, joined.formed)
        if not state.entry.tracks_inside:
            stepping.restore(self._runtime)
            stepping.watch_for_overwriting(self._runtime)

    def _place(self, formation: Formation, port: int, begun: float, formed: float) -> None:
        if self._state.entry.tracks_inside:
            meeting.settle(self._state)
        self._restore(formation, port)
        self._go(formation, begun, formed)
        gather = functools.partial(meeting.gather, self._state)
        self._runtime.after_step.resume(formation.resume.step, gather)

    def _go(self, formation: Formation, begun: float, formed: float) -> None:
        state, agent = self._state, self._agent
        state.completed = formation.resume.step
        state.entry.fresh = formation.resume.step == state.functions.base
        state.entry.kept = None
        state.guard.arm()
        now = time.monotonic()
        state.entry.timing = (formed - begun, now - formed, now)
        values = (formation.number, formation.rank, state.completed)
        recovery_log.write(
            agent, logging.INFO, "in generation %d as rank %d: the state of step %d is restored", *values
        )
        agent.send(rank_msg.Running(formation.number, state.completed))
        state.phase = "running"
        state.progress.show("between")
        state.progress.mark("first")
        self._runtime.anomalies.begin()
        boundary.skip(self._runtime, formation.resume.skip)
        if state.page is not None:
            state.page.completed = state.completed
        if self._runtime.forgotten.things is None:  # else a framework deals out the samples
            misuse.tell_resized(state, self._before, dealt=self._runtime.streams.used)
        snapshotting.ask_early(state, agent)
        if self._number and state.entry.fresh:
            snapshotting.first(state, agent)

    def _restore(self, formation: Formation, port: int) -> None:
        """Restore the state; if that fails, report it and wait for the coordinator's decision."""
        state, resume = self._state, formation.resume
        if self._begins(resume):
            resume, state.clean.step = dataclasses.replace(resume, tier="fresh"), -1
        was_here = state.clean.step == resume.step
        try:
            ports = stepping.put_in_place(self._runtime, resume, port)
        except (RestoreError, StateError, ArenaError) as error:
            self._agent.send(rank_msg.RestoreFailed(formation.number, str(error)[:2000]))
            recovery_log.write(self._agent, logging.ERROR, "the state could not be restored: %s", error)
            self._agent.wait(lambda orders: orders.complete or orders.interrupted >= formation.number)
            raise Interrupted from error
        state.clean.step, state.clean.generation = resume.step, formation.number
        state.clean.received = not was_here and resume.step > state.functions.base
        self._entered = True
        if not state.entry.tracks_inside:
            state.groups.narrow(port, ports)

    def _begins(self, resume: Resume) -> bool:
        """Whether a later function begins with what each script has built. If some rank has begun it already,
        that rank may have trained since: then the first state comes from the snapshot taken of it."""
        whole = not (resume.sources or self._apart or self._state.entry.first >= 0)
        return bool(self._number) and resume.step == self._state.functions.base and whole

    # ------------------------------------------------------------------ out of a generation

    def _recoverable(self, error: BaseException) -> bool:
        """Whether the next generation can repair this error. A break that no interrupt explains is reported,
        and counts as the script's own after _SAME_BREAK_MAX times at one step."""
        state, agent = self._state, self._agent
        if isinstance(error, Interrupted) and not isinstance(error, CollectiveFailed):
            return True
        if not isinstance(error, Exception | CollectiveFailed) or isinstance(error, SessionError):
            return False
        if agent.interrupted(state.generation):
            return True
        if not isinstance(error, CollectiveFailed) and not state.groups.explain(error):
            return False
        step, times = self._breaks
        times = times + 1 if step == state.completed else 1
        self._breaks = (state.completed, times)
        if times > _SAME_BREAK_MAX:
            return False
        message = f"{type(error).__name__}: {error}"[:500]
        agent.send(rank_msg.Broken(state.generation, message))
        return True

    def _leave(self, error: BaseException) -> None:
        """Leave the generation: undo or complete the step that broke, and keep what is clean."""
        state = self._state
        snapshotting.settle(state)
        again = state.phase == "running" and state.guard.left_half
        if state.phase == "running":
            before, state.clean.step = state.completed, state.guard.settle(state.completed)
            if state.clean.step > before:  # only the step's tail was cut off: it counts
                stepping.record(self._runtime, before)
                again = False
            state.uncommitted.clear()
            state.ended = state.clean.step if state.clean.step >= 0 else before
        state.completed = state.clean.step if state.clean.step >= 0 else state.completed
        state.entry.timing = None
        if state.clean.step > 0 and self._agent.keeps(state.generation):
            leaving.preserve(state, self._agent)
        self._runtime.requests.end()
        if state.entry.tracks_inside:
            leaving.stow(state)
            self._runtime.again.release()
        values = (state.generation, state.completed, error)
        recovery_log.write(self._agent, logging.INFO, "left generation %d at step %d: %s", *values)
        self._barrier.looks = again
        if state.clean.step < 0 and state.guard.reason:
            recovery_log.write(self._agent, logging.INFO, "its state is not clean: %s", state.guard.reason)

    def _collect(self) -> None:
        """Dissolve the groups, after freeing the wrapped modules that refer to them."""
        state = self._state
        if self._barrier.finished:
            return
        if any(reference() is not None for reference in state.entry.wrapped):
            gc.collect()
        state.entry.wrapped.clear()
        state.groups.dissolve()

    # ------------------------------------------------------------------ the end

    def _finish(self) -> None:
        """Report that the function is over here, and keep its final state together with its result."""
        stepping.restore(self._runtime)
        self._state.check_interrupted()
        self._state.entry.last_step = self._state.completed + 1  # a step left by `break` is the last one too
        stepping.after_break(self._runtime)
        self._state.guard.beside.unwatch()
        stepping.commit(self._runtime)
        ending.settle_numbers(self._runtime)
        ending.keep_value(self._state, self._name, self._result)
        self._returned = True
        reason = ending.report_finished(self._state, self._agent)
        self._barrier.finished = True
        ending.wait_for_room(self._state, self._agent, reason)
