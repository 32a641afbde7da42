"""Show findings: as plain data for programs, as a few lines for people."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from controlplane.core.state.findings import Finding

WIDTH = 100


def as_data(finding: Finding) -> dict[str, Any]:
    """A finding for programs."""
    return {
        "kind": finding.kind,
        "subject": dict(finding.place),
        "severity": finding.severity,
        "confidence": round(finding.confidence, 3),
        "reason": finding.reason,
        "evidence": dict(finding.evidence),
        "recommendation": finding.recommendation,
    }


def as_text(findings: Iterable[Finding]) -> str:
    """Findings for people: what, who, why, and what to do."""
    return "\n\n".join(_text(each) for each in findings) or "no finding: nobody is to blame"


def _text(finding: Finding) -> str:
    head = f"{finding.severity}: {finding.kind}, {finding.subject}, confidence {finding.confidence:.2f}"
    lines = (f"why: {finding.reason}", f"do:  {finding.recommendation}")
    body = (
        textwrap.fill(line, WIDTH, initial_indent="  ", subsequent_indent="       ", break_on_hyphens=False)
        for line in lines
    )
    return "\n".join([head, *body])
