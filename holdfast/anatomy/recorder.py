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
from holdfast.anatomy.phases import (
    DECLARED,
    FORWARD,
    LOSS,
    OTHER,
    OWN,
    PHASES,
    WAITS,
    WAITS_GPU,
)  # fmt: skip
from holdfast.anatomy.slow_steps import SlowStepWatch
from holdfast.anatomy.totals import PLACE, StepTotals

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from holdfast.anatomy.facts import FactsWriter
    from holdfast.anatomy.gpu import GpuTimes
    from holdfast.ipc.pages.slow_steps import SlowStepsPage
    from holdfast.ipc.step_times import StepTimesPage

_COVERED, _LONGEST, _SAMPLES = (PLACE[name] for name in ("covered", "longest_ns", "samples"))
_STEPS, _LAST, _GENERATION = PLACE["steps"], PLACE["last_step"], PLACE["generation"]
_MEMORY, _MEMORY_PEAK = PLACE["memory_bytes"], PLACE["memory_peak_bytes"]


class StepRecorder:
    """The recorder of one session; without a page it does nothing. The clocks give ns."""

    # Slots, and first those of every step: a step finds little of this in the CPU's caches.
    __slots__ = (
        *("_page", "running", "measuring", "depth", "_clock", "_phase", "_last", "_spent", "_body_phase"),
        *("_waited", "_step_began", "_longest", "_held", "_held_ns", "_held_steps", "_held_samples"),
        *("_newest", "_declared", "_write_due", "_due", "owner", "gpu", "facts", "base", "calls", "passes"),
        *("_cpu_clock", "_cpu_clock_given", "_cpu_last", "_cpu", "_memory", "_memory_due", "_loop"),
        *("_division", "_measured", "_totals", "on_measuring", "_slow"),
    )

    def __init__(
        self,
        page: StepTimesPage | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
        cpu_clock: Callable[[], int] | None = None,  # None: that of the thread that trains
        *,
        memory: Callable[[], tuple[int, int]] | None = None,  # bytes: now, and the most so far
        facts: FactsWriter | None = None,  # written when the memory is read
        slow: SlowStepsPage | None = None,
    ) -> None:
        self._page, self._clock = page, clock
        self._cpu_clock, self._cpu_clock_given = cpu_clock or _no_clock, cpu_clock is not None
        self._memory, self._memory_due = memory, 0
        self.facts = facts if page is not None else None
        self.gpu: GpuTimes | None = None
        self.owner = 0  # the thread that trains
        self.running = self.measuring = False  # a loop over steps runs; the present step is measured
        self.on_measuring: Callable[[bool], None] = _ignore  # called when that changes
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
        self._waited = False  # a wait has interrupted this step or goes on; or nothing was measured yet
        self._newest: tuple[int, int] | None = None  # complete step, and its generation
        self._body_phase = -1  # the phase in which the step's body ended; -1: it has not
        self._write_due = 0
        self._declared: list[Any] | None = None  # tokens and flops of this step
        self._totals = StepTotals(page.read() if page is not None else None)
        self._longest = self._totals.values[_LONGEST]
        self._slow = SlowStepWatch(slow, self._totals.values)

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
        self._page, self.running = None, False
        self._set_measuring(False)

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
        self._slow.begin()
        self._begin_step(self._clock(), measuring=True)
        return self._loop

    def stop(self, loop: int = 0) -> None:
        """End the loop with this number (0: whichever runs), unless another one has begun: the time from here
        on is no step's."""
        if loop in (0, self._loop) and self.running:
            self.running = False
            self._set_measuring(False)
            self._write(self._clock())

    def body_ends(self) -> None:
        """The body of a step has ended: until `complete`, the time is that of its boundary. Only the thread
        that trains calls this."""
        if self.running:
            now, phase = self._clock(), self._phase
            if self.measuring:
                self._charge(now)
                if OWN[phase]:
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
        now, slow = self._clock(), self._slow
        if now - self._step_began <= slow.above_ns:
            self._complete(now, step, generation, samples)
            return
        self._settle_held()
        slow.ended(self._totals.values)
        self._complete(now, step, generation, samples)
        self._settle_held()
        slow.keep(step, generation, self._totals.values)

    def _complete(self, now: int, step: int, generation: int, samples: int) -> None:
        if self._declared is not None:
            self._totals.declare(*self._declared)
            self._declared = None
        wall = now - self._step_began
        self._longest = max(self._longest, wall)
        self._newest = step, generation
        self._held_steps += 1
        self._held_samples += samples
        if self.measuring:
            self._complete_measured(now, wall)
            return
        self._held_ns += wall
        if self._waited:
            self._fold_waits(now, wall)
        elif self._body_phase >= 0:  # nothing but the body, and the boundary after it
            self._held[DECLARED] += now - self._last
            self.depth, self._body_phase, self._phase = self.depth - 1, -1, OTHER
        if now >= self._write_due:
            self._write(now)
        self._due -= 1
        if self._due <= 0:
            self._begin_step(now, measuring=True)
        else:
            self._step_began = self._last = now

    def _complete_measured(self, now: int, wall: int) -> None:
        """Complete a measured step: learn from it, and choose the next one that is measured."""
        self._charge(now)
        if self._body_phase >= 0:
            self._leave_body()
        self._settle_held()
        self._measured += 1
        self._due = policy.gap(self.calls, wall, self._measured) - 1
        self._learn()
        self._add(wall, self._spent, exact=self.gpu is None)
        self._write(now)
        self._begin_step(now, measuring=self._due <= 0)

    def _fold_waits(self, now: int, wall: int) -> None:
        """Complete a step that is left out and has waited: its waits are counted exactly."""
        held, spent = self._held, self._spent
        spent[self._phase] += now - self._last
        if self._body_phase >= 0:
            self._leave_body()
        for phase in WAITS:
            held[phase] += spent[phase]
        if not self._division.rates:  # nothing was measured: each step is counted as it is
            self._add(wall, spent, exact=True)
            self._held, self._held_ns = [0] * PHASES, 0
        self._spent = [0] * PHASES
        self._waited = self.depth > 0 or not self._division.rates  # a wait goes on in the next step
        if not self.depth:
            self._phase = OTHER

    def _leave_body(self) -> None:
        """Leave the boundary that `body_ends` has entered."""
        self.depth = max(self.depth - 1, 0)
        before, self._body_phase = self._body_phase, -1
        self._phase = before if self.measuring or not OWN[before] else OTHER
        if self.measuring and OWN[before]:
            self._cpu_last = self._cpu_clock()

    def _settle_held(self) -> None:
        """Divide the steps that are held."""
        if self._held_ns:
            self._add(self._held_ns, self._held, exact=False)
            self._held, self._held_ns = [0] * PHASES, 0

    def _write(self, now: int) -> None:
        """Write the sums to the page, and what is read seldom."""
        self._settle_held()
        self._write_due = now + policy.WRITE_EVERY_NS
        sums = self._totals.values
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
        self._slow.learn(sums)
        if self._page is not None:
            self._page.put(sums)

    def count(self, tokens: int, flops: float) -> None:
        """Add what the script declares for this step."""
        if self._declared is None:
            self._declared = [tokens, flops]
        else:
            self._declared[0] += tokens
            self._declared[1] += flops

    def _begin_step(self, now: int, *, measuring: bool) -> None:
        """Begin a step: nothing is charged to any phase yet."""
        self._waited = self.depth > 0 or not self._division.rates
        self._step_began = self._last = now
        if measuring is not self.measuring:
            self._set_measuring(measuring)
        self.calls = self.passes = self._cpu = 0
        self.base = OTHER
        if not self.depth:
            self._phase = OTHER
        self._spent = [0] * PHASES
        self._declared = None
        if measuring and self.gpu is not None:
            self.gpu.begin()

    def _set_measuring(self, measuring: bool) -> None:
        self.measuring = measuring
        self.on_measuring(measuring)

    # ------------------------------------------------------------------ phases

    def switch(self, phase: int) -> None:
        """End the present phase and begin another one. Only in a measured step."""
        self._charge(self._clock())
        if OWN[self._phase] != OWN[phase]:
            self._read_cpu()
        self._phase = phase

    def settle(self, *, backward: bool) -> None:
        """Decide what the time since the newest forward pass was: of the loss if a backward pass follows."""
        if self._phase == LOSS:
            self._charge(self._clock())
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
        self._charge(self._clock())
        if self.measuring and OWN[before]:
            self._read_cpu()
        self._phase, self._waited = phase, True
        self.depth += 1
        return before

    def leave(self, before: int) -> None:
        """Go on with the phase that was interrupted, unless the step's end came in between."""
        if before < 0:
            return
        self._charge(self._clock())
        self.depth = max(self.depth - 1, 0)
        self._phase = before if self.measuring or not OWN[before] else OTHER
        if self.measuring and OWN[before]:
            self._cpu_last = self._cpu_clock()

    def _charge(self, now: int) -> None:
        """Charge the time until now to the present phase."""
        if self.measuring and self.gpu is not None:
            self.gpu.mark(self._phase)
        self._spent[self._phase] += now - self._last
        self._last = now

    def _read_cpu(self) -> None:
        """Own work begins or ends."""
        now = self._cpu_clock()
        if OWN[self._phase]:
            self._cpu += now - self._cpu_last
        self._cpu_last = now

    # ------------------------------------------------------------------ the step's end

    def _learn(self) -> None:
        """Learn from a measured step how steps are divided; on a GPU, from steps that it has finished."""
        self.settle(backward=False)
        if OWN[self._phase]:
            self._read_cpu()
        gpu, anew = self.gpu, self._measured <= policy.WARM_STEPS
        if gpu is None:
            self._totals.values[_COVERED] += self.covered
            self._division.learn(self._spent, self._cpu, without=WAITS, anew=anew)
            return
        gpu.end(covered=self.covered, cpu_ns=self._cpu)
        for done in gpu.done():
            self._totals.values[_COVERED] += done.covered
            self._division.learn(done.spent_ns, done.cpu_ns, without=WAITS_GPU, anew=anew)
        if gpu.failed:
            self._division = Division(PHASES)

    def _add(self, wall: int, spent: list[int], *, exact: bool) -> None:
        """Add the time of steps to the sums of their phases: as it was measured, or divided like that of
        steps that were."""
        if exact or not self._division.rates:
            self._totals.add_measured(wall, spent, self._cpu)
        else:
            self._totals.add_divided(wall, spent, self._division, WAITS if self.gpu is None else WAITS_GPU)


def _no_clock() -> int:
    return 0


def _ignore(_: bool) -> None:
    pass


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
