"""Decide which rank failed first, or say that it cannot be decided.

A failure that needs no other one (a root) precedes all that follow from others, whatever the clocks say: that
needs no time. Times decide between several roots, and only where they lie further apart than the clocks may
differ. Next come how far each rank had trained, and what the launcher reports; file times are the last
resort."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.analysis.failure_logs import policy
from controlplane.analysis.failure_logs.causes import CausalRole
from controlplane.analysis.failure_logs.events import LoggedFailure
from controlplane.core.records.words import some_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from controlplane.analysis.failure_logs.clocks import Clocks, Moment
    from controlplane.analysis.failure_logs.events import RankHistory

_CUT_OFF = ("connection_lost", "nccl_error", "store_lost", "network_error")
"""What others report when a process is gone, rather than slow."""


@dataclass(frozen=True, slots=True)
class FirstFailure:
    """What failed first. `rank`: None when it cannot be told which of the `candidates` it was; `failure`:
    None when these do not have the same cause. `reason`: the evidence for the order."""

    rank: int | None
    failure: LoggedFailure | None
    candidates: tuple[int, ...]
    reason: str
    confidence: float


@dataclass(frozen=True, slots=True)
class _Scene:
    ranks: dict[int, RankHistory]
    clocks: Clocks
    missing: tuple[int, ...]

    def failure(self, rank: int) -> LoggedFailure:
        found = self.ranks[rank].first_failure
        if found is None:
            raise KeyError(rank)
        return found

    def with_role(self, role: CausalRole) -> list[int]:
        return [
            r for r, each in self.ranks.items() if each.first_failure and each.first_failure.row.role is role
        ]


def first(ranks: Sequence[RankHistory], clocks: Clocks, missing: tuple[int, ...]) -> FirstFailure | None:
    """What failed first; None when no log names any failure. `missing`: ranks without a log."""
    scene = _Scene({each.rank: each for each in ranks}, clocks, missing)
    failed = [rank for rank, each in scene.ranks.items() if each.first_failure is not None]
    if not failed:
        return None
    silent = [rank for rank in scene.ranks if rank not in failed]
    roots = _own(scene, scene.with_role(CausalRole.ROOT), [*silent, *missing])
    if roots:
        return _of(scene, roots, "is the only rank with a cause of its own")
    told = [rank for rank in failed if scene.failure(rank) in scene.ranks[rank].reported]
    told = [rank for rank in told if scene.failure(rank).row.role is not CausalRole.CASCADE]
    if told:
        return _of(scene, told, "was seen by the launcher to end first")
    if (quiet := _of_silent(scene, failed, silent)) is not None:
        return quiet
    if either := scene.with_role(CausalRole.EITHER):
        return _of(scene, either, "is the only rank whose failure does not follow from another rank's")
    return _of_cascades(scene, failed)


def _own(scene: _Scene, roots: list[int], absent: list[int]) -> list[int]:
    """The roots, without those that provably came after others had already lost a rank of which no log says
    anything."""
    if not absent:
        return roots
    lost = [
        rank
        for rank in scene.with_role(CausalRole.CASCADE)
        if scene.failure(rank).cause in _CUT_OFF
    ]  # fmt: skip
    return [root for root in roots if not any(_precedes(scene, rank, root) for rank in lost)]


def _of(scene: _Scene, ranks: list[int], alone: str) -> FirstFailure:
    """The first of these ranks, by the strongest evidence that decides."""
    if len(ranks) == 1:
        return FirstFailure(ranks[0], scene.failure(ranks[0]), (), f"rank {ranks[0]} {alone}", policy.CERTAIN)
    left = [
        rank for rank in ranks if not any(_precedes(scene, other, rank) for other in ranks if other != rank)
    ]
    if len(left) == 1:
        return FirstFailure(
            left[0], scene.failure(left[0]), (), _by_time(scene, left[0], ranks), policy.LIKELY
        )
    for choose, confidence in _WEAKER:
        if (chosen := choose(scene, left)) is not None:
            rank, reason = chosen
            return FirstFailure(rank, scene.failure(rank), tuple(left), reason, confidence)
    return _undecided(scene, left)


def _undecided(scene: _Scene, left: list[int]) -> FirstFailure:
    failures = [scene.failure(rank) for rank in left]
    alike = len(dict.fromkeys(each.signature for each in failures)) == 1
    margins = [moment.margin_s for rank in left if (moment := _moment(scene, rank)) is not None]
    why = (
        f"their failures lie within {2 * max(margins):.2g} s, by which the clocks may differ, or bear no time"
        if margins
        else "their logs bear no times"
    )
    which = f"ranks {some_of(left)} have causes of their own"
    return FirstFailure(
        None,
        failures[0] if alike else None,
        tuple(left),
        f"{which}{', the same ones' if alike else ''}; which was first cannot be told: {why}",
        policy.LIKELY if alike else policy.WEAK,
    )


def _of_silent(scene: _Scene, failed: list[int], silent: list[int]) -> FirstFailure | None:
    """The rank that says nothing while all others report that one is gone."""
    absent = [*silent, *scene.missing]
    if not absent or len(absent) > max(1, len(failed)):
        return None
    gone = any(scene.failure(rank).cause in _CUT_OFF for rank in failed)
    cause = "killed" if gone else "hung"
    if len(absent) > 1:
        left = _least_far(scene, silent) if silent and not scene.missing else None
        if left is None:
            reason = (
                f"ranks {some_of(absent)} end without a word, or have no log; the others follow from that"
            )
            return FirstFailure(None, _quiet(scene, absent[0], cause), tuple(absent), reason, policy.WEAK)
        return FirstFailure(
            left, _quiet(scene, left, cause), tuple(absent), "its last step is the lowest", policy.WEAK
        )
    rank = absent[0]
    how = "has no log" if rank in scene.missing else "is the only one whose log ends without a word"
    reason = f"rank {rank} {how}, and the others report that {'a rank is gone' if gone else 'they waited'}"
    return FirstFailure(rank, _quiet(scene, rank, cause), (), reason, policy.LIKELY)


def _quiet(scene: _Scene, rank: int, cause: str) -> LoggedFailure:
    """The failure of a rank that wrote nothing about it."""
    history = scene.ranks.get(rank)
    if history is None:
        return LoggedFailure(cause, "", "", None, "")
    text = history.last_text.strip()[: policy.TEXT_SHOWN]
    return LoggedFailure(
        cause, "", history.last_file, history.last_line, text, after=history.last.last_stamp,
        step=history.last.last_step,
    )  # fmt: skip


def _of_cascades(scene: _Scene, failed: list[int]) -> FirstFailure:
    """Only consequences: the most frequent one, and no rank."""
    causes = [scene.failure(rank).cause for rank in failed]
    most = max(dict.fromkeys(causes), key=causes.count)
    example = next(scene.failure(rank) for rank in failed if scene.failure(rank).cause == most)
    alone = failed[0] if len(failed) == 1 else None
    reason = "every failure in these logs follows from another one, of which no log says anything"
    return FirstFailure(alone, example, tuple(failed), reason, policy.GUESS)


def _moment(scene: _Scene, rank: int) -> Moment | None:
    return scene.clocks.moment(rank, scene.failure(rank))


def _margin_s(scene: _Scene, one: int, other: int, moments: tuple[Moment, Moment]) -> float:
    """How far the times of two ranks may be off against each other."""
    if scene.clocks.same(one, other):
        precise_s = max(moments[0].margin_s, moments[1].margin_s) - scene.clocks.offset(one).margin_s
        return policy.SAME_CLOCK_S + max(0.0, precise_s)
    return moments[0].margin_s + moments[1].margin_s


def _precedes(scene: _Scene, one: int, other: int) -> bool:
    """Whether the failure of one rank was provably before that of another."""
    before, after = _moment(scene, one), _moment(scene, other)
    if before is None or after is None or before.latest_s is None:
        return False
    return after.earliest_s - before.latest_s > _margin_s(scene, one, other, (before, after))


def _by_time(scene: _Scene, rank: int, ranks: list[int]) -> str:
    own = _moment(scene, rank)
    times = [
        moment.earliest_s for each in ranks if each != rank and (moment := _moment(scene, each)) is not None
    ]
    clock = scene.clocks.offset(rank)
    apart_s = min(times) - own.earliest_s if times and own is not None else 0.0
    how = f"known within {clock.margin_s:.2g} s from {clock.marks} {clock.of}" if clock.marks else (
        f"assumed to agree within {clock.margin_s:.2g} s"
    )  # fmt: skip
    return (
        f"rank {rank} failed {apart_s:.3g} s before the next rank with a cause of its own; clocks are {how}"
    )


def _least_far(scene: _Scene, ranks: list[int]) -> int | None:
    """The rank whose last step is clearly lower than all others'."""
    steps = {rank: scene.ranks[rank].last.last_step for rank in ranks}
    known = sorted((step, rank) for rank, step in steps.items() if step is not None)
    if len(known) < len(ranks) or len(known) < 2 or known[1][0] - known[0][0] < policy.STEPS_BEHIND:
        return None
    return known[0][1]


def _by_step(scene: _Scene, left: list[int]) -> tuple[int, str] | None:
    rank = _least_far(scene, left)
    return None if rank is None else (rank, f"the last step of rank {rank} is lower than those of the others")


def _by_stop(scene: _Scene, left: list[int]) -> tuple[int, str] | None:
    """The rank whose last time is long before the failures of the others."""
    found = [
        (moment.earliest_s, rank, moment) for rank in left if (moment := _moment(scene, rank)) is not None
    ]
    if len(found) < len(left):
        return None
    found.sort(key=lambda each: each[:2])
    margin_s = _margin_s(scene, found[0][1], found[1][1], (found[0][2], found[1][2]))
    apart_s = found[1][0] - found[0][0]
    if apart_s < policy.STOPPED_EARLIER_S + margin_s:
        return None
    return found[0][
        1
    ], f"the last time in the log of rank {found[0][1]} is {apart_s:.3g} s before the others'"


def _by_report(scene: _Scene, left: list[int]) -> tuple[int, str] | None:
    told = [rank for rank in left if scene.ranks[rank].reported]
    return (told[0], f"torch's launcher saw rank {told[0]} fail first") if len(told) == 1 else None


def _by_file_time(scene: _Scene, left: list[int]) -> tuple[int, str] | None:
    times = sorted((scene.ranks[rank].modified_s, rank) for rank in left)
    if not policy.MODIFIED_APART_S <= times[1][0] - times[0][0] or (
        times[-1][0] - times[0][0] > policy.MODIFIED_SPREAD_MAX_S
    ):
        return None
    apart_s = times[1][0] - times[0][0]
    return times[0][1], (
        f"only file times tell: that of rank {times[0][1]} is {apart_s:.3g} s older than the next; "
        "a copy may have changed them"
    )


_WEAKER: tuple[tuple[Callable[[_Scene, list[int]], tuple[int, str] | None], float], ...] = (
    (_by_step, policy.WEAK),
    (_by_stop, policy.WEAK),
    (_by_report, policy.WEAK),
    (_by_file_time, policy.GUESS),
)
