"""Show what is proposed for the settings of a running job: for people and for programs."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from controlplane.analysis.proposals.proposing import propose
from controlplane.cli.doctor.shown import WIDTH
from controlplane.cli.questions.outputs import data

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controlplane.analysis.proposals.proposal import Proposal, Tuning

ALONE = "each gain is a share of the job's time, of that proposal alone: gains do not add up"


def shown(form: str, report: Mapping[str, Any], failures: int | None) -> str:
    """The proposals for the job of a report, in this format. `failures`: as `propose` takes them."""
    found = propose(report, failures)
    job = str(report.get("job", ""))
    return data(form, as_data(job, found)) or as_text(job, found)


def as_data(job: str, found: Tuning) -> dict[str, Any]:
    """Proposals for programs."""
    return {
        "job": job,
        "note": ALONE,
        "proposals": [_row(each) for each in found.proposals],
        "not_proposed": [{"setting": each.setting, "reason": each.reason} for each in found.withheld],
    }


def _row(each: Proposal) -> dict[str, Any]:
    return {
        "setting": each.setting,
        "action": each.action,
        "gain_ratio": round(each.gain_ratio, 4),
        "at_most": each.at_most,
        "confidence": round(each.confidence, 2),
        "changes": [{"name": one.name, "from": one.before, "to": one.after} for one in each.changes],
        "reason": each.reason,
        "evidence": dict(each.evidence),
        "alternatives": list(each.alternatives),
    }


def as_text(job: str, found: Tuning) -> str:
    """Proposals for people: the greatest gain first, then what is not proposed, and why."""
    head = f"job {job}: nothing to propose" if not found.proposals else f"job {job}: {ALONE}"
    parts = [head, *map(_proposal, found.proposals)]
    if found.withheld:
        lines = [_filled(f"{each.setting}: {each.reason}", "  ", "    ") for each in found.withheld]
        parts.append("\n".join(["not proposed:", *lines]))
    return "\n\n".join(parts)


def _proposal(each: Proposal) -> str:
    gain = f"up to {each.gain_ratio:.1%}" if each.at_most else f"{each.gain_ratio:.1%}"
    changed = "; ".join(f"{one.name} from {one.before} to {one.after}" for one in each.changes)
    lines = [f"do:  {each.action}", *([f"set: {changed}"] if changed else []), f"why: {each.reason}"]
    lines += [f"or:  {other}" for other in each.alternatives]
    head = f"{each.setting}: gains {gain}, confidence {each.confidence:.2f}"
    return "\n".join([head, *(_filled(line, "  ", "       ") for line in lines)])


def _filled(line: str, first: str, later: str) -> str:
    return textwrap.fill(
        line,
        WIDTH,
        initial_indent=first,
        subsequent_indent=later,
        break_on_hyphens=False,
        break_long_words=False,
    )
