"""Decide from replays of the steps what made replicas of the state differ: hardware, software, or unknown.

All ranks go back to a snapshot that they held alike, and run the steps again. A `ReplayPass` says which
digest each rank's process held at the end of one run:

- `seen`: the disagreement itself. Each of the others is a run of the function that the script declares.
- `kept`, `before`: the snapshot, and what a run from the snapshot before it gives. Equal: the function does
  what the script has done, bit for bit.
- `again`: the same steps once more, in the same places. There are two.
- `exchanged`: process p plays the place of rank p + shift: its samples, its random numbers, its
  `session.rank`. So each rank's program runs on other devices; on two others if there are three or more.

What proves what. A fault that comes again with the same bits is no accident; if it goes with the place to
other devices, no device makes it: software. If a program that is shown to repeat bit for bit, and to be the
script's own, gives equal replicas twice, the program did not make them differ: hardware. A fault that stays
with the process is either a device that computes wrongly, or a script that asks somebody else than the
session for its rank: unknown, until the rank has run elsewhere. Pure: a table, read from the top."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.core.records.evidence import Origin, ReplayAnswer
from holdfast.ipc.messages.replicas import DONE, RUNNING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from controlplane.core.records.evidence import ReplayPass

UNTRIED = "not_tried"
"""A value of `ReplicasReported.replay` like those of an SDK: why there is none."""
ELSEWHERE = "again_elsewhere"
"""The reason when the same rank differed before in another place."""
REFUSALS = {
    UNTRIED: "the rank's version of the SDK replays nothing",
    "only_reported": "the job only reports (--on-corrupt-state report), so no rank goes back for a replay",
    "no_step_function": "the script declares no step function (session.step_function)",
    "left_function": "parts of the state were changed outside of the declared step function",
    "no_snapshot": "no snapshot is left that all ranks held alike",
    "not_replicated": "not all ranks hold the same state, so their places cannot be compared",
    "own_random": "the random numbers of the steps are the script's own (seed=None)",
    "own_loader": "the step takes its samples from a loader, which cannot be set back",
    "carried_gradients": "gradients are carried over the step's end",
    "too_long": "too many steps lie between the snapshot and the comparison",
    "too_many": "too many ranks differ to be listed",
    "only_buffers": "only buffers differ, which a script may change on one rank alone",
    "only_gradients": "only gradients differ, and the state that they were used for is equal",
}
"""Why there was no replay, by code."""

Digests = tuple[str, ...]
"""What the process of each rank held, by rank."""


@dataclass(frozen=True, slots=True)
class Runs:
    """The passes of a replay with `count` ranks, sorted out. (): there was no such pass."""

    count: int
    odd: tuple[int, ...]  # ranks that differ from the majority in `seen`; (): there is no majority
    elsewhere: bool  # the same ranks differed at the same step before, on other devices
    seen: Digests = ()
    kept: Digests = ()
    before: Digests = ()
    again: tuple[Digests, ...] = ()
    exchanged: tuple[tuple[int, Digests], ...] = ()

    @property
    def agree(self) -> bool:
        """Whether the ranks agree when the steps run again."""
        return len(set(self.again[0])) == 1

    @property
    def faithful(self) -> bool:
        """Whether the declared function is shown to do what the script has done, bit for bit."""
        known = self.again[0][0] in self.seen  # what some rank holds, no fault has reached
        return known or (bool(self.kept) and self.kept == self.before)

    def follows(self, *, place: bool) -> bool:
        """Whether in all exchanged runs those differ that have the place (or that are the process) of those
        that differed before, and never the other way round."""
        return all(_follows(self.again[0], shift, found, place=place) for shift, found in self.exchanged)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table: a condition on the runs, and what follows from it."""

    applies: Callable[[Runs], bool]
    origin: Origin
    why: str
    words: str


ROWS = (
    Row(
        lambda r: r.elsewhere,
        Origin.SOFTWARE,
        ELSEWHERE,
        "the same rank differed at the same step before, in another process on another device",
    ),
    Row(lambda r: len(r.again) < 2 or not r.seen, Origin.UNKNOWN, "incomplete", "the replay did not end"),
    Row(
        lambda r: r.again[0] != r.again[1],
        Origin.UNKNOWN,
        "not_deterministic",
        "the same steps gave other bits when they ran again, and once more: they are not deterministic",
    ),
    Row(
        lambda r: r.agree and r.faithful,
        Origin.HARDWARE,
        "not_again",
        "the same steps, run again twice, gave the same bits on all ranks: the program does not do it",
    ),
    Row(
        lambda r: r.agree,
        Origin.UNKNOWN,
        "not_shown_faithful",
        "run again, the ranks agree; but nothing shows that the declared function is all that the steps did",
    ),
    Row(
        lambda r: r.again[0] != r.seen,
        Origin.UNKNOWN,
        "differs_otherwise",
        "run again, the ranks differ in another way than before",
    ),
    Row(
        lambda r: not r.exchanged,
        Origin.UNKNOWN,
        "not_exchanged",
        "it comes again with the same bits, and the ranks could not exchange their places",
    ),
    Row(
        lambda r: r.follows(place=True),
        Origin.SOFTWARE,
        "follows_the_place",
        "it comes again with the same bits, and goes with the rank's place to other devices",
    ),
    Row(
        lambda r: r.follows(place=False),
        Origin.UNKNOWN,
        "follows_the_process",
        "it comes again with the same bits, and stays with the process whatever place it takes: its device, "
        "or a script that does not ask the session for its rank",
    ),
    Row(
        lambda r: True,
        Origin.UNKNOWN,
        "mixed",
        "it comes again with the same bits, but neither with the place nor with the process alone",
    ),
)
WORDS = (
    {row.why: row.words for row in ROWS}
    | REFUSALS
    | {RUNNING: "the steps are being run again, or that was cut off"}
)
"""What each `why` means, for people."""


def judge(
    replay: str,
    passes: Sequence[ReplayPass],
    count: int,
    odd: Iterable[int],
    *,
    elsewhere: bool = False,
) -> ReplayAnswer:
    """What made the replicas of `count` ranks differ.

    `replay`: as in ReplicasReported; `odd`: the ranks that differ from the majority; `elsewhere`: they
    differed at the same step before, on other devices."""
    blamed = tuple(sorted(set(odd)))
    if replay != DONE and not elsewhere:
        return ReplayAnswer(Origin.UNKNOWN, replay or UNTRIED)
    runs = sorted_out(passes, count, blamed, elsewhere=elsewhere)
    row = next(row for row in ROWS if row.applies(runs))
    if row.origin is Origin.UNKNOWN:
        return ReplayAnswer(row.origin, row.why)
    return ReplayAnswer(row.origin, row.why, blamed or _not_as_again(runs))


def sorted_out(
    passes: Iterable[ReplayPass], count: int, odd: tuple[int, ...], *, elsewhere: bool = False
) -> Runs:
    """The passes by kind. One that names impossible ranks is left out."""
    found: dict[str, list[tuple[int, Digests]]] = {}
    for each in passes:
        digests = _digests(each, count)
        if digests:
            found.setdefault(each.kind, []).append((each.shift, digests))
    first = {kind: runs[0][1] for kind, runs in found.items()}
    return Runs(
        count,
        odd,
        elsewhere,
        seen=first.get("seen", ()),
        kept=first.get("kept", ()),
        before=first.get("before", ()),
        again=tuple(digests for _, digests in found.get("again", ())),
        exchanged=tuple(found.get("exchanged", ())),
    )


def _digests(found: ReplayPass, count: int) -> Digests:
    if len(found.ranks) != len(found.digests) or not all(0 <= rank < count for rank in found.ranks):
        return ()
    own = dict(zip(found.ranks, found.digests, strict=True))
    return tuple(own.get(rank, found.common) for rank in range(count))


def _not_as_again(runs: Runs) -> tuple[int, ...]:
    """Without a majority: the ranks that do not hold what the steps give when they run again, if some do."""
    right = runs.again[0][0] if runs.again and runs.agree else ""
    if right not in runs.seen:
        return ()
    return tuple(rank for rank, digest in enumerate(runs.seen) if digest != right)


def _follows(again: Digests, shift: int, found: Digests, *, place: bool) -> bool:
    """Whether the digests of an exchanged run are divided as before by place, and not by process; or, with
    `place` false, the other way round.

    Sums over ranks are added in another order when places are exchanged, so digests of more than two ranks
    cannot be compared with those before; which of them are equal can. Of two ranks that differ, either way
    divides them alike; their sums have no order, so there the digests themselves decide."""
    count = len(again)
    by_place = tuple(found[(rank - shift) % count] for rank in range(count))
    as_place, as_process = _division(by_place) == _division(again), _division(found) == _division(again)
    if as_place and as_process:
        as_place, as_process = by_place == again, found == again
    return (as_place and not as_process) if place else (as_process and not as_place)


def _division(digests: Digests) -> tuple[int, ...]:
    """Who holds the same: for each, the first that does."""
    return tuple(digests.index(each) for each in digests)
