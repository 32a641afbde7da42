"""Estimate by how much the clocks of nodes differ, from steps that all ranks log at the same moment."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.failure_logs import policy
from controlplane.analysis.failure_logs.stamps import ClockOffset

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from controlplane.analysis.failure_logs.events import LoggedFailure, RankHistory
    from controlplane.analysis.failure_logs.stamps import Stamp


@dataclass(frozen=True, slots=True)
class Moment:
    """When something happened, on a clock that all ranks share: between two times in s; None: not known."""

    earliest_s: float
    latest_s: float | None
    margin_s: float


class Clocks:
    """The clocks of all ranks. `reference_s`: a time near the run, to place times without a date.

    `known`: the clocks of nodes that need not be estimated from the logs, by node."""

    def __init__(self, ranks: Sequence[RankHistory], known: Mapping[str, ClockOffset] | None = None) -> None:
        self.reference_s = _reference(ranks)
        self._of_rank = {each.rank: each.node or f"rank {each.rank}" for each in ranks}
        self.offsets = self._estimate(ranks) | {
            clock: offset
            for clock, offset in (known or {}).items()
            if clock in self._of_rank.values()
        }  # fmt: skip

    def offset(self, rank: int) -> ClockOffset:
        """The clock of this rank. Raises KeyError for a rank without a log."""
        return self.offsets[self._of_rank[rank]]

    def same(self, one: int, other: int) -> bool:
        """Whether two ranks are on one node, so that their clock is the same."""
        return self._of_rank[one] == self._of_rank[other]

    def moment(self, rank: int, failure: LoggedFailure) -> Moment | None:
        """When this failure of this rank happened; None when its log has no times."""
        if failure.after is None:
            return None
        clock = self.offset(rank)
        earliest_s = failure.after.near(self.reference_s) - clock.offset_s
        latest_s = earliest_s if failure.exact else None
        if latest_s is None and failure.before is not None:
            latest_s = max(earliest_s, failure.before.near(self.reference_s) - clock.offset_s)
        return Moment(earliest_s, latest_s, clock.margin_s + failure.after.exact_s)

    def _time(self, stamp: Stamp) -> float:
        return stamp.near(self.reference_s)

    def _estimate(self, ranks: Sequence[RankHistory]) -> dict[str, ClockOffset]:
        """The offset of each clock: how much later than the median of all ranks it has the common marks."""
        times: dict[str, dict[str, list[float]]] = {}
        for each in ranks:
            for mark, stamp in each.last.marks.items():
                times.setdefault(mark, {}).setdefault(self._of_rank[each.rank], []).append(self._time(stamp))
        differences: dict[str, list[float]] = {clock: [] for clock in dict.fromkeys(self._of_rank.values())}
        for clocks in times.values():
            if len(clocks) < 2:
                continue
            own = {clock: median(values) for clock, values in clocks.items()}
            middle_s = median(own.values())
            for clock, time_s in own.items():
                differences[clock].append(time_s - middle_s)
        unknown = ClockOffset(0.0, policy.CLOCKS_APART_S if len(differences) > 1 else 0.0, 0)
        return {clock: _offset(values) or unknown for clock, values in differences.items()}


def _offset(differences_s: list[float]) -> ClockOffset | None:
    """The offset of one clock from its differences to the others; None when there are too few."""
    if len(differences_s) < policy.MARKS_MIN:
        return None
    values = np.array(differences_s)
    offset_s = float(np.median(values))
    spread_s = float(np.quantile(np.abs(values - offset_s), policy.MARGIN_QUANTILE))
    return ClockOffset(offset_s, max(spread_s, policy.STAMP_FLOOR_S), len(differences_s))


def _reference(ranks: Sequence[RankHistory]) -> float:
    """The latest time that was written whole; otherwise the latest file time."""
    whole = [
        each.last.last_stamp.seconds
        for each in ranks
        if each.last.last_stamp is not None and each.last.last_stamp.whole
    ]
    return max(whole or [each.modified_s for each in ranks], default=0.0)
