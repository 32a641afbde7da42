"""Say whether a restart that changes nothing would fail again, with the evidence.

The ladder is read from the top: the first rung that applies decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.analysis.failure_logs import policy
from controlplane.analysis.failure_logs.causes import HARDWARE, Recurrence

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from controlplane.analysis.failure_logs.events import LoggedFailure, RankHistory
    from controlplane.analysis.failure_logs.order import FirstFailure


@dataclass(frozen=True, slots=True)
class RestartAdvice:
    """Whether to restart, and why."""

    restart: bool
    reason: str
    confidence: float


@dataclass(frozen=True, slots=True)
class _Facts:
    first: FirstFailure
    failure: LoggedFailure
    ranks: Sequence[RankHistory]

    @property
    def alike(self) -> int:
        """How many ranks failed with the same cause at the same place."""
        return sum(
            each.first_failure is not None and each.first_failure.signature == self.failure.signature
            for each in self.ranks
        )

    @property
    def most(self) -> bool:
        """Whether these are most of the ranks."""
        return self.alike >= max(policy.ALIKE_MIN, policy.ALIKE_RATIO * len(self.ranks))

    @property
    def before_training(self) -> bool:
        """Whether no rank had trained a step when it failed, though others log steps, or all of them."""
        return all(each.last.last_step is None for each in self.ranks)

    @property
    def early(self) -> bool:
        """Whether the rank that failed had trained a few steps at most since this start."""
        trained = [each.last for each in self.ranks if each.last.last_step is not None]
        if not trained and any(each.last.begins_unread for each in self.ranks):
            return False  # not known
        if self.failure.step is None and trained and self.first.rank is not None:
            return False  # this rank logs no steps, others do
        steps = [(each.last_step or 0) - (each.first_step or 0) for each in trained]
        return not steps or max(steps) < policy.FIRST_STEPS

    @property
    def earlier(self) -> list[LoggedFailure]:
        """The failures with which earlier attempts ended."""
        return [
            failure
            for each in self.ranks
            for attempt in each.attempts[:-1]
            if (failure := attempt.first) is not None
        ]  # fmt: skip


def advise(first: FirstFailure | None, ranks: Sequence[RankHistory]) -> RestartAdvice:
    """Whether a restart helps after this first failure. `first`: None when nothing was recognised."""
    if first is None:
        return RestartAdvice(True, "nothing here says that it would fail again", policy.GUESS)
    failures = [first.failure] if first.failure is not None else _candidates(first, ranks)
    advices = [_of(_Facts(first, failure, ranks)) for failure in failures]
    if all(each.restart == advices[0].restart for each in advices):
        return advices[0]
    against = next(each for each in advices if not each.restart)
    return RestartAdvice(
        False,
        f"it is not known which failure was first, and after one of them: {against.reason}",
        policy.GUESS,
    )


def _candidates(first: FirstFailure, ranks: Sequence[RankHistory]) -> list[LoggedFailure]:
    return [
        each.first_failure
        for each in ranks
        if each.rank in first.candidates and each.first_failure is not None
    ]  # fmt: skip


def _of(facts: _Facts) -> RestartAdvice:
    for rung in _LADDER:
        if (advice := rung(facts)) is not None:
            return advice
    return RestartAdvice(True, "nothing here says that it would fail again", policy.GUESS)


def _place(failure: LoggedFailure) -> str:
    at = f" at {failure.file}:{failure.line}" if failure.file else ""
    return f"{failure.exception or failure.row.means}{at}"


def _again(facts: _Facts) -> RestartAdvice | None:
    """The same failure ended an earlier attempt at the same step, or at no step."""
    failure = facts.failure
    same = [
        each for each in facts.earlier if each.signature == failure.signature and each.step == failure.step
    ]
    if not same or not (failure.file or failure.row.recurs is not Recurrence.PASSES):
        return None
    step = f"step {failure.step}" if failure.step is not None else "the start"
    reason = f"an earlier attempt ended with the same failure at {step}: {_place(failure)}"
    return RestartAdvice(False, reason, policy.CERTAIN)


def _certain(facts: _Facts) -> RestartAdvice | None:
    if facts.failure.row.recurs is not Recurrence.CERTAIN:
        return None
    reason = f"{facts.failure.row.means}, and a restart does not change that: {_place(facts.failure)}"
    return RestartAdvice(False, reason, policy.CERTAIN)


def _passes(facts: _Facts) -> RestartAdvice | None:
    failure = facts.failure
    if failure.row.recurs is not Recurrence.PASSES or failure.cause == "unknown":
        return None
    where = ": use another node or device" if failure.cause in HARDWARE else ""
    repeats = [each for each in facts.earlier if each.cause == failure.cause]
    if repeats and failure.cause in HARDWARE:
        where += "; an earlier attempt met the same, so the device has to be exchanged first"
    return RestartAdvice(
        True, f"{failure.row.means}, which does not come from the job itself{where}", policy.LIKELY
    )


def _alike(facts: _Facts) -> RestartAdvice | None:
    if not facts.most:
        return None
    which = f"{facts.alike} of {len(facts.ranks)} ranks failed alike"
    reason = f"{which} ({_place(facts.failure)}): chance does not do that"
    return RestartAdvice(False, reason, policy.CERTAIN)


def _at_start(facts: _Facts) -> RestartAdvice | None:
    if not facts.early or (facts.failure.row.recurs is Recurrence.ALIKE and len(facts.ranks) > 1):
        return None
    when = "it failed within the first steps of this start"
    reason = f"{when} ({_place(facts.failure)}): the next start does the same"
    return RestartAdvice(False, reason, policy.LIKELY)


def _likely(facts: _Facts) -> RestartAdvice | None:
    if facts.failure.row.recurs is not Recurrence.LIKELY:
        return None
    means, place = facts.failure.row.means, _place(facts.failure)
    what = place if place.startswith(means) else f"{means} ({place})"
    reason = f"{what}, and nothing outside of the job is named: the same code meets the same data again"
    return RestartAdvice(False, reason, policy.WEAK)


def _one_rank(facts: _Facts) -> RestartAdvice | None:
    if facts.failure.row.recurs is not Recurrence.ALIKE:
        return None
    reason = (
        f"{facts.failure.row.means}, on {facts.alike} of {len(facts.ranks)} ranks and not in the first "
        "steps: it need not happen again"
    )
    return RestartAdvice(True, reason, policy.WEAK)


_LADDER: tuple[Callable[[_Facts], RestartAdvice | None], ...] = (
    _again, _certain, _passes, _alike, _at_start, _likely, _one_rank,
)  # fmt: skip
