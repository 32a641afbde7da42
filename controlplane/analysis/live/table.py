"""Turn the rows of a window into one column per quantity, and leave out what cannot be believed.

A column has one place per rank of the job, NaN where a rank's row is missing or was left out. So the order of
rows does not matter, and a window of 80,000 ranks costs as much as some fifty operations on arrays."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.live import policy
from controlplane.analysis.live.history import low_median
from controlplane.analysis.live.readings import NUMBERS, PHASES, SEAT_FIELDS, RankColumns, Unjudged

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from controlplane.analysis.live.readings import JobWindow, RankWindow, SeatRow
    from controlplane.analysis.robust import Floats

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

WHOLE_SEAT_FIELDS = ("rank", "device", "dp_rank", "stage", "cp_rank", "tp_rank")
"""The fields of a seat that are whole numbers."""
_seat_of, _numbers_of = itemgetter(slice(len(SEAT_FIELDS))), itemgetter(slice(len(SEAT_FIELDS), None))
COUNTED = ("watched_s", "ran_s", "queued_s", "throttled_s")
"""The kernel's counts of CPU time, over `watched_s`."""
SUMS = (
    *(f"{phase}_s" for phase in PHASES),
    *("wall_s", "cpu_s", "steps", "covered", "samples", "tokens", "flops"),
    *("compile_s", "evaluate_s", "checkpoint_s"),
    *COUNTED,
)
"""What adds up over reports and windows. Of other numbers the newest counts."""
NO_STEP = "it completed no step"
"""Nothing against a rank: its step may last longer than a window."""


@dataclass(frozen=True, slots=True)
class Seats:
    """Who is which rank, and where: what a generation does not change. -1 or "": that rank is not known."""

    rows: Sequence[SeatRow]  # as reported
    reported: dict[str, Ints]  # those of WHOLE_SEAT_FIELDS, a place per row
    member: tuple[str, ...]
    node: Ints  # index into `nodes`
    nodes: tuple[str, ...]
    device: Ints
    stage: Ints
    dp_rank: Ints
    stages: tuple[tuple[int, Ints], ...]  # each stage with its ranks
    domain: Ints  # fault domain of the node: index into `domains`
    domains: tuple[str, ...]
    by_node: Ints  # ranks that have a node, in the order of nodes
    node_starts: Ints  # where each node begins in `by_node`

    def node_of(self, rank: int) -> str:
        """The name of a rank's node."""
        return self.nodes[self.node[rank]] if self.node[rank] >= 0 else ""


@dataclass(frozen=True, slots=True)
class Reported:
    """The rows of a window as they came, believed or not: one array per field, a place per row."""

    seats: Seats
    numbers: Floats  # a row per rank, a column for each of NUMBERS

    def __getitem__(self, field: str) -> Floats:
        return self.numbers[:, NUMBERS.index(field)]

    def whole(self, field: str) -> Ints:
        """One of WHOLE_SEAT_FIELDS."""
        return self.seats.reported[field]


@dataclass(frozen=True, slots=True)
class RankTable:
    """A window, one column per quantity."""

    reported: Reported
    values: dict[str, Floats]  # NaN: not judged
    unjudged: tuple[Unjudged, ...]  # the first of them
    left_out: dict[str, int]  # reason -> ranks
    waiting: Bools  # ranks that reported, and completed no step
    out: Bools  # all ranks that were left out
    told: Floats  # as `SeenSteps.told`, with this window

    @property
    def seats(self) -> Seats:
        """Who is which rank, and where."""
        return self.reported.seats


@dataclass(frozen=True, slots=True)
class SeenSteps:
    """What the windows of a generation have shown until now, for the next one to be held against."""

    seats: Seats
    last_step: Floats  # the newest step of each rank that was ever judged; NaN: none
    told: Floats  # of how many steps hooks told, and all steps, by rank: newer windows count more

    @classmethod
    def after(cls, table: RankTable, before: SeenSteps | None) -> SeenSteps:
        """That, when this table has come. A rank that was left out of it keeps its newest step."""
        last = table.values["last_step"]
        newest = last.copy() if before is None else np.where(np.isnan(last), before.last_step, last)
        return cls(table.seats, newest, table.told)


def seats(rows: Sequence[SeatRow], count: int) -> Seats:
    """Arrange what each rank reports about its place. Ranks outside of 0 to `count` - 1 are ignored."""
    columns = tuple(zip(*rows, strict=True)) or ((),) * len(SEAT_FIELDS)
    by_name = dict(zip(SEAT_FIELDS, columns, strict=True))
    reported = {name: np.array(by_name[name], dtype=np.int64) for name in WHOLE_SEAT_FIELDS}
    ranks = reported["rank"]
    inside = (ranks >= 0) & (ranks < count)

    def dense(values: Ints) -> Ints:
        found = np.full(count, -1, dtype=np.int64)
        found[ranks[inside]] = values[inside]
        return found

    def numbered(column: str) -> tuple[tuple[str, ...], Ints]:
        names = tuple(sorted(set(map(str, by_name[column]))))
        number = {name: index for index, name in enumerate(names)}
        return names, dense(np.array([number[str(name)] for name in by_name[column]], dtype=np.int64))

    names, node = numbered("node")
    domains, domain = numbered("domain")
    stage = dense(reported["stage"])
    members = [""] * count
    for rank, member, here in zip(by_name["rank"], by_name["member"], inside, strict=True):
        if here:
            members[int(rank)] = str(member)
    known = np.flatnonzero(node >= 0)
    by_node = known[np.argsort(node[known], kind="stable")]
    return Seats(
        rows,
        reported,
        tuple(members),
        node,
        names,
        dense(reported["device"]),
        stage,
        dense(reported["dp_rank"]),
        tuple((int(each), np.flatnonzero(stage == each)) for each in np.unique(stage[known])),
        domain,
        domains,
        by_node,
        np.searchsorted(node[by_node], np.arange(len(names) + 1)),
    )


def tabulate(window: JobWindow, before: SeenSteps | None) -> RankTable:
    """The columns of a window. `before`: what the same generation has shown, to see what goes back in time.

    Raises ValueError for a number of expected ranks that no job has."""
    count = window.ranks_expected
    if not 0 < count <= policy.RANKS_MAX:
        raise ValueError(f"ranks_expected is {count}: it must be 1 to {policy.RANKS_MAX}")
    rows = window.ranks
    known = before.seats if before else None
    same = known is not None and (known.rows is rows.seats or known.rows == rows.seats)
    reported = Reported(known if known and same else seats(rows.seats, count), rows.numbers)
    ranks = reported.whole("rank")
    inside = (ranks >= 0) & (ranks < count)
    by_rank = np.full((count, len(NUMBERS)), np.nan)
    by_rank[ranks[inside]] = reported.numbers[inside]
    columns = np.ascontiguousarray(by_rank.T)
    values = dict(zip(NUMBERS, columns, strict=True))  # views: what is left out below is left out here
    times = np.bincount(ranks[inside], minlength=count)
    reason = np.full(count, -1, dtype=np.int64)
    words = []
    told = _told(values, before)
    with np.errstate(all="ignore"):
        for index, (word, bad) in enumerate(_doubts(window, columns, times, told, before)):
            words.append(word)
            reason[(reason < 0) & bad] = index
    out = reason >= 0
    columns[:, np.flatnonzero(out)] = np.nan
    named = np.flatnonzero(out)[: policy.UNJUDGED_MAX]
    foreign = [
        Unjudged(int(rank), f"the job has no such rank: it has {count}")
        for rank in np.unique(ranks[~inside])[: policy.UNJUDGED_MAX]
    ]
    counts = {word: int((reason == index).sum()) for index, word in enumerate(words)}
    counts["it is no rank of the job"] = int((~inside).sum())
    unjudged = (*foreign, *(Unjudged(int(rank), words[reason[rank]]) for rank in named))
    return RankTable(
        reported,
        values,
        unjudged[: policy.UNJUDGED_MAX],
        {word: n for word, n in counts.items() if n},
        reason == words.index(NO_STEP),
        out,
        told,
    )


def columns_of(rows: Sequence[RankWindow]) -> RankColumns:
    """The same rows in columns."""
    numbers = chain.from_iterable(map(_numbers_of, rows))  # one pass over all: the fastest way from tuples
    table = np.fromiter(numbers, np.float64, len(rows) * len(NUMBERS)).reshape(-1, len(NUMBERS))
    return RankColumns(list(map(_seat_of, rows)), table)


def _doubts(
    window: JobWindow, matrix: Floats, times: Ints, told: Floats, before: SeenSteps | None
) -> Iterator[tuple[str, Bools]]:
    """Each reason to leave a rank out, with the ranks that it holds for. The first that holds counts."""
    values = dict(zip(NUMBERS, matrix, strict=True))
    steps, wall_s, last = values["steps"], values["wall_s"], values["last_step"]
    yield "it did not report", times == 0
    yield "it has several rows in one window", times > 1
    yield "its row is of another generation", values["generation"] != window.generation
    yield "its row has a value that is no finite number", np.asarray(~np.isfinite(matrix).all(axis=0))
    least = np.array([_least(name) for name in NUMBERS])[:, None]
    yield "its row has a negative value", np.asarray((matrix < least).any(axis=0))
    yield NO_STEP, steps == 0
    yield "no time passed in its steps", wall_s <= 0
    phases_s = np.sum([values[f"{phase}_s"] for phase in PHASES], axis=0)
    apart = (phases_s > policy.WHOLE_RATIO * wall_s) | (wall_s > policy.WHOLE_RATIO * phases_s)
    yield "its phases do not add up to its steps", apart
    yield "its CPU time is longer than its steps", values["cpu_s"] > policy.WHOLE_RATIO * wall_s
    if before is not None:
        seen = before.last_step
        yield "its newest step is not newer than in the window before", last <= seen
    typical = low_median(steps)
    behind = low_median(last) - last
    yield (
        "it reports late: others are many steps ahead",
        np.asarray(behind > max(policy.LAG_STEPS, 2.0 * typical)),
    )
    covered = values["covered"] / steps >= policy.COVERED_RATIO
    untold = ~covered if covered.any() else _untold(told)
    yield "its hooks do not tell its own work from waiting", np.asarray(untold)


def _told(values: dict[str, Floats], before: SeenSteps | None) -> Floats:
    """Of how many steps hooks have told, and of how many there were, per rank. Sums over windows, for few
    steps of a window may be measured; half of them is forgotten whenever they are more than enough."""
    newest = np.maximum(np.nan_to_num([values["covered"], values["steps"]], posinf=0.0, neginf=0.0), 0.0)
    sums = newest if before is None else before.told + newest
    found: Floats = sums * (0.5 if _usually_told(sums) >= 2 * policy.COVERED_LEAST else 1.0)
    return found


def _usually_told(sums: Floats) -> float:
    """Of how many steps hooks have told of a typical rank whose hooks tell of any."""
    known = sums[0][sums[0] > 0]
    return low_median(known) if known.size else 0.0


def _untold(sums: Floats) -> Bools:
    """Ranks whose hooks have told of much fewer steps than those of a typical rank, where only some steps are
    measured. Fewer than COVERED_LEAST of them say nothing: not all ranks measure the same."""
    covered, steps = sums
    typical = low_median((covered / steps)[covered > 0]) * steps if covered.any() else np.zeros(len(steps))
    found: Bools = (typical >= policy.COVERED_LEAST) & (covered < policy.COVERED_RATIO * typical)
    return found


def _least(name: str) -> float:
    """The least value of a number that is known, or that says that it is not known."""
    return -1.0 if name in ("last_step", "device_used", "cpu_limit") else 0.0
