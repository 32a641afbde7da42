"""Put together what several files say of one rank: its standard output and error, its attempts, other
files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.analysis.failure_logs.events import LoggedFailure, RankAttempt, RankHistory
from controlplane.analysis.failure_logs.scan import scan

if TYPE_CHECKING:
    from collections.abc import Iterable

    from controlplane.analysis.failure_logs.events import RankFile
    from controlplane.analysis.failure_logs.launcher_report import LauncherReport

_LATER_S = 1.0
"""A step that is logged in another file so much later than a failure shows that the rank went on."""


def histories(files: Iterable[RankFile]) -> list[RankHistory]:
    """What all files say of each rank, by rank. Each file is read once, line by line."""
    found: dict[int, dict[int, RankHistory]] = {}
    reports: list[tuple[str, LauncherReport]] = []
    owners: dict[int, None] = {}
    for file in files:
        owners[file.rank] = None
        scanned, reported = scan(file)
        reports += [(file.name, report) for report in reported]
        for rank, history in scanned.items():
            attempts = found.setdefault(rank, {})
            known = attempts.get(file.attempt)
            attempts[file.attempt] = history if known is None else _joined(known, history)
    ranks = [_in_a_row(found[rank]) for rank in sorted(found)]
    for name, report in reports:
        _tell(ranks, name, report)
    return [each for each in ranks if each.rank in owners or each.last.lines]


def _joined(one: RankHistory, other: RankHistory) -> RankHistory:
    """Two files of one start of one rank: their last attempts are one, and so on backwards."""
    longer, shorter = (one, other) if len(one.attempts) >= len(other.attempts) else (other, one)
    skip = len(longer.attempts) - len(shorter.attempts)
    for at, attempt in enumerate(shorter.attempts):
        longer.attempts[skip + at] = _one_attempt(longer.attempts[skip + at], attempt)
    longer.node = longer.node or shorter.node
    longer.modified_s = max(longer.modified_s, shorter.modified_s)
    longer.skipped_bytes += shorter.skipped_bytes
    longer.restarted_by = longer.restarted_by or shorter.restarted_by
    if not longer.last_text:
        longer.last_text, longer.last_file, longer.last_line = (
            shorter.last_text, shorter.last_file, shorter.last_line,
        )  # fmt: skip
    return longer


def _one_attempt(one: RankAttempt, other: RankAttempt) -> RankAttempt:
    steps = [each for each in (one, other) if each.last_step is not None]
    whole = RankAttempt(got_over=one.got_over + other.got_over, lines=one.lines + other.lines)
    whole.first_step = steps[0].first_step if steps else None
    whole.last_step = steps[-1].last_step if steps else None
    whole.marks = {**one.marks, **other.marks}
    stamps = [each.last_stamp for each in (one, other) if each.last_stamp is not None]
    whole.last_stamp = max(stamps, key=lambda stamp: (stamp.whole, stamp.seconds), default=None)
    for mine, others in ((one, other), (other, one)):
        for failure in mine.failures:
            if _went_on(failure, others):
                whole.got_over += 1
                continue
            failure.step = others.last_step if failure.step is None else failure.step
            failure.after = failure.after or others.last_stamp
            whole.failures.append(failure)
    if all(each.after is not None and each.after.whole for each in whole.failures):
        whole.failures.sort(key=lambda each: each.after.seconds if each.after else 0.0)
    else:
        whole.failures.sort(key=lambda each: not each.is_root)
    return whole


def _went_on(failure: LoggedFailure, others: RankAttempt) -> bool:
    """Whether the other file shows a step after this failure, at a time that is comparable."""
    steps = [stamp for mark, stamp in others.marks.items() if mark.startswith("step ")]
    if not (failure.exact and failure.after is not None and steps):
        return False
    last = steps[-1]
    same = (last.dated, bool(last.month)) == (failure.after.dated, bool(failure.after.month))
    return same and last.near(failure.after.seconds) > failure.after.near(last.seconds) + _LATER_S


def _in_a_row(attempts: dict[int, RankHistory]) -> RankHistory:
    """The attempts that lie in folders of their own, one after the other."""
    numbers = sorted(attempts)
    last = attempts[numbers[-1]]
    earlier = [each for number in numbers[:-1] for each in attempts[number].attempts]
    if earlier:
        last.attempts[:0] = earlier
        last.restarted_by = last.restarted_by or f"the folder of attempt {numbers[-1]}"
    return last


def _tell(ranks: list[RankHistory], name: str, report: LauncherReport) -> None:
    """Note at its rank what the launcher reports."""
    for history in ranks:
        if history.rank == report.rank:
            text = f"the launcher saw it end first, with exit code {report.exit_code}"
            told = LoggedFailure(report.cause, "elastic errors", name, report.number, text)
            told.after, told.step = history.last.last_stamp, history.last.last_step
            history.reported = (*history.reported, told)
