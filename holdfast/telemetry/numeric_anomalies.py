"""Notice losses that are NaN or Inf at little cost, and report each anomaly once.

If the script itself reports one (`session.fault`), the rank waits for the coordinator's decision."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from holdfast.errors import Interrupted, SessionError
from holdfast.ipc.messages.rank import Fault
from holdfast.telemetry import reporting

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.rank_state import RankState

LOOK_EVERY = 10
"""Steps between two reads of a GPU's result: each read waits for the GPU once."""

_TEXT_MAX = 500
log = logging.getLogger("holdfast.sdk")


class NumericAnomalies:
    """The anomalies that one rank has noticed in this generation."""

    def __init__(self, state: RankState) -> None:
        self._state = state
        self._first: torch.Tensor | None = None  # on the GPU: the first bad step; -1: none
        self._looked = 0
        # Called with the step and the kind of an anomaly; returns where it came from, in words, or "". None:
        # the step is left out instead, on all ranks.
        self.on_notice: Callable[[int, str], str | None] = lambda step, kind: ""

    def begin(self) -> None:
        """Begin a generation: the coordinator has acted on the last report."""
        self._first, self._state.numeric_anomaly = None, False
        if self._state.agent is not None:
            self._state.agent.forget("fault")
            self._state.agent.forget("replicas")

    def check(self, value: Any, every: int) -> None:
        """Notice a NaN or Inf: at once, or for a tensor on a GPU within `every` steps."""
        step = self._state.completed
        if isinstance(value, torch.Tensor) and value.is_cuda:
            self._accumulate(value.detach(), step, every)
        elif isinstance(value, torch.Tensor):
            if not bool(torch.isfinite(value.detach()).all()):
                self.notice(step, f"the loss is {_shown(value)}")
        elif not math.isfinite(value):
            self.notice(step, f"the loss is {value}")

    def _accumulate(self, value: torch.Tensor, step: int, every: int) -> None:
        """Note on the GPU which step was the first bad one. It takes a few kernels and no wait."""
        if self._first is None:
            self._first = torch.full((), -1, dtype=torch.int64, device=value.device)
            self._looked = step
        bad = ~torch.isfinite(value).all()
        self._first = torch.where((self._first < 0) & bad, step, self._first)
        if step - self._looked >= every:
            self._looked = step
            self.settle()

    def settle(self) -> None:
        """Read what the GPU has noted so far. Waits for the GPU."""
        first = int(self._first.item()) if self._first is not None else -1
        if first >= 0:
            self.notice(first, "the loss is NaN or Inf")

    def reported(self, name: str, value: Any, step: int) -> None:
        """Check a value of a report: one that is named as a loss must be finite."""
        if name == "loss" or name.endswith(("_loss", "/loss")):
            number = reporting.number(value)
            if number is not None and not math.isfinite(number):
                self.notice(step, f"the reported {name} is {number}")

    def notice(self, step: int, reason: str, kind: str = "nan", *, rollback: bool = True) -> None:
        """Report an anomaly, once in a generation. No snapshot is taken of this state any more."""
        agent, origin = self._state.agent, self.on_notice(step, kind)
        if self._state.numeric_anomaly or origin is None:
            return
        reason += origin
        self._state.numeric_anomaly = True
        if agent is None:
            log.warning("step %d: %s", step, reason)
            return
        agent.send(Fault(self._state.generation, step, kind, reason[:_TEXT_MAX], rollback), keep=True)

    def fault(self, why: str, *, rollback: bool) -> NoReturn:
        """Report that the script judges the numbers to be wrong; never returns."""
        state = self._state
        if state.agent is None or not state.entry.inside:
            raise SessionError(f"fault: {why}")
        state.numeric_anomaly = False  # the script's reason counts, whatever was noticed before
        self.notice(state.completed, why, "user", rollback=rollback)
        self.wait_for_decision()

    def wait_for_decision(self) -> NoReturn:
        """Wait until the coordinator ends this generation, because its numbers are wrong; never returns."""
        state, agent, generation = self._state, self._state.agent, self._state.generation
        assert agent is not None
        state.progress.mark("fault")
        agent.wait(lambda orders: orders.interrupted >= generation or orders.complete)
        raise Interrupted


def _shown(value: torch.Tensor) -> str:
    return str(value.item()) if value.numel() == 1 else f"a tensor with {_wrong(value)} values NaN or Inf"


def _wrong(value: torch.Tensor) -> int:
    return int((~torch.isfinite(value.detach())).sum())
