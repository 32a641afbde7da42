"""Show which failure came first, what followed from it, and whether to restart."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from controlplane.analysis.failure_logs import diagnosis, policy
from controlplane.cli.doctor.shown import WIDTH, as_data, as_text
from controlplane.cli.questions.tables import NOTHING, plain

if TYPE_CHECKING:
    from pathlib import Path, PurePath

    from controlplane.analysis.failure_logs.diagnosis import LogsDiagnosis
    from controlplane.analysis.failure_logs.events import LoggedFailure
    from controlplane.cli.doctor.readers.log_folder import LogFolder

ROWS_SHOWN = 16
LEFT_OUT_SHOWN = 100
HEADINGS = ("RANK", "CAUSE", "ROLE", "LOG", "TEXT")
_TEXT_CHARS = 60


@dataclass(frozen=True, slots=True)
class ShownLogs:
    """A diagnosis, and the files of the folder that it does not rest on."""

    found: LogsDiagnosis
    left_out: tuple[tuple[PurePath, str], ...]


def diagnose(_: Path, folder: LogFolder) -> ShownLogs:
    """The diagnosis. Raises UsageError for a file that cannot be read."""
    return ShownLogs(diagnosis.diagnose(folder.files), tuple(folder.left_out))


def data(shown: ShownLogs) -> dict[str, Any]:
    """For programs."""
    found, first = shown.found, shown.found.first
    return {
        "first": _first(found),
        "candidates": list(first.candidates) if first is not None else [],
        "order": first.reason if first is not None else "no log names a failure",
        "cascade": [_one(rank, failure) for rank, failure in found.cascade[: policy.CASCADE_SHOWN]],
        "restart": found.advice.restart,
        "reason": found.advice.reason,
        "confidence": found.advice.confidence,
        "ranks": len(found.ranks),
        "missing_ranks": list(found.missing),
        "failures_got_over": found.got_over,
        "attempts": max(len(each.attempts) for each in found.ranks),
        "attempts_told_by": next((each.restarted_by for each in found.ranks if each.restarted_by), ""),
        "clocks": [
            {"rank": rank, "offset_s": round(offset.offset_s, 6), "margin_s": round(offset.margin_s, 6)}
            for rank, offset in found.offsets[: policy.CASCADE_SHOWN]
        ],
        "files_cut": [
            {"rank": each.rank, "skipped_bytes": each.skipped_bytes}
            for each in found.ranks
            if each.skipped_bytes
        ],
        "files_left_out": [
            {"file": str(path), "reason": reason} for path, reason in shown.left_out[:LEFT_OUT_SHOWN]
        ],
        "findings": [as_data(each) for each in found.findings],
    }  # fmt: skip


def text(shown: ShownLogs) -> str:
    """For people: what failed first, whether to restart, the others."""
    found, first = shown.found, shown.found.first
    head = "restart" if found.advice.restart else "do not restart"
    lines = [textwrap.fill(f"{head}: {found.advice.reason}", WIDTH, subsequent_indent="  ")]
    if first is not None and first.failure is not None:
        where = f" at {first.failure.file}:{first.failure.line}" if first.failure.file else ""
        who = f"rank {first.rank}" if first.rank is not None else "one of several ranks"
        lines.insert(0, f"first: {who}: {first.failure.cause}{where}")
    rows = [_row(rank, failure) for rank, failure in found.cascade[:ROWS_SHOWN]]
    if rows:
        lines += ["", plain(HEADINGS, rows)]
    if len(found.cascade) > ROWS_SHOWN:
        lines.append(f"and {len(found.cascade) - ROWS_SHOWN} more: see --json")
    for path, reason in shown.left_out[:ROWS_SHOWN]:
        lines.append(f"not read: {path}: {reason}")
    if cut := [each.rank for each in found.ranks if each.skipped_bytes]:
        lines.append(f"only head and tail were read of the logs of {len(cut)} ranks, {cut[0]} for example")
    return "\n".join([*lines, "", as_text(found.findings)])


def _first(found: LogsDiagnosis) -> dict[str, Any] | None:
    first = found.first
    if first is None or first.failure is None:
        return None
    failure = first.failure
    return {
        "rank": first.rank,
        "cause": failure.cause,
        "file": failure.file or None,
        "line": failure.line,
        "log_file": failure.log_file or None,
        "log_line": failure.log_line,
        "exception": failure.exception or None,
        "text": failure.text,
        "step": failure.step,
        "traceback_cut": failure.cut,
        "confidence": first.confidence,
        "words_of": failure.source or None,
    }


def _one(rank: int, failure: LoggedFailure | None) -> dict[str, Any]:
    if failure is None:
        return {
            "rank": rank,
            "cause": "silent",
            "role": "cascade",
            "log_file": None,
            "log_line": None,
            "text": "",
        }
    return {
        "rank": rank,
        "cause": failure.cause,
        "role": failure.row.role.value,
        "log_file": failure.log_file,
        "log_line": failure.log_line,
        "text": failure.text,
    }


def _row(rank: int, failure: LoggedFailure | None) -> tuple[str, ...]:
    if failure is None:
        return str(rank), "silent", "cascade", NOTHING, NOTHING
    log = f"{failure.log_file}:{failure.log_line}" if failure.log_line is not None else failure.log_file
    shown = "".join(each if each.isprintable() else " " for each in failure.text)[:_TEXT_CHARS]
    return str(rank), failure.cause, failure.row.role.value, log, shown
