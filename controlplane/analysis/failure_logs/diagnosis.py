"""Find the first failure in the logs of all ranks, what followed from it, and whether to restart."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from controlplane.analysis.failure_logs import order, policy, restarts
from controlplane.analysis.failure_logs.clocks import Clocks
from controlplane.analysis.failure_logs.merging import histories
from controlplane.core.state.findings import Finding, Level, Recommendation

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from controlplane.analysis.failure_logs.events import LoggedFailure, RankFile, RankHistory
    from controlplane.analysis.failure_logs.order import FirstFailure
    from controlplane.analysis.failure_logs.restarts import RestartAdvice
    from controlplane.analysis.failure_logs.stamps import ClockOffset

UNKNOWN = "unknown"
_CLOCK_WRONG_S = 1.0


@dataclass(frozen=True, slots=True)
class LogsDiagnosis:
    """All that was found. `cascade`: the other ranks, in order of rank, with how each ended (None: without a
    word). `offsets`: of each rank's clock, where known. `got_over`: failures after which ranks went on."""

    first: FirstFailure | None
    cascade: tuple[tuple[int, LoggedFailure | None], ...]
    advice: RestartAdvice
    ranks: tuple[RankHistory, ...]
    missing: tuple[int, ...]
    offsets: tuple[tuple[int, ClockOffset], ...]
    got_over: int
    findings: tuple[Finding, ...] = ()


_LOOK = "Look at the logs of all candidates."
_LOOK_EVERYWHERE = "Look at the last lines of each log, and at the kernel's log of each node."


def diagnose(files: Iterable[RankFile]) -> LogsDiagnosis:
    """The diagnosis of one job. There has to be one file at least, and no two ranks may be one."""
    ranks = histories(files)
    present = [each.rank for each in ranks]
    missing = tuple(rank for rank in range(max(present)) if rank not in frozenset(present))
    return judge(ranks, Clocks(ranks), missing)


def judge(ranks: Sequence[RankHistory], clocks: Clocks, missing: tuple[int, ...]) -> LogsDiagnosis:
    """What happened, by what is known of each rank. There has to be one. `missing`: ranks without a log."""
    first = order.first(ranks, clocks, missing)
    advice = restarts.advise(first, ranks)
    named = first.rank if first is not None else None
    cascade = tuple((each.rank, each.first_failure) for each in ranks if each.rank != named)
    offsets = tuple((each.rank, offset) for each in ranks if (offset := clocks.offset(each.rank)).marks)
    got_over = sum(each.last.got_over for each in ranks)
    found = LogsDiagnosis(first, cascade, advice, tuple(ranks), missing, offsets, got_over)
    return replace(found, findings=tuple(_findings(found)))


def _findings(found: LogsDiagnosis) -> list[Finding]:
    findings = [_first_finding(found)] if found.first is not None else [_nothing(found.ranks)]
    if not found.advice.restart:
        findings.append(
            Finding(
                "fails_again", Level.CRITICAL, "the job", found.advice.reason,
                confidence=found.advice.confidence,
                recommendations=(Recommendation("Do not restart before the cause is removed."),),
            )
        )  # fmt: skip
    if found.missing:
        findings.append(_missing(found.missing))
    wrong = [(rank, offset) for rank, offset in found.offsets if abs(offset.offset_s) > _CLOCK_WRONG_S]
    if wrong:
        findings.append(_clocks(wrong))
    return findings


def _first_finding(found: LogsDiagnosis) -> Finding:
    first = found.first
    if first is None:
        raise ValueError("there is no first failure")
    failure = first.failure
    who = (
        f"rank {first.rank}"
        if first.rank is not None
        else "ranks " + ", ".join(map(str, first.candidates[:8]))
    )
    evidence: list[tuple[str, float | str]] = [("cause", failure.cause if failure else UNKNOWN)]
    what = "several causes"
    if failure is not None:
        what = failure.row.means
        evidence += [
            ("log_file", failure.log_file),
            ("log_line", failure.log_line or 0),
            ("text", failure.text),
        ]
        evidence += [("file", failure.file), ("line", failure.line or 0)] if failure.file else []
        evidence += [("step", failure.step)] if failure.step is not None else []
        evidence += [("words_of", failure.source)] if failure.source else []
    return Finding(
        "first_failure", Level.CRITICAL, who, f"{what}; {first.reason}",
        place=(("rank", first.rank),), confidence=first.confidence, evidence=tuple(evidence),
        recommendations=(Recommendation(failure.row.advice if failure else _LOOK),),
    )  # fmt: skip


def _nothing(ranks: Sequence[RankHistory]) -> Finding:
    return Finding(
        "nothing_recognised", Level.DEGRADED, "the job", f"no log of {len(ranks)} ranks names a failure",
        place=(("rank", None),), confidence=policy.GUESS,
        recommendations=(Recommendation(_LOOK_EVERYWHERE),),
    )  # fmt: skip


def _missing(missing: tuple[int, ...]) -> Finding:
    shown = ", ".join(map(str, missing[:16])) + (" ..." if len(missing) > 16 else "")
    return Finding(
        "missing_logs", Level.DEGRADED, f"ranks {shown}", f"{len(missing)} ranks have no log",
        place=(("rank", missing[0] if len(missing) == 1 else None),),
        evidence=(("missing_count", len(missing)),),
        recommendations=(Recommendation("Bring their logs: the first failure may be in one of them."),),
    )  # fmt: skip


def _clocks(wrong: list[tuple[int, ClockOffset]]) -> Finding:
    rank, offset = max(wrong, key=lambda each: abs(each[1].offset_s))
    return Finding(
        "clocks_differ", Level.DEGRADED, f"{len(wrong)} ranks",
        f"their clocks differ from the others' by up to {abs(offset.offset_s):.3g} s (rank {rank}); "
        "times were compared after that was taken out",
        place=(("rank", rank if len(wrong) == 1 else None),),
        evidence=(
            ("offset_s", offset.offset_s), ("margin_s", offset.margin_s), ("common_count", offset.marks),
        ),
        recommendations=(Recommendation("Look at the time service of these nodes."),),
    )  # fmt: skip
