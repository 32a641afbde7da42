"""Decide when a checkpoint is due: by steps, by seconds, or by what failures and checkpoints cost. Pure.

`checkpoint_auto` follows J. W. Young, "A first order approximation to the optimum checkpoint interval"
(CACM 17(9), 1974) and J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart
dumps" (FGCS 22(3), 2006): with rare checkpoints a failure loses much work, with frequent ones the saving
itself costs too much."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from controlplane.core.records.model import JobSpec

PRIOR_MTBF_S = 6 * 3600.0
"""Mean time between failures (s) assumed of a job that has shown nothing yet. It weighs as one failure
seen."""

SLOWDOWN_SHARE = 0.05
"""The share of an upload's time that training loses to it."""

COST_MIN_S = 0.01
"""The least that a checkpoint is taken to cost (s), known or not: with cost 0 the interval would be 0."""

CHANGE_TOLD = 0.1
"""A new interval is journaled only when it differs by more than this share from the one journaled last."""


@dataclass(slots=True)
class CheckpointCosts:
    """What a job's checkpoints were seen to cost, in s; 0 until seen."""

    stall_s: float = 0.0  # a snapshot kept the ranks from training for so long: a decaying maximum
    upload_s: float = 0.0  # from the start of a checkpoint until it was finalized: a moving average
    newest_upload_s: float = 0.0  # of the newest one alone
    uploads: int = 0  # finalized since this leader began


@dataclass(frozen=True, slots=True)
class CadenceChoice:
    """An interval between the starts of two checkpoints, and the numbers it follows from; all in s."""

    interval_s: float
    cost_s: float
    mtbf_s: float
    upload_s: float

    @property
    def reason(self) -> str:
        """The choice in a sentence, for the journal."""
        return (
            f"a checkpoint every {self.interval_s:.1f} s: one costs {self.cost_s:.3f} s, an upload takes "
            f"{self.upload_s:.1f} s, a failure is expected every {self.mtbf_s:.0f} s"
        )


@dataclass(frozen=True, slots=True)
class Last:
    """The checkpoint that the next one is counted from: its step, and when (s) it began."""

    step: int
    at: float


def mtbf(incidents: int, watched_s: float) -> float:
    """Mean time between failures (s) after `incidents` failures in `watched_s`, the prior included."""
    return (PRIOR_MTBF_S + max(0.0, watched_s)) / (1 + incidents)


def young(cost_s: float, mtbf_s: float) -> float:
    """Young's interval of training (s) between two checkpoints: sqrt(2 cost MTBF)."""
    return math.sqrt(2.0 * cost_s * mtbf_s)


def daly(cost_s: float, mtbf_s: float) -> float:
    """Daly's interval of training (s) between two checkpoints: Young's with its higher-order terms.

    The MTBF itself when a checkpoint costs twice the MTBF or more."""
    if cost_s >= 2.0 * mtbf_s:
        return mtbf_s
    ratio = cost_s / (2.0 * mtbf_s)
    return young(cost_s, mtbf_s) * (1.0 + math.sqrt(ratio) / 3.0 + ratio / 9.0) - cost_s


def choose(costs: CheckpointCosts, incidents: int, watched_s: float) -> CadenceChoice:
    """The interval for a job with these costs and `incidents` failures in `watched_s`; never shorter than
    an upload."""
    cost_s = max(COST_MIN_S, costs.stall_s + SLOWDOWN_SHARE * costs.upload_s)
    mtbf_s = mtbf(incidents, watched_s)
    interval_s = max(costs.upload_s, daly(cost_s, mtbf_s))
    return CadenceChoice(interval_s, cost_s, mtbf_s, costs.upload_s)


def differs(new: CadenceChoice, announced: CadenceChoice | None) -> bool:
    """Whether the new choice is worth a line in the journal."""
    return (
        announced is None or abs(new.interval_s - announced.interval_s) > CHANGE_TOLD * announced.interval_s
    )


def due(spec: JobSpec, step: int, now: float, last: Last, choice: CadenceChoice | None) -> bool:
    """Whether a snapshot of `step` is to be made durable now.

    By steps: a multiple of `checkpoint_every` was passed since the last one. By time: `checkpoint_every_s`
    has gone by. With `checkpoint_auto` only the chosen interval counts."""
    if step <= last.step:
        return False
    if spec.checkpoint_auto:
        return choice is not None and now >= last.at + choice.interval_s
    if step // spec.checkpoint_every > last.step // spec.checkpoint_every:
        return True
    return spec.checkpoint_every_s > 0 and now >= last.at + spec.checkpoint_every_s


def next_due(spec: JobSpec, step: int, last_step: int) -> int:
    """The first step at which a checkpoint may be due, after one at `last_step`; `step` is past, and was not.
    Where time decides, that is the step after it."""
    if spec.checkpoint_auto or spec.checkpoint_every_s > 0:
        return step + 1
    return max(step + 1, (last_step // spec.checkpoint_every + 1) * spec.checkpoint_every)
