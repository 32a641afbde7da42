"""Record how this rank spends its steps, and write the sums to its progress page.

There is always one present phase. `switch` ends it and begins another one: the time since the last switch is
its own. A wait interrupts a phase (`within`), which goes on afterwards, so nothing is counted twice, and the
phases of a step add up to its wall time. CPU time is read only where own work begins or ends: reading it is
a system call.

Sums are written to the page when a step is complete, but not more often than it takes to be worth it
(`policy.WRITE_EVERY_NS`), and at the end of a loop.

Waits for data, for other ranks (in Python) and for snapshots are recorded in every step. Forward, backward
and optimizer are recorded in measured steps only, if measuring each would cost too much (`policy`). A step
that is not completed is not counted: `begin` forgets it.

The thread that trains calls this, and on a GPU the autograd engine's thread while the former waits for it."""

from __future__ import annotations

import functools
import threading
import time
from typing import TYPE_CHECKING, Any

from holdfast.anatomy import policy
from holdfast.anatomy.division import Division
from holdfast.anatomy.memory import EVERY_NS
from holdfast.ipc.step_times import FLOPS_UNIT, NAMES, StepSums

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from holdfast.anatomy.facts import FactsWriter
    from holdfast.anatomy.gpu import GpuTimes
    from holdfast.ipc.step_times import StepTimesPage

DATA, FORWARD, BACKWARD, COMMUNICATION, OPTIMIZER, SNAPSHOT, OTHER, LOSS, REDUCTION, DECLARED = range(10)
"""Phases. LOSS: from the end of a forward pass, until it is known whether a backward pass follows; REDUCTION:
after the gradients are computed, until DDP has those of the other ranks; DECLARED: other work that the script
has declared, and what follows a step."""
PHASES = 10
_OWN = tuple(phase in (FORWARD, BACKWARD, OPTIMIZER, LOSS) for phase in range(PHASES))
_WAITS = (DATA, COMMUNICATION, SNAPSHOT, DECLARED)  # measured in every step
_WAITS_GPU = (SNAPSHOT, DECLARED)  # with a GPU, which works on meanwhile: the others may cost nothing
_PLACE = {name: index for index, name in enumerate(NAMES)}
_FIRST = _PLACE["data_ns"]  # the phases DATA to OTHER lie in this order
_SUM_OF = [_FIRST + phase for phase in (*range(OTHER + 1), FORWARD, COMMUNICATION, OTHER)]
_WALL, _CPU, _COVERED, _LONGEST = (_PLACE[name] for name in ("wall_ns", "cpu_ns", "covered", "longest_ns"))
_STEPS, _LAST, _GENERATION = _PLACE["steps"], _PLACE["last_step"], _PLACE["generation"]
_MEMORY, _MEMORY_PEAK = _PLACE["memory_bytes"], _PLACE["memory_peak_bytes"]
_SAMPLES, _TOKENS, _FLOPS = _PLACE["samples"], _PLACE["tokens"], _PLACE["flops"]


class StepRecorder:
    """The recorder of one session; without a page it does nothing. The clocks give ns."""

    def __init__(
        self,
        page: StepTimesPage | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
        cpu_clock: Callable[[], int] | None = None,  # None: that of the thread that trains
        memory: Callable[[], tuple[int, int]] | None = None,  # bytes: now, and the most so far
        facts: FactsWriter | None = None,  # written when the memory is read
    ) -> None:
        self._page, self._clock = page, clock
        self._cpu_clock, self._cpu_clock_given = cpu_clock or _no_clock, cpu_clock is not None
        self._memory, self._memory_due = memory, 0
        self.facts = facts if page is not None else None
        self.gpu: GpuTimes | None = None
        self.owner = 0  # the thread that trains
        self.running = False  # a loop over steps runs
        self.measuring = False  # the present step is measured
        self.calls = self.passes = 0  # module calls, and ended backward passes, of this step
        self.base = OTHER  # the phase outside of forward and backward passes
        self.depth = 0  # waits that interrupt a phase now: what modules do meanwhile is not training
        self._phase, self._loop = OTHER, 0
        self._last = self._step_began = self._cpu_last = 0
        self._spent, self._cpu = [0] * PHASES, 0
        self._division = Division(PHASES)
        self._measured, self._due = 0, 0  # steps measured in this loop; steps until the next one
        self._held, self._held_ns = [0] * PHASES, 0  # waits and time of steps that are not divided yet
        self._held_steps = self._held_samples = 0  # that are in no sum yet
        self._newest: tuple[int, int] | None = None  # complete step, and its generation
        self._body_phase = -1  # the phase in which the step's body ended; -1: it has not
        self._write_due = 0
        self._declared: list[Any] | None = None  # tokens and flops of this step
        self._flops = 0.0  # of all steps
        start = page.read() if page is not None else None
        self._sums = [getattr(start or StepSums(), name) for name in NAMES]
        self._longest = self._sums[_LONGEST]

    @property
    def on(self) -> bool:
        """Whether anything is recorded."""
        return self._page is not None

    @property
    def covered(self) -> bool:
        """Whether hooks have told forward from backward in this step."""
        return self.calls > 0 and self.passes > 0

    def close(self) -> None:
        """Record nothing any more."""
        self._page, self.running, self.measuring = None, False, False

    # ------------------------------------------------------------------ steps

    def begin(self) -> int:
        """Begin a loop over steps, and forget a step that was not completed. Returns the loop's number."""
        self._loop += 1
        if self._page is None:
            return self._loop
        self.owner = threading.get_ident()
        if not self._cpu_clock_given:  # any thread may read the clock of this one
            clock_id = time.pthread_getcpuclockid(self.owner)
            self._cpu_clock = functools.partial(time.clock_gettime_ns, clock_id)
        self.running, self._measured, self.depth, self._body_phase = True, 0, 0, -1
        if self.gpu is not None:
            self.gpu.forget()
        if self.facts is not None:
            self.facts.forget()
        self._next(self._clock(), measuring=True)
        return self._loop

    def stop(self, loop: int = 0) -> None:
        """End the loop with this number (0: whichever runs), unless another one has begun: the time from here
        on is no step's."""
        if loop in (0, self._loop) and self.running:
            self.running = self.measuring = False
            self._write(self._clock())

    def body_ends(self) -> None:
        """The body of a step has ended: until `complete`, the time is that of its boundary. Only the thread
        that trains calls this."""
        if self.running:
            now, phase = self._clock(), self._phase
            if self.measuring:
                self._count(now)
                if _OWN[phase]:
                    self._read_cpu()
            else:
                self._spent[phase] += now - self._last
                self._last = now
            self._body_phase, self._phase = phase, DECLARED
            self.depth += 1

    def complete(self, step: int, generation: int, samples: int) -> None:
        """Complete a step. `samples`: of this rank's share; 0: not known."""
        if self._page is None or not self.running:
            return
        now, measured = self._clock(), self.measuring
        self._count(now)
        if self._body_phase >= 0:
            self._leave_body()
        if self._declared is not None:
            self._add_declared(self._declared)
        wall = now - self._step_began
        self._longest = max(self._longest, wall)
        self._newest = step, generation
        if measured:
            self._settle_held()
            self._measured += 1
            self._due = policy.gap(self.calls, wall, self._measured)
            self._learn()
            self._add(wall, self._spent, exact=self.gpu is None)
        else:
            held, spent = self._held, self._spent
            for phase in _WAITS:
                held[phase] += spent[phase]
            self._held_ns += wall
            if not self._division.rates:  # nothing was measured: each step is counted as it is
                self._add(wall, spent, exact=True)
                self._held, self._held_ns = [0] * PHASES, 0
        self._held_steps += 1
        self._held_samples += samples
        if measured or now >= self._write_due:
            self._write(now)
        self._due -= 1
        if measured or self._due <= 0:
            self._next(now, measuring=self._due <= 0)
            return
        self._step_began = self._last = now  # the rest is as it was: nothing else changes in such a step
        self._spent = [0] * PHASES
        if not self.depth:
            self._phase = OTHER

    def _leave_body(self) -> None:
        """Leave the boundary that `body_ends` has entered."""
        self.depth = max(self.depth - 1, 0)
        before, self._body_phase = self._body_phase, -1
        self._phase = before if self.measuring or not _OWN[before] else OTHER
        if self.measuring and _OWN[before]:
            self._cpu_last = self._cpu_clock()

    def _settle_held(self) -> None:
        """Divide the steps that are held."""
        if self._held_ns:
            self._add(self._held_ns, self._held, exact=False)
            self._held, self._held_ns = [0] * PHASES, 0

    def _add_declared(self, declared: list[Any]) -> None:
        """Add what the script has declared in this step."""
        self._declared = None
        self._sums[_TOKENS] += declared[0]
        self._flops += declared[1]
        self._sums[_FLOPS] = int(self._flops / FLOPS_UNIT)

    def _write(self, now: int) -> None:
        """Write the sums to the page, and what is read seldom."""
        self._settle_held()
        self._write_due = now + policy.WRITE_EVERY_NS
        sums = self._sums
        sums[_STEPS] += self._held_steps
        sums[_SAMPLES] += self._held_samples
        self._held_steps = self._held_samples = 0
        sums[_LONGEST] = self._longest
        if self._newest is not None:
            sums[_LAST], sums[_GENERATION] = self._newest
        if self._memory is not None and now >= self._memory_due:
            self._memory_due = now + EVERY_NS
            sums[_MEMORY], sums[_MEMORY_PEAK] = self._memory()
            if self.facts is not None:
                self.facts.write(sums[_MEMORY])
        if self._page is not None:
            self._page.put(sums)

    def count(self, tokens: int, flops: float) -> None:
        """Add what the script declares for this step."""
        if self._declared is None:
            self._declared = [tokens, flops]
        else:
            self._declared[0] += tokens
            self._declared[1] += flops

    def _next(self, now: int, *, measuring: bool) -> None:
        """Begin a step."""
        self.measuring, self._step_began, self._last = measuring, now, now
        self.calls = self.passes = self._cpu = 0
        self.base = OTHER
        if not self.depth:
            self._phase = OTHER
        self._spent = [0] * PHASES
        self._declared = None
        if measuring and self.gpu is not None:
            self.gpu.begin()

    # ------------------------------------------------------------------ phases

    def switch(self, phase: int) -> None:
        """End the present phase and begin another one. Only in a measured step."""
        self._count(self._clock())
        if _OWN[self._phase] != _OWN[phase]:
            self._read_cpu()
        self._phase = phase

    def settle(self, *, backward: bool) -> None:
        """Decide what the time since the newest forward pass was: of the loss if a backward pass follows."""
        if self._phase == LOSS:
            self._count(self._clock())
        phase = FORWARD if backward else OTHER
        self._spent[phase] += self._spent[LOSS]
        self._spent[LOSS] = 0
        if self.gpu is not None:
            self.gpu.relabel(LOSS, phase)

    def within(self, phase: int) -> _Within:
        """A context that interrupts the present phase by a wait."""
        return _Within(self, phase)

    def enter(self, phase: int) -> int:
        """Interrupt the present phase. Returns it for `leave`, or -1 if nothing is recorded."""
        if not self.running or threading.get_ident() != self.owner:
            return -1
        before = self._phase
        self._count(self._clock())
        if self.measuring and _OWN[before]:
            self._read_cpu()
        self._phase = phase
        self.depth += 1
        return before

    def leave(self, before: int) -> None:
        """Go on with the phase that was interrupted, unless the step's end came in between."""
        if before < 0:
            return
        self._count(self._clock())
        self.depth = max(self.depth - 1, 0)
        self._phase = before if self.measuring or not _OWN[before] else OTHER
        if self.measuring and _OWN[before]:
            self._cpu_last = self._cpu_clock()

    def _count(self, now: int) -> None:
        """Count the time until now to the present phase."""
        if self.measuring and self.gpu is not None:
            self.gpu.mark(self._phase)
        self._spent[self._phase] += now - self._last
        self._last = now

    def _read_cpu(self) -> None:
        """Own work begins or ends."""
        now = self._cpu_clock()
        if _OWN[self._phase]:
            self._cpu += now - self._cpu_last
        self._cpu_last = now

    # ------------------------------------------------------------------ the step's end

    def _learn(self) -> None:
        """Learn from a measured step how steps are divided; on a GPU, from steps that it has finished."""
        self.settle(backward=False)
        if _OWN[self._phase]:
            self._read_cpu()
        gpu = self.gpu
        if gpu is None:
            self._sums[_COVERED] += self.covered
            self._division.learn(self._spent, self._cpu, without=_WAITS)
            return
        gpu.end(covered=self.covered, cpu_ns=self._cpu)
        for done in gpu.done():
            self._sums[_COVERED] += done.covered
            self._division.learn(done.spent_ns, done.cpu_ns, without=_WAITS_GPU)
        if gpu.failed:
            self._division = Division(PHASES)

    def _add(self, wall: int, spent: list[int], *, exact: bool) -> None:
        """Add the time of steps to the sums of their phases: as it was measured, or divided like that of
        steps that were."""
        sums, gpu = self._sums, self.gpu
        rates = self._division.rates
        exact = exact or not rates
        sums[_WALL] += wall
        left = wall
        for phase in range(OTHER) if exact else _WAITS if gpu is None else _WAITS_GPU:
            sums[_SUM_OF[phase]] += spent[phase]
            left -= spent[phase]
        if exact:
            sums[_SUM_OF[COMMUNICATION]] += spent[REDUCTION]
            left -= spent[REDUCTION]
            sums[_CPU] += self._cpu
        else:
            total = left
            for phase, rate in rates:
                part = int(total * rate)
                sums[_SUM_OF[phase]] += part
                left -= part
            sums[_CPU] += int(total * self._division.cpu_rate)
        sums[_SUM_OF[OTHER]] += left


def _no_clock() -> int:
    return 0


class _Within:
    """A wait that interrupts a phase."""

    __slots__ = ("_before", "_phase", "_recorder")

    def __init__(self, recorder: StepRecorder, phase: int) -> None:
        self._recorder, self._phase, self._before = recorder, phase, -1

    def __enter__(self) -> None:
        self._before = self._recorder.enter(self._phase)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._recorder.leave(self._before)
