"""Write what is known about a job as one document: the source of command line and page. Pure."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from controlplane.analysis.findings_ledger import policy
from controlplane.core.health import about_job, level

if TYPE_CHECKING:
    from collections.abc import Iterable

    from controlplane.analysis.findings_ledger.entries import LedgerEntry
    from controlplane.analysis.findings_ledger.ledger import FindingLedger
    from controlplane.analysis.guarding import FailedPart
    from controlplane.analysis.live.anatomy import Anatomy, Loss, RankAnatomy
    from controlplane.analysis.live.watch import LiveDiagnosis
    from controlplane.core.cluster import Cluster
    from controlplane.core.state.findings import Finding, Recommendation
    from controlplane.daemon.telemetry.job_time import Account


RESOLVED_SHOWN = 20
"""How many findings that are over are shown, the newest first."""


def health_of_cluster(cluster: str, core: Cluster, ledger: FindingLedger) -> dict[str, Any]:
    """The health of the whole cluster, with the reasons: about nodes, etcd, and every job.

    `nodes`: those that a finding is about. What to do about findings of diagnosis is in the ledger."""
    findings = list(core.state.findings.values())
    rows = _health_rows(findings, ledger)
    return {"cluster": cluster, "level": level(findings).value, "findings": rows}


def _health_rows(findings: Iterable[Finding], ledger: FindingLedger) -> list[dict[str, Any]]:
    found = list(findings)
    return [
        {
            "kind": each.kind,
            "severity": each.severity,
            "about": each.subject,
            "job": each.job,
            "reason": each.reason,
            "nodes": _nodes(each),
            "recommendation": recommended[0].action if recommended else "",
            "recommendations": _recommendations(recommended),
            "alerted": each.loud,
        }
        for each, recommended in zip(found, advice(found, ledger), strict=True)
    ]


def _nodes(finding: Finding) -> list[str]:
    return [str(value) for name, value in finding.place if name == "node" and value is not None]


def advice(findings: Iterable[Finding], ledger: FindingLedger) -> list[tuple[Recommendation, ...]]:
    """What to do about each finding of the cluster's health, the best first; (): nothing is recommended."""
    found = list(findings)
    diagnosed = {
        ("diagnosis", job, each.kind, about_job(job, each.subject)): each.recommendations
        for job in {each.job for each in found if each.rule == "diagnosis"}
        for each in (entry.finding for entry in ledger.open(job))
    }
    return [
        diagnosed.get((each.rule, each.job, each.kind, each.subject), each.recommendations) for each in found
    ]


def _recommendations(found: Iterable[Recommendation]) -> list[dict[str, Any]]:
    return [
        {"action": each.action, "gain_ratio": each.gain_ratio, "effort": each.effort and each.effort.value}
        for each in found
    ]


def of_job(
    job: str,
    health: str,
    ledger: FindingLedger,
    newest: LiveDiagnosis | None,
    failed: Iterable[FailedPart] = (),
    *,
    known: Iterable[Finding] = (),
    now_s: float,
    every_s: float,
    rows_most: int,
) -> dict[str, Any]:
    """All that is known about a job. `health`: its level; `newest`: the newest window; None: none yet;
    `failed`: what of its diagnosis raised an error; `known`: why jobs and nodes are not healthy.

    `rows_most`: the anatomy has so many ranks in full (those that differ most from their peers, the typical
    and the slowest one), and of all ranks their own work as columns; None: it has all ranks in full."""
    return {
        "job": job,
        "level": health,
        "health": _health_rows((e for e in known if e.job == job and e.rule != "diagnosis"), ledger),
        "findings": [row(entry, now_s) for entry in ledger.open(job)],
        "resolved": [row(entry, now_s) for entry in ledger.resolved(job)[: -RESOLVED_SHOWN - 1 : -1]],
        "left_out": ledger.left_out(job),
        "failed_detectors": [f"{each.name}: {each.error}" for each in failed],
        "anatomy": _anatomy(newest, every_s, rows_most),
        "links": _links(newest),
    }


def _links(newest: LiveDiagnosis | None) -> dict[str, str]:
    """`suspicion`: why the links are suspected; "": they are not. `unknown`: why probes name nobody; `code`:
    the same in a word."""
    return {
        "suspicion": "" if newest is None else newest.suspicion,
        "unknown": "" if newest is None else newest.links_unknown,
        "code": "" if newest is None else newest.links_code,
    }


def _anatomy(newest: LiveDiagnosis | None, every_s: float, rows_most: int) -> dict[str, Any]:
    """Where the time of a step goes; with `reason` where that is not known."""
    if newest is None or not newest.ranks_judged or newest.anatomy is None:
        return {
            "reason": _unknown(newest, every_s),
            "judged": False,
            "span_s": 0.0,
            "ended_s": None,
            "ranks": [],
            "columns": {name: [] for name in ("ranks", "nodes", "node_names", "own_s", "ratios")},
            "typical_rank": None,
            "slowest_rank": None,
            "unjudged": _unjudged(newest),
            "slowdown": None,
            "loss_s": None,
            "loss": None,
        }
    seen = newest.anatomy
    found = {
        "reason": "" if newest.judged else "too few steps have been seen to judge them",
        "judged": newest.judged,
        "span_s": newest.ended_s - newest.began_s,
        "ended_s": newest.ended_s,
        "ranks": [_rank(seen.row(rank)) for rank in _in_full(seen, rows_most)],
        "typical_rank": seen.typical_rank,
        "slowest_rank": seen.slowest_rank,
        "unjudged": _unjudged(newest),
        "slowdown": _number(newest.slowdown),
        "loss_s": _number(newest.loss_s),
        "loss": _loss(newest.loss),
    }
    return found | {"columns": _columns(seen)}


def time_of(account: Account | None) -> dict[str, Any] | None:
    """Where the job's time went, over all of its lives; None: nothing is known of it."""
    return None if account is None else account.row()


def efficiency(newest: LiveDiagnosis | None, every_s: float) -> dict[str, Any]:
    """What the job's devices achieve; None, and for MFU a reason, where that is not known."""
    if newest is None:
        names = ("samples_per_s", "tokens_per_s", "flops_per_s", "peak_flops", "mfu")
        return dict.fromkeys(names) | {"reason": _unknown(None, every_s)}
    return dataclasses.asdict(newest.efficiency)


def window_parts(newest: LiveDiagnosis | None) -> dict[str, Any]:
    """What else the newest window shows: `samples`, of the rank that waits longest for them, and `memory`, of
    the fullest one; None each where it is not known."""
    samples, memory = (None, None) if newest is None else (newest.samples, newest.memory)
    return {
        "samples": None if samples is None else dataclasses.asdict(samples),
        "memory": None if memory is None else dataclasses.asdict(memory),
    }


def _rank(each: RankAnatomy) -> dict[str, Any]:
    return {
        "rank": each.rank,
        "member": each.member,
        "node": each.node,
        "step_s": each.step_s,
        "own_s": each.own_s,
        "ratio": each.ratio,
        "shares": each.shares,
    }


def _loss(loss: Loss) -> dict[str, Any]:
    """Whose the lost time is. A share is what would not be lost if these were as fast as usual; None: nothing
    is lost, or there is one stage."""
    return {
        "worst_rank": loss.worst_rank,
        "worst_rank_share": loss.worst_rank_share,
        "worst_node": loss.worst_node,
        "worst_node_share": loss.worst_node_share,
        "last_stage_share": loss.last_stage_share,
    }


def _columns(seen: Anatomy) -> dict[str, Any]:
    """All ranks that were judged; `nodes`: each rank's index in `node_names`."""
    found = seen.columns()
    return {
        "ranks": found.ranks,
        "nodes": found.nodes,
        "node_names": found.node_names,
        "own_s": found.own_s,
        "ratios": found.ratios,
    }


def _in_full(seen: Anatomy, rows_most: int) -> list[int]:
    """The ranks that are shown in full, in order."""
    wanted = {*seen.furthest(rows_most), seen.typical_rank, seen.slowest_rank}
    return sorted(rank for rank in wanted if rank is not None)


def _unjudged(newest: LiveDiagnosis | None) -> list[dict[str, Any]]:
    return [] if newest is None else [{"rank": e.rank, "reason": e.reason} for e in newest.unjudged]


def _unknown(newest: LiveDiagnosis | None, every_s: float) -> str:
    if not every_s:
        return "diagnosis is off: start the coordinator with --diagnose-every-s 5"
    if newest is None:
        return "no rank has reported a step yet; scripts that do not use the SDK never do"
    if newest.anatomy is None:
        return "the anatomy could not be computed: see the failed detectors"
    return "; ".join(f"{count} ranks: {why}" for why, count in newest.left_out.items()) or "no rank reported"


def _number(value: float | str) -> float | str | None:
    """JSON knows neither NaN nor infinity."""
    return value if isinstance(value, str) or math.isfinite(value) else None


def row(entry: LedgerEntry, now_s: float) -> dict[str, Any]:
    """A finding for programs. `id` names it within its job."""
    finding = entry.finding
    return {
        "id": f"{finding.kind}:{finding.subject}",
        "kind": finding.kind,
        "severity": "notice" if finding.kind in policy.NOTICES else finding.severity,
        "about": finding.subject or "nobody in particular",
        "subject": dict(finding.place),
        "confidence": round(finding.confidence, 3),
        "reason": finding.reason,
        "evidence": {name: _number(value) for name, value in finding.evidence},
        "recommendation": finding.recommendation,
        "recommendations": _recommendations(finding.recommendations),
        "opened_s": entry.opened_s,
        "last_seen_s": entry.last_seen_s,
        "resolved_s": entry.resolved_s,
        "first_step": finding.first_step,
        "windows": entry.windows,
        "muted": entry.muted(now_s),
        "muted_until_s": entry.muted_until_s,
    }
