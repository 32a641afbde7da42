"""Say who has been slower for minutes: than peers, and than before.

Healthy devices differ by a few percent, and always did. So a rank that is a little slower than its peers
stands out among many peers only. One that has become slower, while they have not, stands out among few: their
lasting differences are left out."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.live import policy
from controlplane.analysis.live.history import low_median
from controlplane.analysis.live.standing import Standing, mixed, standing

if TYPE_CHECKING:
    from controlplane.analysis.live.lasting.levels import LevelHistory
    from controlplane.analysis.live.table import Bools, Ints, Seats
    from controlplane.analysis.robust import Floats


@dataclass(frozen=True, slots=True)
class LastingWork:
    """How ranks have stood for minutes. `unequal` and `alone`: of stages without a majority of ranks that are
    equally fast, and that have changed alike. Those that always were a little slower are no reason to doubt
    who has become so."""

    peers: Standing  # against the typical rank of the stage
    change: Standing  # the same, against what was usual before; of those alone, against the rank's own past
    unequal: Bools
    alone: Bools

    @property
    def slower(self) -> Bools:
        """Who is slower than peers at all. Of those alone nobody knows: all of them."""
        with np.errstate(invalid="ignore"):
            return self.alone | (self.peers.level >= 0.5 * self.peers.limit)

    def now(self, newest: Floats, changed: Floats) -> LastingWork:
        """The same, for those that are high in the newest rows too: what has passed names nobody. `newest`:
        the level against peers in these rows, `changed`: the change against the rank's own past."""
        latest = np.where(self.alone, changed, newest)
        return replace(self, peers=_still(self.peers, newest), change=_still(self.change, latest))


def lasting(history: LevelHistory, limit: float, newest: Floats) -> Standing:
    """How ranks stand over the newest blocks. `newest`: their level in the newest rows, which has to be high
    too: what has passed names nobody."""
    return _still(_stood(_newest(history), limit, history.unsure(against_before=False)), newest)


def lasting_work(seats: Seats, ratio: LevelHistory, own: LevelHistory, limit: float) -> LastingWork:
    """Judge the work of all ranks by the newest blocks. `ratio`: to that of peers, `own`: in seconds, both as
    logarithms. It changes with each block, and `LastingWork.now` with each row."""
    peers = _stood(_newest(ratio), limit, ratio.unsure(against_before=False))
    blocks = _newest(ratio) - ratio.usual.astype(np.float32)
    for _, ranks in seats.stages:
        blocks[:, ranks] -= _typical(blocks[:, ranks])
    against = _stood(blocks, limit, ratio.unsure(against_before=True))
    itself, deviating = _against_itself(own)
    alone = _without_majority(seats, (against, deviating))
    if alone.any():
        against = mixed(against, itself, alone)
    return LastingWork(peers, against, alone | _without_majority(seats, (peers,)), alone)


def _newest(history: LevelHistory) -> np.ndarray:
    return history.blocks.newest(policy.LASTING_BLOCKS)


def _stood(rows: np.ndarray, limit: float, unsure: Floats) -> Standing:
    found = standing(rows, limit)
    return replace(found, unsure=np.fmax(found.unsure, unsure))


def _still(found: Standing, newest: Floats) -> Standing:
    with np.errstate(invalid="ignore"):
        return replace(found, still=found.still & ~(newest <= 0.5 * found.limit))


def _without_majority(seats: Seats, ways: tuple[Standing, ...]) -> Bools:
    """Ranks of stages where fewer than most are alike, in one of these ways."""
    alone = np.zeros(len(seats.stage), dtype=bool)
    for _, ranks in seats.stages:
        known = ranks[~np.isnan(ways[0].level[ranks])]
        high = max(int(each.lasting[known].sum()) for each in ways)
        alone[ranks] = len(known) < 3 or 2 * high >= len(known)
    return alone


def _against_itself(own: LevelHistory) -> tuple[Standing, Standing]:
    """How work has changed against the rank's own past; and that, less what the whole job has changed by.

    Where most ranks of the job have changed alike, that is the job's own change, and both are the second.
    Without such a majority whoever stayed as it was has not become slow: others became faster."""
    limit = policy.half(policy.CHANGE_RATIO)
    change = _newest(own) - own.usual.astype(np.float32)
    less = change - _typical(change)
    unsure = own.unsure(against_before=True)
    deviating = _stood(less, limit, unsure)
    known = int((~np.isnan(deviating.level)).sum())
    if known >= 3 and 2 * int(deviating.lasting.sum()) < known:
        return deviating, deviating
    return _stood(np.minimum(change, less), limit, unsure), deviating


def _typical(rows: np.ndarray) -> np.ndarray:
    """The lower median of each row, as a column."""
    return np.array([[low_median(row)] for row in rows], dtype=np.float32)


def stands_apart(level: Floats, ranks: Ints, others: Ints) -> bool:
    """Whether the mean of some ranks lies far outside of where the others are, by their standard deviation.

    Of few others that is itself unsure, so more is asked, as by Student's distribution; of fewer than
    `policy.LASTING_PEERS` nothing is known. (The median deviation alone, of a dozen, is often half as large
    as it should be.)"""
    values = level[others][~np.isnan(level[others])]
    if len(values) + 1 < policy.LASTING_PEERS:
        return False
    far = float(level[ranks].mean() - values.mean())
    return far >= (policy.LASTING_SPREADS + policy.LASTING_FEW / len(values)) * float(values.std(ddof=1))


def lasting_limit(slow_ratio: float) -> float:
    """What is too much for minutes (a logarithm): half of what is too much for one."""
    return 0.5 * math.log(slow_ratio)
