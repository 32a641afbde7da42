"""The re-entered loop: barrier, form, restore, train, and on a break back to the barrier."""

from __future__ import annotations

import dataclasses
import functools
import gc
import logging
import sys
import time
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from holdfast.agreement import restore
from holdfast.environment import announce
from holdfast.errors import AwayError, CollectiveFailed, Interrupted, RestoreError, SessionError, StateError
from holdfast.groups.groups import is_broken_collective
from holdfast.ipc.shm import ArenaError
from holdfast.reentry import alone, ending, joining, leaving, lines, meeting, misuse, own_reports, stepping
from holdfast.reentry.functions import Joined
from holdfast.snapshots import keeping

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.groups.formation import Formation, Resume
    from holdfast.ipc.frames import Message
    from holdfast.reentry.agent_client import Gate, Orders
    from holdfast.session import Session

P = ParamSpec("P")
R = TypeVar("R")
_SAME_BREAK_MAX = 3  # breaks at the same step that nobody else knows of: then it is the script's own
log = logging.getLogger("holdfast.sdk")


def wrap(session: Session, function: Callable[P, R]) -> Callable[P, R]:
    """The function under the session's care."""

    @functools.wraps(function)
    def entered(*args: P.args, **kwargs: P.kwargs) -> R:
        if session._inside:
            raise SessionError("an elastic function cannot be entered from within one")
        session._environment.check_entry()
        if session._closed:
            raise SessionError(f"{function.__name__}: this Session is over: {session._closed}")
        gate, name = session._gate, function.__qualname__
        run = session._mistakes.watched(functools.partial(function, *args, **kwargs), function.__name__)
        return alone.run(session, name, run) if gate is None else _Loop(session, gate, name, run).run()

    return entered


class _Loop:
    """One call of an elastic function."""

    def __init__(self, session: Session, gate: Gate, name: str, run: Callable[[], Any]) -> None:
        self._session, self._gate, self._name, self._run = session, gate, name, run
        self._number = 0  # of all functions that the script calls
        self._finished, self._result = False, None
        self._returned = False  # its result is this process's own
        self._apart = False  # some rank of the generation has yet to come to this function
        self._entered = False  # a state of this function has been put in place in this process ...
        self._entered_by_some = False  # ... or in that of some rank of the generation
        self._breaks = (0, 0)  # (step, breaks there that no interrupt explained)

    def run(self) -> Any:
        session, known = self._session, self._session._functions
        self._number = known.call(self._name)
        joined = known.joined
        at_end = joined is not None and known.marks(self._number, joined.formation.resume.step)
        if known.over(self._number) and not at_end:
            return self._passed()
        joined = self._begin()
        while True:
            formation = joined.formation if joined is not None else self._barrier()
            if formation is None:
                if session._late:
                    session._tracked.objects.clear()
                return self._result
            try:
                session._inside = True
                joined = joined or self._enter(formation)
                if known.over(self._number) and not known.marks(self._number, formation.resume.step):
                    return self._join(joined)
                self._begin_state(joined)
                self._go_through(formation)
                self._finish()
            except BaseException as error:
                misuse.explain(error)
                if not self._recoverable(error):
                    known.thrown = f"{type(error).__name__} has left {self._name}"
                    raise
                meeting.clear(error)
                self._leave(error)
            finally:
                session._streams.leave()
                session._inside, joined = False, None
            self._collect()

    def _begin(self) -> Joined | None:
        """This process comes to the function that runs, or comes next, with what the script has built. The
        generation that waits for it there, if one does."""
        session, known = self._session, self._session._functions
        session._held = -1
        session._late = not session._tracked.objects
        joined, known.joined = known.joined, None
        if joined is None and self._number and not known.behind:
            session._completed = session._held = session._ended = known.base
        if joined is None:
            return None
        if self._gate.interrupted(joined.formation.number):
            self._collect()
            return None
        self._gate.say({"op": "forming", "generation": joined.formation.number})
        return joined

    def _go_through(self, formation: Formation) -> None:
        known = self._session._functions
        if not known.over(self._number):
            self._result = self._run()
            return
        self._session.restore()
        if not self._returned:
            self._result = known.value(self._number)

    def _join(self, joined: Joined) -> Any:
        """The others have this function behind them: the generation waits for this process in theirs."""
        known = self._session._functions
        known.joined, known.behind = joined, True
        told = {"op": "forming", "generation": joined.formation.number, "activity": "script"}
        self._gate.say(told)
        return self._passed()

    def _passed(self) -> Any:
        """What a function returned that this process was not in."""
        joining.mark_absent(self._session, self._name)
        stepping.between(self._session)
        return self._session._functions.value(self._number)

    # ------------------------------------------------------------------ barrier

    def _barrier(self) -> Formation | None:
        """Wait for the next generation; None when the function is over on all ranks."""
        session, gate = self._session, self._gate
        if not self._finished:
            gate.say(self._ready(), keep=True)
            session._phase = "ready"
            session._progress.show("barrier")
            leaving.let_go(session)
        orders = self._await()
        gate.forget("ready")
        if orders.refused:
            raise AwayError(f"the agent refused this process: {orders.refused}")
        if orders.complete is not None:
            self._end(orders.complete)
        if self._finished:
            self._return()
            return None
        return orders.form

    def _ready(self) -> dict[str, Any]:
        session = self._session
        return {
            "op": "ready",
            "generation": session._generation,
            "held_step": session._held,
            "held_generation": session._held_in,
            "ended_step": own_reports.ended(session),
            "step": session._completed,
        }

    def _await(self) -> Orders:
        session, gate = self._session, self._gate
        gate.wait(self._moved)
        if self._finished and not self._over(gate.orders):
            self._finished = False  # a peer was lost before the job's end: it may need this state
            gate.forget("finished")
            session._asking.end()
            session._held = session._ended = session._completed
            if session._late:
                leaving.stow(session)
            session._groups.dissolve()
            gate.say(self._ready(), keep=True)
            session._phase = "ready"
            leaving.let_go(session)
            gate.wait(self._moved)
        return gate.orders

    def _moved(self, orders: Orders) -> bool:
        session = self._session
        if self._over(orders):
            return True
        if self._finished:
            return orders.interrupted >= session._generation
        form = orders.form
        return form is not None and form.number > max(session._generation, orders.interrupted)

    def _over(self, orders: Orders) -> bool:
        """Whether there is nothing more to wait for."""
        if orders.complete is not None or orders.refused:
            return True
        return self._finished and orders.returned >= self._session._generation

    def _return(self) -> None:
        """All ranks have finished, and the final state is safe: the script goes on, without its groups."""
        ending.leave(self._session, self._gate, self._name)

    def _end(self, message: Message) -> None:
        """The job is over. Who has no result to give (a spare, or a job that failed) ends here."""
        self._session._asking.end("the job has ended, and nothing was said of the checkpoint")
        self._session._groups.dissolve()
        self._session._phase = "finished"
        if not message.get("ok", True):
            reason = str(message.get("reason", "no reason given"))
            sys.exit(f"the job has ended: {reason.partition(chr(10))[0]}")  # whoever raised has the traceback
        if not self._finished:
            sys.exit(0)

    # ------------------------------------------------------------------ into a generation

    def _enter(self, formation: Formation) -> Joined:
        """Meet the others, and agree with them on the functions that are over."""
        session, gate = self._session, self._gate
        session._generation = formation.number
        if formation.world_size != session._world_size:
            session._said_shard = ""  # of state in shards, this rank holds another part from now on
        session._weighting.reset()
        meeting.take_place(session, formation.local_rank)
        session._rank, session._world_size = formation.rank, formation.world_size
        gate.say({"op": "forming", "generation": formation.number})
        session._phase = "forming"
        session._progress.show("forming")
        if session._board is not None:
            session._board.generation = formation.number
        announce(formation)
        begun = time.monotonic()
        session._groups.form(formation)
        port = session._groups.formed()
        meeting.check_past(session, gate, self._name, self._number, formation)
        formed = time.monotonic()
        agreed = joining.agree(session, formation.resume, entered=self._entered)
        session._groups.check_alike()
        return Joined(formation, port, begun, formed, *agreed)

    def _begin_state(self, joined: Joined) -> None:
        """Put the state in place, or have it put there when what is tracked is made."""
        session, formation, port = self._session, joined.formation, joined.port
        session._functions.behind, self._apart, self._entered_by_some = False, joined.apart, joined.entered
        joining.lift(session)
        if session._late:
            rows = meeting.gather(session, [port])
            session._groups.narrow(port, {row[0] for row in rows})
            session._groups.grow()
            session._completed = formation.resume.step
        session._pending = functools.partial(self._place, formation, port, joined.begun, joined.formed)
        if not session._late:
            session.restore()

    def _place(self, formation: Formation, port: int, begun: float, formed: float) -> None:
        if self._session._late:
            meeting.settle(self._session)
        self._restore(formation, port)
        self._go(formation, begun, formed)
        gather = functools.partial(meeting.gather, self._session)
        self._session._after.resume(formation.resume.step, gather)

    def _go(self, formation: Formation, begun: float, formed: float) -> None:
        session, gate = self._session, self._gate
        session._completed = formation.resume.step
        session._fresh = formation.resume.step == session._functions.base
        session._kept = None
        session._guard.arm()
        now = time.monotonic()
        session._first_of_generation = (formed - begun, now - formed, now)
        told = (formation.number, formation.rank, session._completed)
        lines.tell(gate, logging.INFO, "in generation %d as rank %d: the state of step %d is in place", *told)
        gate.say({"op": "running", "generation": formation.number, "step": session._completed})
        session._phase = "running"
        session._progress.show("between")
        session._progress.mark("first")
        session._numbers.begin()
        keeping.skip(session, formation.resume.skip)
        if session._board is not None:
            session._board.completed = session._completed
        keeping.ask_early(session, gate)
        if self._number and session._fresh:
            keeping.first(session, gate)

    def _restore(self, formation: Formation, port: int) -> None:
        session, resume = self._session, formation.resume
        if self._begins(resume):
            resume, session._held = dataclasses.replace(resume, tier="fresh"), -1
        own = session._held == resume.step
        try:
            ports = restore.restore(session, resume, port)
        except (RestoreError, StateError, ArenaError) as error:
            self._gate.say(
                {"op": "restore_failed", "generation": formation.number, "reason": str(error)[:2000]}
            )
            lines.tell(self._gate, logging.ERROR, "state could not be put in place: %s", error)
            self._gate.wait(lambda orders: orders.complete or orders.interrupted >= formation.number)
            raise Interrupted from error
        session._held, session._held_in = resume.step, formation.number
        session._given = not own and resume.step > session._functions.base
        self._entered = True
        if not session._late:
            session._groups.narrow(port, ports)

    def _begins(self, resume: Resume) -> bool:
        """Whether a later function begins now: with what each rank's script has made for it. Once a rank has
        had a state of it, that is trained, and the beginning comes from where it was kept."""
        whole = not (resume.sources or self._apart or self._entered_by_some)
        return bool(self._number) and resume.step == self._session._functions.base and whole

    # ------------------------------------------------------------------ out of a generation

    def _recoverable(self, error: BaseException) -> bool:
        session, gate = self._session, self._gate
        if isinstance(error, Interrupted) and not isinstance(error, CollectiveFailed):
            return True
        if not isinstance(error, Exception | CollectiveFailed) or isinstance(error, SessionError):
            return False
        if gate.interrupted(session._generation):
            return True
        if not isinstance(error, CollectiveFailed) and not is_broken_collective(error):
            return False
        step, times = self._breaks
        times = times + 1 if step == session._completed else 1
        self._breaks = (session._completed, times)
        if times > _SAME_BREAK_MAX:
            return False
        message = f"{type(error).__name__}: {error}"[:500]
        gate.say({"op": "broken", "generation": session._generation, "message": message})
        return True

    def _leave(self, error: BaseException) -> None:
        session = self._session
        if session._phase == "running":
            before, session._held = session._completed, session._guard.settle(session._completed)
            if session._held > before:  # only its tail was missing: the step counts
                stepping.record(session, before)
            session._uncommitted.clear()
            session._ended = session._held if session._held >= 0 else before
        session._completed = session._held if session._held >= 0 else session._completed
        session._first_of_generation = None
        if session._held > 0 and self._gate.keeps(session._generation):
            leaving.preserve(session, self._gate)
        session._asking.end()
        if session._late:
            leaving.stow(session)
        told = (session._generation, session._completed, error)
        lines.tell(self._gate, logging.INFO, "left generation %d at step %d: %s", *told)
        if session._held < 0 and session._guard.reason:
            lines.tell(self._gate, logging.INFO, "its state is not clean: %s", session._guard.reason)

    def _collect(self) -> None:
        """The groups go, and the wrappers that were tied to them."""
        session = self._session
        if self._finished:
            return
        if any(reference() is not None for reference in session._wrapped):
            gc.collect()
        session._wrapped.clear()
        session._groups.dissolve()

    # ------------------------------------------------------------------ the end

    def _finish(self) -> None:
        """Say so, and keep the final state with what the function has returned."""
        self._session.restore()
        stepping.check_interrupted(self._session)
        self._session._last = self._session._completed + 1  # one that was left by a break is the last, too
        stepping.after_break(self._session)
        stepping.commit(self._session)
        ending.keep_value(self._session, self._name, self._result)
        self._returned = True
        reason = ending.say(self._session, self._gate)
        self._finished = True
        ending.wait_for_room(self._session, self._gate, reason)
