"""Turn the rows of a window into one column per quantity, and leave out what cannot be believed.

A column has one place per rank of the job, NaN where a rank's row is missing or was left out. So the order of
rows does not matter, and a window of 80,000 ranks costs as much as some fifty operations on arrays."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from controlplane.analysis.live import policy
from controlplane.analysis.live.history import low_median
from controlplane.analysis.live.readings import PHASES, RankWindow, Unjudged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from controlplane.analysis.live.readings import JobWindow
    from controlplane.analysis.robust import Floats

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

SeatRow = tuple[Any, ...]
"""The first fields of a `RankWindow`: those in SEAT_FIELDS."""
SEAT_FIELDS = RankWindow._fields[: RankWindow._fields.index("generation")]
NUMBERS = RankWindow._fields[len(SEAT_FIELDS) :]
"""Everything that differs from window to window."""
COUNTED = ("watched_s", "ran_s", "queued_s", "throttled_s")
"""The kernel's counts of CPU time, over `watched_s`."""
SUMS = (
    *(f"{phase}_s" for phase in PHASES),
    *("wall_s", "cpu_s", "steps", "samples", "tokens", "flops", "compile_s", "evaluate_s", "checkpoint_s"),
    *COUNTED,
)
"""What adds up over windows."""
NO_STEP = "it completed no step"
"""Nothing against a rank: its step may last longer than a window."""


@dataclass(frozen=True, slots=True)
class Seats:
    """Who is which rank, and where: what a generation does not change. -1 or "": that rank is not known."""

    rows: list[SeatRow]  # as reported
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
class RankTable:
    """A window, one column per quantity."""

    seats: Seats
    values: dict[str, Floats]  # NaN: not judged
    unjudged: tuple[Unjudged, ...]  # the first of them
    left_out: dict[str, int]  # reason -> ranks
    waiting: Bools  # ranks that reported, and completed no step
    out: Bools  # all ranks that were left out


def seats(rows: list[SeatRow], count: int) -> Seats:
    """Arrange what each rank reports about its place. Ranks outside of 0 to `count` - 1 are ignored."""
    columns = tuple(zip(*rows, strict=True)) or ((),) * len(SEAT_FIELDS)
    by_name = dict(zip(SEAT_FIELDS, columns, strict=True))
    ranks = np.array(by_name["rank"], dtype=np.int64)
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
    stage = dense(np.array(by_name["stage"], dtype=np.int64))
    members = [""] * count
    for rank, member, here in zip(by_name["rank"], by_name["member"], inside, strict=True):
        if here:
            members[int(rank)] = str(member)
    known = np.flatnonzero(node >= 0)
    by_node = known[np.argsort(node[known], kind="stable")]
    return Seats(
        rows,
        tuple(members),
        node,
        names,
        dense(np.array(by_name["device"], dtype=np.int64)),
        stage,
        dense(np.array(by_name["dp_rank"], dtype=np.int64)),
        tuple((int(each), np.flatnonzero(stage == each)) for each in np.unique(stage[known])),
        domain,
        domains,
        by_node,
        np.searchsorted(node[by_node], np.arange(len(names) + 1)),
    )


def tabulate(window: JobWindow, before: RankTable | None) -> RankTable:
    """The columns of a window. `before`: the newest of the same generation, to see what goes back in time.

    Raises ValueError for a number of expected ranks that no job has."""
    count = window.ranks_expected
    if not 0 < count <= policy.RANKS_MAX:
        raise ValueError(f"ranks_expected is {count}: it must be 1 to {policy.RANKS_MAX}")
    first = len(SEAT_FIELDS)
    places = [row[:first] for row in window.ranks]
    seated = before.seats if before and before.seats.rows == places else seats(places, count)
    # one pass over all numbers of all rows: the fastest way from tuples to columns
    flat = chain.from_iterable([row[first:] for row in window.ranks])
    numbers = np.fromiter(flat, np.float64, len(places) * len(NUMBERS)).reshape(-1, len(NUMBERS)).T
    ranks = np.fromiter((int(row[0]) for row in places), np.int64, len(places))
    inside = (ranks >= 0) & (ranks < count)
    values = {}
    for name, column in zip(NUMBERS, numbers, strict=True):
        values[name] = np.full(count, np.nan)
        values[name][ranks[inside]] = column[inside]
    rows = np.bincount(ranks[inside], minlength=count)
    reason = np.full(count, -1, dtype=np.int64)
    words = []
    with np.errstate(all="ignore"):
        for index, (word, bad) in enumerate(_doubts(window, values, rows, before)):
            words.append(word)
            reason[(reason < 0) & bad] = index
    out = reason >= 0
    for name in NUMBERS:
        values[name][out] = np.nan
    named = np.flatnonzero(out)[: policy.UNJUDGED_MAX]
    foreign = [
        Unjudged(int(rank), f"the job has no such rank: it has {count}")
        for rank in np.unique(ranks[~inside])[: policy.UNJUDGED_MAX]
    ]
    counts = {word: int((reason == index).sum()) for index, word in enumerate(words)}
    counts["it is no rank of the job"] = int((~inside).sum())
    unjudged = (*foreign, *(Unjudged(int(rank), words[reason[rank]]) for rank in named))
    return RankTable(
        seated,
        values,
        unjudged[: policy.UNJUDGED_MAX],
        {word: n for word, n in counts.items() if n},
        reason == words.index(NO_STEP),
        out,
    )


def _doubts(
    window: JobWindow, values: dict[str, Floats], rows: Ints, before: RankTable | None
) -> Iterator[tuple[str, Bools]]:
    """Each reason to leave a rank out, with the ranks that it holds for. The first that holds counts."""
    matrix = np.array([values[name] for name in NUMBERS])
    steps, wall_s, last = values["steps"], values["wall_s"], values["last_step"]
    yield "it did not report", rows == 0
    yield "it has several rows in one window", rows > 1
    yield "its row is of another generation", values["generation"] != window.generation
    yield "its row has a value that is no finite number", ~np.isfinite(matrix).all(axis=0)
    least = np.array([_least(name) for name in NUMBERS])[:, None]
    yield "its row has a negative value", np.asarray((matrix < least).any(axis=0))
    yield NO_STEP, steps == 0
    yield "no time passed in its steps", wall_s <= 0
    phases_s = np.sum([values[f"{phase}_s"] for phase in PHASES], axis=0)
    apart = (phases_s > policy.WHOLE_RATIO * wall_s) | (wall_s > policy.WHOLE_RATIO * phases_s)
    yield "its phases do not add up to its steps", apart
    yield "its CPU time is longer than its steps", values["cpu_s"] > policy.WHOLE_RATIO * wall_s
    if before is not None:
        seen = before.values["last_step"]
        yield "its newest step is not newer than in the window before", last <= seen
    typical = low_median(steps)
    behind = low_median(last) - last
    yield (
        "it reports late: others are many steps ahead",
        np.asarray(behind > max(policy.LAG_STEPS, 2.0 * typical)),
    )
    covered = values["covered"] / steps >= policy.COVERED_RATIO
    yield "its hooks do not tell its own work from waiting", np.asarray(~covered & covered.any())


def _least(name: str) -> float:
    """The least value of a number that is known, or that says that it is not known."""
    return -1.0 if name in ("last_step", "device_used", "cpu_limit") else 0.0
