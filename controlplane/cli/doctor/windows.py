"""Judge the recorded windows of a job as the coordinator would while it runs, and show what opened."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from controlplane.analysis.findings_ledger.ledger import ChangeKind, FindingLedger
from controlplane.analysis.live.watch import JobWatch
from controlplane.cli.doctor.shown import as_data, as_text
from controlplane.cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from controlplane.analysis.live.readings import JobWindow
    from controlplane.core.state.findings import Finding


@dataclass(frozen=True, slots=True)
class OpenedFinding:
    """A finding as it opened. `window`: in which, from 0; `resolved_s`: None while it is open at the end."""

    finding: Finding
    window: int
    opened_s: float
    resolved_s: float | None = None


@dataclass(frozen=True, slots=True)
class WindowsDiagnosis:
    """What was found in the windows of a job, in the order in which it opened."""

    windows: int
    judged: int
    opened: tuple[OpenedFinding, ...]
    failed_detectors: tuple[str, ...]


def diagnose(path: Path, windows: Iterable[JobWindow]) -> WindowsDiagnosis:
    """Watch the windows to their end. Raises UsageError for ones that are not in order."""
    watch, ledger = JobWatch(), FindingLedger()
    opened: list[OpenedFinding] = []
    failed: dict[str, None] = {}
    count = judged = 0
    for index, window in enumerate(windows):
        count = index + 1
        try:
            found = watch.observe(window)
        except ValueError as error:
            raise UsageError(f"{path}, line {count}: {error}") from error
        failed |= dict.fromkeys(f"{each.name}: {each.error}" for each in found.failed_detectors)
        if not found.judged:
            continue
        judged += 1
        for change in ledger.observe(window.ended_s, window.job, found.findings, unseen=found.unseen):
            entry = change.entry
            if change.kind is ChangeKind.OPENED:
                opened.append(OpenedFinding(entry.finding, index, window.ended_s))
            elif change.kind is ChangeKind.RESOLVED:
                opened = [_resolved(each, entry.identity, window.ended_s) for each in opened]
    return WindowsDiagnosis(count, judged, tuple(opened), tuple(failed))


def _resolved(each: OpenedFinding, identity: tuple[str, str], now_s: float) -> OpenedFinding:
    same = (each.finding.kind, each.finding.subject) == identity
    return replace(each, resolved_s=now_s) if same and each.resolved_s is None else each


def data(found: WindowsDiagnosis) -> dict[str, Any]:
    """For programs."""
    return {
        "windows": found.windows,
        "windows_judged": found.judged,
        "findings": [
            {
                **as_data(each.finding),
                "window": each.window,
                "opened_s": each.opened_s,
                "resolved_s": each.resolved_s,
            }
            for each in found.opened
        ],
        "failed_detectors": list(found.failed_detectors),
    }


def text(found: WindowsDiagnosis) -> str:
    """For people."""
    head = f"{found.windows} windows, {found.judged} judged"
    parts = [head]
    for each in found.opened:
        until = "open at the end" if each.resolved_s is None else f"resolved at {each.resolved_s:.0f} s"
        parts.append(f"window {each.window} ({each.opened_s:.0f} s), {until}\n{as_text([each.finding])}")
    if not found.opened:
        parts.append(as_text([]))
    if found.failed_detectors:
        parts.append(
            f"these detectors failed, what they look for is not known: {'; '.join(found.failed_detectors)}"
        )
    return "\n\n".join(parts)
