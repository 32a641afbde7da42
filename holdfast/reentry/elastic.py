"""The re-entered loop: barrier, form, restore, train, and on a break back to the barrier."""

from __future__ import annotations

import dataclasses
import functools
import gc
import logging
import sys
import time
import traceback
import weakref
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import torch.distributed as dist

from holdfast.checkpoint.shm import ArenaError
from holdfast.environment import announce
from holdfast.errors import AwayError, CollectiveFailed, Interrupted, RestoreError, SessionError, StateError
from holdfast.reentry import lines, misuse, restore, stepping
from holdfast.reentry.formation import Resume
from holdfast.reentry.groups import carrier, gather_numbers, is_broken_collective
from holdfast.state import keeping

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.ipc.frames import Message
    from holdfast.reentry.formation import Formation
    from holdfast.reentry.gate import Gate, Orders
    from holdfast.session import Session
    from holdfast.state.snapshot import Kept

P = ParamSpec("P")
R = TypeVar("R")
_SAME_BREAK_MAX = 3  # breaks at the same step that nobody else knows of: then it is the script's own
_LAST_SNAPSHOT_S = 60.0  # how long the end of training waits for room for its snapshot
_ROOM_WAIT_S = 2.0  # how long the end of a generation waits for room for its snapshot
_POLL_S = 0.05
log = logging.getLogger("holdfast.sdk")


def wrap(session: Session, function: Callable[P, R]) -> Callable[P, R]:
    """The function under the session's care."""

    @functools.wraps(function)
    def entered(*args: P.args, **kwargs: P.kwargs) -> R:
        if session._inside:
            raise SessionError("an elastic function cannot be entered from within one")
        gate = session._gate
        run = session._mistakes.watched(functools.partial(function, *args, **kwargs), function.__name__)
        return _alone(session, run) if gate is None else _Loop(session, gate, run).run()

    return entered


def _alone(session: Session, run: Callable[[], R]) -> R:
    """No agent: one pass, in torchrun's process group if there is one."""
    session._inside = True
    session._late = not session._tracked.objects
    own = session._world_size > 1 and not dist.is_initialized()
    try:
        if own:
            dist.init_process_group(session._backend)
        if dist.is_initialized():
            session._rank, session._world_size = dist.get_rank(), dist.get_world_size()
        session._pending = functools.partial(_begin_alone, session)
        if not session._late:
            session.restore()
        return run()
    finally:
        session._inside, session._pending = False, None
        if session._late:
            session._tracked.objects.clear()
        if own and dist.is_initialized():
            dist.destroy_process_group()


def _begin_alone(session: Session) -> None:
    restore.restore(session, Resume("fresh", 0, 0), 0)
    session._guard.arm()


class _Loop:
    """One call of an elastic function."""

    def __init__(self, session: Session, gate: Gate, run: Callable[[], Any]) -> None:
        self._session, self._gate, self._run = session, gate, run
        self._finished, self._result = False, None
        self._breaks = (0, 0)  # (step, breaks there that no interrupt explained)

    def run(self) -> Any:
        session = self._session
        session._held = -1
        session._late = not session._tracked.objects
        while True:
            formation = self._barrier()
            if formation is None:
                if session._late:
                    session._tracked.objects.clear()
                return self._result
            try:
                session._inside = True
                self._enter(formation)
                self._result = self._run()
                self._finish()
            except BaseException as error:
                misuse.explain(error)
                if not self._recoverable(error):
                    raise
                _clear(error)
                self._leave(error)
            finally:
                session._inside = False
            self._collect()

    # ------------------------------------------------------------------ barrier

    def _barrier(self) -> Formation | None:
        """Wait for the next generation; None when the job is complete."""
        session, gate = self._session, self._gate
        if not self._finished:
            gate.say(self._ready(), keep=True)
            session._phase = "ready"
            session._progress.show("barrier")
            self._let_go()
        orders = self._await()
        gate.forget("ready")
        if orders.refused:
            raise AwayError(f"the agent refused this process: {orders.refused}")
        if orders.complete is not None:
            self._end(orders.complete)
            return None
        return orders.form

    def _ready(self) -> dict[str, Any]:
        session = self._session
        return {
            "op": "ready",
            "generation": session._generation,
            "held_step": session._held,
            "held_generation": session._held_in,
            "step": session._completed,
        }

    def _await(self) -> Orders:
        session, gate = self._session, self._gate
        gate.wait(self._moved)
        if self._finished and gate.orders.complete is None and not gate.orders.refused:
            self._finished = False  # a peer was lost before the job's end: it may need this state
            gate.forget("finished")
            session._asking.end()
            session._held = session._completed
            if session._late:
                self._stow()
            session._groups.dissolve()
            gate.say(self._ready(), keep=True)
            session._phase = "ready"
            self._let_go()
            gate.wait(self._moved)
        return gate.orders

    def _moved(self, orders: Orders) -> bool:
        session = self._session
        if orders.complete is not None or orders.refused:
            return True
        if self._finished:
            return orders.interrupted >= session._generation
        form = orders.form
        return form is not None and form.number > max(session._generation, orders.interrupted)

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

    def _enter(self, formation: Formation) -> None:
        session, gate = self._session, self._gate
        session._generation = formation.number
        if formation.world_size != session._world_size:
            session._said_shard = ""  # of state in shards, this rank holds another part from now on
        session._weighting.reset()
        _take_place(session, formation.local_rank)
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
        formed = time.monotonic()
        if session._late:
            rows = self._gather([port])
            session._groups.narrow(port, {row[0] for row in rows})
            session._groups.grow()
            session._completed = formation.resume.step
        session._pending = functools.partial(self._place, formation, port, begun, formed)
        if not session._late:
            session.restore()

    def _place(self, formation: Formation, port: int, begun: float, formed: float) -> None:
        if self._session._late:
            self._settle()
        self._restore(formation, port)
        self._go(formation, begun, formed)

    def _gather(self, numbers: list[int]) -> list[list[int]]:
        session = self._session
        device = carrier(session._backend, session.device)
        return gather_numbers(numbers, device, session._world_size)

    def _settle(self) -> None:
        """Meshes have been made in the function: learn which connections are their groups'."""
        session = self._session
        if session._backend != "gloo":
            return
        own = session._groups.listeners()
        counts = self._gather([len(own)])
        most = max(row[0] for row in counts)
        if most > 1:
            rows = self._gather([*own, *[0] * (most - len(own))])
            session._groups.settle(set(own), {port for row in rows for port in row if port})
        else:
            session._groups.settle(set(), set())

    def _go(self, formation: Formation, begun: float, formed: float) -> None:
        session, gate = self._session, self._gate
        session._completed = formation.resume.step
        session._fresh = formation.resume.step == 0
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
        if session._completed:
            keeping.ask_for_room(session, gate)

    def _restore(self, formation: Formation, port: int) -> None:
        session, resume = self._session, formation.resume
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
        if not session._late:
            session._groups.narrow(port, ports)

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
        session._completed = session._held if session._held >= 0 else session._completed
        session._first_of_generation = None
        if session._held > 0 and self._gate.keeps(session._generation):
            self._preserve()
        session._asking.end()
        if session._late:
            self._stow()
        told = (session._generation, session._completed, error)
        lines.tell(self._gate, logging.INFO, "left generation %d at step %d: %s", *told)

    def _preserve(self) -> None:
        """The places are to change: a snapshot of just this state, before anything goes."""
        session, gate = self._session, self._gate
        if session._made == (session._completed, session._generation):
            return
        reason = keeping.insist(session, gate, keeping.snapshot(session, gate), _ROOM_WAIT_S)
        if reason:
            keeping.skipped(session, gate, reason)

    def _stow(self) -> None:
        """What was tracked in the function goes with it; its state is kept if it is clean."""
        session, kept = self._session, self._session._kept
        if session._held < 0 or kept is None or kept.step != session._held:
            session._kept = None
            if session._held >= 0:
                session._kept = self._keep()
        session._old += [weakref.ref(module) for module in session._tracked.modules]
        session._pending = None
        session._tracked.objects.clear()
        session._guard.disarm()

    def _keep(self) -> Kept | None:
        session = self._session
        try:
            return session._snapshots.keep(session._held)
        except StateError as error:  # what the user's state_dict hides is held no more
            log.warning("the state of step %d is given up: %r", session._held, error)
            session._held = -1
            return None

    def _let_go(self) -> None:
        """Free the models of the generation before: they hang in cycles with their groups."""
        session = self._session
        if any(reference() is not None for reference in session._old):
            gc.collect()
        session._old.clear()

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
        """Say so, and keep the final state: what holds its slot goes once the coordinator knows that all
        have finished."""
        session, gate = self._session, self._gate
        session.restore()
        stepping.check_interrupted(session)
        stepping.after_break(session)
        reason = keeping.last(session, gate)
        session._held = session._completed
        gate.say({"op": "finished", "generation": session._generation, "step": session._completed}, keep=True)
        session._phase = "finished"
        session._progress.show("finished")
        self._finished = True
        deadline = time.monotonic() + _LAST_SNAPSHOT_S
        while reason and not gate.orders.complete and time.monotonic() < deadline:
            if gate.interrupted(session._generation):
                return
            gate.wait(lambda orders: orders.interrupted >= session._generation, _POLL_S)
            reason = keeping.snapshot(session, gate)
        if reason:
            keeping.skipped(session, gate, reason)


def _take_place(session: Session, local_rank: int) -> None:
    """Its place on the node, as the coordinator has it: a spare process learns it only now."""
    if session._device is None:
        session._environment = dataclasses.replace(session._environment, local_rank=local_rank)


def _clear(error: BaseException) -> None:
    """Free what the frames of a caught exception hold: the wrapped model above all."""
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        found = pending.pop()
        if found is None or id(found) in seen:
            continue
        seen.add(id(found))
        traceback.clear_frames(found.__traceback__)
        pending += [found.__cause__, found.__context__]
        found.__traceback__ = None
