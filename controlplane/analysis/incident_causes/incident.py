"""Say the first cause of one incident of a running job, by the ends of its ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.analysis.failure_logs import diagnosis
from controlplane.analysis.failure_logs.clocks import Clocks
from controlplane.analysis.failure_logs.events import RankAttempt, RankHistory
from controlplane.analysis.incident_causes import ends
from controlplane.core.records.diagnosis import CauseFound
from controlplane.core.records.words import NO_RANK, NO_STEP, some_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from controlplane.analysis.failure_logs.diagnosis import LogsDiagnosis
    from controlplane.analysis.failure_logs.events import LoggedFailure
    from controlplane.analysis.failure_logs.stamps import ClockOffset
    from controlplane.core.records.diagnosis import RankEnded
    from controlplane.core.state.findings import Finding

FINDINGS = ("first_failure", "fails_again")
"""The findings of an incident; the others are about files."""


@dataclass(frozen=True, slots=True)
class CalledApart:
    """A rank that called another collective than the others, by the flight records, in this step."""

    rank: int
    node: str
    step: int
    reason: str


@dataclass(frozen=True, slots=True)
class IncidentEnds:
    """What is known of one incident. `ends`: of all its processes, in the order of their arrival; two of one
    rank are two lives. `lost`: ranks whose node was lost: (rank, node, reason). `earlier`: how processes of
    earlier incidents ended, by rank. `apart`: ranks that called something else than the others."""

    job: str
    incident: int
    ends: Sequence[RankEnded]
    lost: Sequence[tuple[int, str, str]]
    earlier: Mapping[int, Sequence[RankAttempt]]
    clocks: Mapping[str, ClockOffset]
    apart: Sequence[CalledApart] = ()


@dataclass(frozen=True, slots=True)
class JudgedIncident:
    """The cause, the findings that go with it, and how each rank ended for good (to recognise it again)."""

    cause: CauseFound
    findings: tuple[Finding, ...]
    attempts: tuple[tuple[int, RankAttempt], ...]


def judged(known: IncidentEnds) -> JudgedIncident | None:
    """The first cause; None when nothing is known of any rank, or nobody ended by himself."""
    if not known.lost and all(end.ordered for end in known.ends):
        return None
    ranks = _histories(known)
    found = diagnosis.judge(ranks, Clocks(ranks, known.clocks), ())
    findings = tuple(each for each in found.findings if each.kind in FINDINGS)
    lives = tuple((each.rank, each.last) for each in ranks if each.last.first is not None)
    return JudgedIncident(_cause(known, found), findings, lives)


def _histories(known: IncidentEnds) -> list[RankHistory]:
    lives: dict[int, list[RankEnded]] = {}
    for end in known.ends:
        lives.setdefault(end.rank, []).append(end)
    found = {}
    for rank, all_ends in lives.items():
        earlier = [*known.earlier.get(rank, ()), *(ends.history(each).last for each in all_ends[:-1])]
        found[rank] = ends.history(all_ends[-1], earlier)
    for rank, node, reason in known.lost:
        found.setdefault(rank, ends.lost(rank, node, reason))
    for each in known.apart:
        blamed = found.setdefault(each.rank, RankHistory(each.rank, each.node, [RankAttempt()]))
        ends.called_apart(blamed.last, each.step, each.reason)
    return [found[rank] for rank in sorted(found)]


def _cause(known: IncidentEnds, found: LogsDiagnosis) -> CauseFound:
    first, advice = found.first, found.advice
    failure = first.failure if first is not None else None
    rank = first.rank if first is not None else None
    nodes = {each.rank: each.node for each in found.ranks}
    return CauseFound(
        job=known.job,
        incident=known.incident,
        cause=failure.cause if failure is not None else "",
        means=failure.row.means if failure is not None else "the ranks failed in different ways",
        rank=NO_RANK if rank is None else rank,
        candidates=() if first is None or rank is not None else first.candidates,
        node=nodes.get(rank, "") if rank is not None else "",
        exception=failure.exception if failure is not None else "",
        text=failure.text if failure is not None else "",
        file=failure.file if failure is not None else "",
        line=(failure.line or 0) if failure is not None else 0,
        log=failure.log_file if failure is not None else "",
        step=NO_STEP if failure is None or failure.step is None else failure.step,
        words_of=failure.source if failure is not None else "",
        reason=first.reason if first is not None else "",
        confidence=first.confidence if first is not None else 0.0,
        cascade=_cascade(found),
        clocks=_clocks(known, found),
        restart=advice.restart,
        advice=advice.reason,
        advice_confidence=advice.confidence,
        recommendation=failure.row.advice if failure is not None else "Look at the logs of all candidates.",
    )


def _cascade(found: LogsDiagnosis) -> tuple[str, ...]:
    """How the other ranks ended, those that ended alike together, in the order of their lowest rank."""
    candidates = frozenset(found.first.candidates if found.first is not None else ())
    alike: dict[str, list[int]] = {}
    for rank, failure in found.cascade:
        if rank not in candidates:
            alike.setdefault(_ended_of(failure), []).append(rank)
    return tuple(
        f"rank{'s' if len(ranks) > 1 else ''} {some_of(ranks)}: {means}" for means, ranks in alike.items()
    )


def _ended_of(failure: LoggedFailure | None) -> str:
    if failure is None:
        return "ended without a word"
    if failure.text.startswith(ends.ORDERED):
        return failure.text
    own = ", a cause of its own that came later" if failure.is_root else ""
    return f"{failure.row.means}{own}"


def _clocks(known: IncidentEnds, found: LogsDiagnosis) -> str:
    nodes = list(dict.fromkeys(each.node for each in found.ranks))
    if len(nodes) < 2:
        return "all of these ranks are on one node, so they have one clock"
    margins_s = [known.clocks[node].margin_s for node in nodes if node in known.clocks]
    if len(margins_s) == len(nodes):
        return f"the clocks of {len(nodes)} nodes are known within {max(margins_s):.2g} s from heartbeats"
    return (
        f"the clocks of {len(nodes) - len(margins_s)} of {len(nodes)} nodes are not known against the others"
    )
