"""Say whether a job's communication takes longer than its ranks' own work explains: its links are suspected.

Whoever is busy longest waits least, so what even that rank spends in communication is transfer (see
`detectors/bottlenecks.communication`). It is suspicious when it has grown against what was usual, or takes
more of a step than it may. That says nothing about where: the links are probed then."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.live import policy

if TYPE_CHECKING:
    from controlplane.analysis.live.resources.memory import Memory
    from controlplane.analysis.robust import Floats


@dataclass(frozen=True, slots=True)
class TransferTime:
    """The communication of the rank that waits least, per step, as the median of the newest rows.

    `usual_s`: what it was; NaN: not known. `suspicion`: why links are suspected; "": they are not."""

    now_s: float
    usual_s: float
    step_s: float
    suspicion: str

    @property
    def excess_s(self) -> float:
        """How much longer than usual it takes per step (s), at least; 0 where that is not known."""
        grown_s = self.now_s - self.usual_s
        return max(0.0, grown_s) if math.isfinite(grown_s) else 0.0


def transfer(memory: Memory, step_s: float, jitter_s: float, share_max: float) -> TransferTime:
    """The job's communication, and whether it is suspicious: more than `share_max` of a step, or grown.

    `jitter_s`: what ranks wait for others in a step because work scatters."""
    rows = np.array([row.transfer_s for row in list(memory.jobs)[-policy.RECENT :]])
    now_s = float(np.median(rows))
    usual_s = math.exp(float(memory.usual_transfer.value))  # NaN stays NaN
    suspicion = ""
    if len(rows) >= policy.LEAST and now_s > 0.0:
        enough = len(memory.jobs) >= 2 * policy.RECENT
        suspicion = (_grown(rows, usual_s, step_s) if enough else "") or _large(
            (now_s - jitter_s) / step_s, share_max
        )
    return TransferTime(now_s, usual_s, step_s, suspicion)


def _grown(rows: Floats, usual_s: float, step_s: float) -> str:
    now_s = float(np.median(rows))
    grown_s, ratio = now_s - usual_s, now_s / usual_s
    if not (grown_s >= policy.TRANSFER_GROWN_SHARE * step_s and ratio >= policy.TRANSFER_GROWN_RATIO):
        return ""
    if np.mean(rows > usual_s + 0.5 * grown_s) < policy.SUSTAINED_RATIO:
        return ""
    return (
        f"communication takes {now_s:.3g} s of a step even on the ranks that wait least; {usual_s:.3g} s was "
        "usual"
    )


def _large(share: float, share_max: float) -> str:
    if share <= share_max:
        return ""
    return (
        f"communication takes {share:.0%} of a step even on the ranks that wait least; more than "
        f"{share_max:.0%} is a bottleneck"
    )
