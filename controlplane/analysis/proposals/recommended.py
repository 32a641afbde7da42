"""Propose what open findings recommend, with the gain that the finding itself has computed.

A finding says which share of a step's time its recommendation would save. Of the job's time that is this
share of what passes within steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from controlplane.analysis.proposals import policy
from controlplane.analysis.proposals.measured import finite
from controlplane.analysis.proposals.proposal import Proposal, Withheld, unmeasured

if TYPE_CHECKING:
    from collections.abc import Iterator


def of_findings(report: Mapping[str, Any], steps_ratio: float) -> Iterator[Proposal | Withheld]:
    """For each open finding what it recommends, or why nothing is proposed. `steps_ratio`: the share of the
    job's time that passes within steps."""
    findings = report.get("findings")
    if not isinstance(findings, list):
        yield unmeasured("findings", "the report has no findings")
        return
    for each in findings:
        if not isinstance(each, Mapping) or not isinstance(each.get("kind"), str):
            yield unmeasured("findings", "one finding of the report cannot be read")
        elif reason := _refused(each):
            yield Withheld(policy.SETTINGS.get(each["kind"], "findings"), f"{each['kind']}: {reason}")
        else:
            yield from _proposals(each, steps_ratio)


def _refused(finding: Mapping[str, Any]) -> str:
    """Why nothing is proposed for a finding, whatever it recommends; "": something may be."""
    kind, sure = finding["kind"], finite(finding.get("confidence"))
    if kind in policy.NO_SETTING:
        return policy.NO_SETTING[kind]
    if kind not in policy.SETTINGS:
        return "this version of the command does not know this kind of finding"
    if sure is None or sure < policy.CONFIDENCE_LEAST:
        shown = "not known" if sure is None else f"{sure:.2f}"
        return f"its confidence is {shown}, and {policy.CONFIDENCE_LEAST:g} is needed"
    return ""


def _proposals(finding: Mapping[str, Any], steps_ratio: float) -> Iterator[Proposal | Withheld]:
    """One proposal for each gain: recommendations with the same gain are alternatives."""
    by_gain: dict[float, list[str]] = {}
    kind, recommendations = finding["kind"], finding.get("recommendations")
    for each in recommendations if isinstance(recommendations, list) else ():
        gain = finite(each.get("gain_ratio")) if isinstance(each, Mapping) else None
        if gain is not None and 0.0 < gain < 1.0 and each.get("action"):
            by_gain.setdefault(gain, []).append(str(each["action"]))
    setting = policy.SETTINGS[kind]
    if not by_gain:
        yield unmeasured(setting, f"what the recommendation of {kind} would gain")
    for gain, actions in by_gain.items():
        share = gain * steps_ratio
        if share < policy.GAIN_LEAST:
            yield Withheld(setting, f"{kind}: it would gain {share:.1%} at most: {actions[0]}")
            continue
        about, reason = finding.get("about") or "the job", finding.get("reason") or "no reason given"
        yield Proposal(
            setting,
            actions[0],
            share,
            at_most=True,
            confidence=float(finding["confidence"]),
            reason=f"{kind}, {about}: {reason}",
            evidence=(
                ("finding", f"{finding.get('id') or kind}"),
                ("gain_of_step_ratio", gain),
                ("steps_ratio", steps_ratio),
                ("confidence", float(finding["confidence"])),
            ),
            alternatives=tuple(actions[1:]),
        )
