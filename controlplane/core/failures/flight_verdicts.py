"""Weigh what the flight records of a hung generation prove against what its stack reports show.

The records are judged outside of the core, by the analysis that judges the files of `holdfast doctor
--flight-recorder`: the core gives them away (JudgeRecords), and waits a moment for the answer. This is the
one place where both kinds of evidence meet:

1. A process that does not answer is to blame: it lives and is silent, whatever its records would say.
2. Then records count that leave no doubt: a rank's own record shows that it did not come, or called something
   else than most.
3. Otherwise the stack reports decide, and what the records suggest is only reported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.failures import arrivals
from controlplane.core.failures.arrivals import ArrivalFinding
from controlplane.core.records import effects as fx

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controlplane.core.records.diagnosis import BlamedByRecords, RecordsJudged
    from controlplane.core.records.model import Standing
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.inquiries import HangInquiry
    from controlplane.core.state.job import Job

JUDGED_WITHIN_S = 10.0
"""How long a verdict is waited for. 1,024 ranks with 64 operations each take about 3 s of CPU; a judgement
that takes longer must not hold up the recovery."""
CERTAIN_MIN = 0.9
"""From this confidence on, records decide who is replaced. It is below that of what a rank's own records show
(0.95), and above that of orders and cycles (0.8), of missing records (0.6), and of groups whose members are
inferred (times 0.8)."""


def is_waited_for(state: ClusterState, job: Job, look: HangInquiry, reports: Sequence[Standing]) -> bool:
    """Whether the records in these reports are being judged. Gives them away first, if there are any."""
    if look.records is not None:
        return False
    if not look.records_by:
        if not any(s.flight_record for s in reports):
            return False
        look.records_by = state.now + JUDGED_WITHIN_S
        answers = look.second.answers if look.second is not None else {}
        again = tuple(s for ranks in answers.values() for s in ranks)
        state.emit(fx.JudgeRecords(job.name, look.generation, look.round, tuple(reports), again=again))
    if state.now >= look.records_by:
        return False
    state.wake(job, look.records_by)
    return True


def weigh(
    reports: Sequence[Standing],
    judged: RecordsJudged | None,
    again: Sequence[Standing] | None = None,
) -> ArrivalFinding:
    """The ranks that hold up the others, by both kinds of evidence. `again`: the second reading."""
    by_reports = arrivals.find(reports, again)
    blamed = judged.blamed if judged is not None else ()
    if not blamed or any(s.silent_s > 0 for s in reports):
        return by_reports
    sure = tuple(each for each in blamed if each.confidence >= CERTAIN_MIN)
    if not sure or 2 * len(sure) > len(reports):
        return ArrivalFinding(by_reports.ranks, f"{by_reports.reason}; {_words(blamed, 'suggest')}")
    ranks = tuple(sorted(each.rank for each in sure))
    reason = _words(sure, "show")
    if by_reports.ranks and by_reports.ranks != ranks:
        others = ", ".join(map(str, by_reports.ranks[: arrivals.NAMED_MAX]))
        reason = f"{reason}; by stack reports alone it would have been {others} ({by_reports.reason})"
    return ArrivalFinding(ranks, reason)


def _words(blamed: Sequence[BlamedByRecords], verb: str) -> str:
    """What the records say, of a few ranks."""
    shown = "; ".join(
        f"rank {each.rank} ({each.kind}, {each.confidence:.2f}): {each.reason}"
        for each in blamed[: arrivals.NAMED_MAX]
    )
    more = len(blamed) - arrivals.NAMED_MAX
    return f"the flight records {verb} {shown}" + (f"; and {more} more ranks" if more > 0 else "")
