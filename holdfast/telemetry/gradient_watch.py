"""Watch the gradients and the loss of one model: `session.watch`.

Every n steps the gradients are measured (`gradient_step`), and the numbers are read later, in the agent
client's thread (`gradient_reading`). No weight changes by a bit, unless the script has asked for "skip": then
each step asks, before its first optimizer begins, whether all gradients are finite. All ranks agree on the
answer, and where it is no they step with no gradients at all.

After a NaN or Inf, modules are looked at for a few steps (`module_traces`): in the step that is computed
again after a roll back, else in the next ones. What is found names the rank's samples of that step, too."""

from __future__ import annotations

import logging
import sys
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from holdfast.anatomy.phases import COMMUNICATION
from holdfast.errors import SessionError
from holdfast.groups.groups import carrier
from holdfast.ipc.messages.gradients import Gradients
from holdfast.telemetry import gradient_policy as policy
from holdfast.telemetry import gradient_statistics as statistics
from holdfast.telemetry.gradient_reading import About, GradientReading, is_finite
from holdfast.telemetry.gradient_step import StepMeasurement
from holdfast.telemetry.module_traces import WEIGHTS, ModuleOrigin, ModuleTrace

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.rank_state import RankState
    from holdfast.telemetry.gradient_statistics import Watched

_FRAMES_MAX = 8
"""How far up the callers of an optimizer a GradScaler is looked for."""
log = logging.getLogger("holdfast.sdk")


class GradientWatch:
    """The watch of one session; without a model it does nothing.

    `notice(step, reason, kind, rollback=...)` reports a numeric anomaly; `batch()` says in words which
    samples the rank has in the running step."""

    def __init__(self, state: RankState, notice: Callable[..., None], batch: Callable[[], str]) -> None:
        self._state, self._notice, self._batch = state, notice, batch
        self._model: weakref.ref[torch.nn.Module] | None = None
        self._every, self._on_nan = policy.EVERY, "report"
        self._watched: list[Watched] = []
        self._measurement: StepMeasurement | None = None
        self._reading: tuple[Any, list[Watched]] | None = None  # taken in this step
        self._trace: ModuleTrace | None = None
        self._due, self._passes_usual = 0, 1
        self._armed = range(0)  # the steps in which modules are looked at
        self._explained: tuple[int, str] = (-1, "")
        self._skipped = 0
        self._stepped = False  # the first optimizer of this step has begun
        self._loss: tuple[int, Any] = (-1, None)  # of this step
        self._unread: deque[GradientReading | Gradients] = deque(maxlen=policy.UNREAD_MAX)
        self._history: dict[str, deque[float]] = {}

    # ------------------------------------------------------------------ what a script asks

    def watch(self, model: Any, every: int, on_nan: str) -> None:
        """Watch this model from the next step on, instead of another one. Raises SessionError."""
        if not isinstance(model, torch.nn.Module):
            raise SessionError(f"watch: {model!r:.80} is no torch.nn.Module: give the model")
        if type(every) is not int or not 1 <= every <= policy.EVERY_MAX:
            raise SessionError(f"watch: every is {every!r:.80}: give a number of steps from 1")
        if on_nan not in policy.ON_NAN:
            raise SessionError(f"watch: on_nan is {on_nan!r:.80}: give one of {', '.join(policy.ON_NAN)}")
        model = model.module if isinstance(model, torch.nn.parallel.DistributedDataParallel) else model
        if not any(parameter.requires_grad for parameter in model.parameters()):
            raise SessionError("watch: no parameter of the model needs gradients: give the one that trains")
        self._model, self._every, self._on_nan = weakref.ref(model), every, on_nan
        self._watched, self._due = [], 0

    def loss(self, value: Any) -> None:
        """Keep the loss of the running step, as the script gives it to `check` or `report`."""
        if self._model is None or value is None:
            return
        self._loss = self._state.completed, value
        if self._trace is not None and not is_finite(value):
            self._trace.loss_is_bad()

    def offered_loss(self, value: Any) -> None:
        """Keep the loss of the running step as a trainer gives it, unless the script has given one."""
        if self._loss[0] != self._state.completed:
            self.loss(value)

    @property
    def acts(self) -> bool:
        """Whether the job goes back or stops after values that are not finite."""
        return self._on_nan in ("rollback", "stop")

    # ------------------------------------------------------------------ steps

    def begin(self) -> None:
        """Begin a step: put the hooks on that it needs."""
        self._forget()
        model = self._present()
        if model is None:
            return
        state, step = self._state, self._state.completed
        armed = step in self._armed
        if armed and not _compiled(model):
            self._trace = ModuleTrace(model, self._traced)
        went_back = step <= self._due - self._every  # to before the newest measurement
        if armed or went_back or step >= self._due:
            self._watched = statistics.named(model)
            self._measurement = StepMeasurement(
                self._watched, hooked=True, local=state.world_size > 1, passes_usual=self._passes_usual
            )

    def _present(self) -> torch.nn.Module | None:
        """The model; None without one, or if it is gone."""
        return self._model() if self._model is not None else None

    def _forget(self) -> None:
        """Take off the hooks of a step that is over, or was broken."""
        if self._measurement is not None:
            self._measurement.remove()
        if self._trace is not None:
            self._trace.remove()
        self._measurement = self._trace = self._reading = None
        self._stepped = False

    def before_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer is about to begin: take the measurement, and leave the step out if that is asked."""
        if self._measurement is None and self._on_nan != "skip":
            return
        if getattr(optimizer, "found_inf", None) is not None or not self._concerns(optimizer):
            return  # a GradScaler has the optimizer itself leave out what is not finite
        first, self._stepped = not self._stepped, True
        bad = self._on_nan == "skip" and not self._all_finite(optimizer)
        if bad and self._measurement is None:
            model = self._present()
            self._watched = statistics.named(model) if model is not None else []
            self._measurement = StepMeasurement(self._watched, hooked=False, local=False, passes_usual=1)
        if first and self._measurement is not None:
            taken = self._measurement.finish(optimizer, _scaler_above())
            self._passes_usual = max(self._measurement.passes, 1)
            self._reading = (taken, self._watched) if taken is not None and taken.tensors else None
        if bad:
            self._skip(optimizer)

    def _concerns(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether the optimizer steps a parameter of this model."""
        model = self._present()
        own = set(model.parameters()) if model is not None else set()
        return any(parameter in own for group in optimizer.param_groups for parameter in group["params"])

    def end(self, samples: int) -> None:
        """Complete the step. `samples`: of this rank's share; 0: not known."""
        if self._measurement is None and self._trace is None:
            return
        step = self._state.completed
        loss = self._loss[1] if self._loss[0] == step else None
        if self._reading is not None:
            full = self._state.rank < policy.FULL_RANKS
            about = About(self._state.generation, step, samples, self._skipped, full, loss)
            self._unread.append(GradientReading(*self._reading, about))
            self._due = step + self._every
        self._forget()

    # ------------------------------------------------------------------ values that are not finite

    def noticed(self, step: int, kind: str) -> str | None:
        """Take note of an anomaly. Returns where it came from, to go after its reason; "": not known. None:
        the loss is NaN or Inf, and the script wants such steps left out: its gradients will be judged."""
        self._arm(step)
        if kind == "nan" and self._on_nan == "skip" and self._present() is not None:
            return None
        return f"; {self._explained[1]}" if self._explained[0] == step else ""

    def _arm(self, step: int) -> None:
        """Look at modules around this step, which had a NaN or Inf: when it is computed again, or next."""
        if self._model is not None and step not in self._armed:
            self._armed = range(max(0, step - self._every + 1), step + 1 + policy.ARMED_AFTER)

    def _traced(self, trace: ModuleOrigin) -> None:
        """The step's first module with an output that is not finite is found."""
        step = self._state.completed
        words = trace.words if trace.kind == WEIGHTS else f"{trace.words} ({self._batch()})"
        self._explained = step, words
        origin = (trace.module or trace.type)[-policy.NAME_MAX :]
        found = Gradients(
            self._state.generation,
            step,
            skipped=self._skipped,
            trace=trace.kind,
            origin=origin,
            words=words,
        )
        self._unread.append(found)

    def _all_finite(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether the gradients that this optimizer uses are finite on all ranks. Waits for the device."""
        found = [
            values
            for group in optimizer.param_groups
            for parameter in group["params"]
            if (values := statistics.values_of(statistics.Watched("", parameter))[0]) is not None
        ]
        bad = torch.zeros(1) if not found else (~statistics.all_finite(found)).reshape(1).float()
        state = self._state
        if state.world_size > 1 and dist.is_initialized():
            with state.times.within(COMMUNICATION):
                bad = bad.to(carrier(state.backend, state.device))
                dist.all_reduce(bad, op=dist.ReduceOp.MAX)
        return not bool(bad)

    def _skip(self, optimizer: torch.optim.Optimizer) -> None:
        """Let this optimizer step with no gradients: it changes nothing."""
        self._skipped += 1
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = None
        step = self._state.completed
        log.warning("step %d: gradients are NaN or Inf: the step is left out on all ranks", step)
        self._arm(step)

    # ------------------------------------------------------------------ one thread at a time (own_reports.py)

    def read(self, *, wait: bool) -> list[Gradients]:
        """The reports of the measurements that are on the host, oldest first. `wait`: of all of them."""
        found: list[Gradients] = []
        while self._unread and (wait or isinstance(self._unread[0], Gradients) or self._unread[0].ready):
            each = self._unread.popleft()
            if isinstance(each, GradientReading):
                each.wait()
                found.append(each.report(self._history))
                self._learn(each.norms(found[-1]))
                self._act(found[-1])
            else:
                found.append(each)
        return found

    def _learn(self, norms: dict[str, float]) -> None:
        self._history = {
            name: deque((*self._history.get(name, ()), norm), maxlen=policy.USUAL_OF)
            for name, norm in norms.items()
        } or self._history

    def _act(self, report: Gradients) -> None:
        """Do what the script has asked for after values that are not finite.

        What an older generation measured is over: the state that these gradients are of was left."""
        if (not report.nans and not report.infs) or report.generation != self._state.generation:
            return
        acts = self.acts
        if acts and self._state.numeric_anomaly:
            return  # reported: this state will be left, and modules are looked at around its first bad step
        self._arm(report.step)
        if acts:
            count = f"{report.nans} NaN and {report.infs} Inf of {report.numel}"
            reason = f"the gradients are not finite ({count}): {report.words}"
            self._notice(report.step, reason, "user", rollback=self._on_nan == "rollback")


def _compiled(model: torch.nn.Module) -> bool:
    """Whether hooks on its modules might have it compiled again."""
    return any(type(each).__name__ == "OptimizedModule" for each in model.modules())


def _scaler_above() -> Any:
    """The GradScaler whose step calls the optimizer; None: there is none."""
    frame = sys._getframe(1)
    for _ in range(_FRAMES_MAX):
        if frame.f_back is None:
            return None
        frame = frame.f_back
        if frame.f_code.co_name in ("step", "_maybe_opt_step"):
            owner = frame.f_locals.get("self")
            if isinstance(owner, torch.amp.GradScaler):
                return owner if owner._scale is not None else None
    return None
