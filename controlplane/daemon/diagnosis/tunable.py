"""Say with which settings a job runs, and what was measured of them in this leader term. Pure.

`holdfast doctor JOB --tune` computes its proposals from this and from the rest of the job's report."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from controlplane.core.records.model import Cause

if TYPE_CHECKING:
    from collections.abc import Iterable

    from controlplane.analysis.proposals.reductions import RepeatedReductions
    from controlplane.core.cluster import Cluster
    from controlplane.core.records.model import Incident, JobSpec
    from controlplane.core.state.job import Job


@dataclass(frozen=True, slots=True)
class TermSeen:
    """What a leader term has seen of a job, and a setting of its own."""

    job_s: float  # of the job's time
    term_s: float  # for how long it has led, and heard heartbeats
    lease_ttl_s: float


def of_job(core: Cluster, job: Job, seen: TermSeen, reduced: RepeatedReductions | None) -> dict[str, Any]:
    """What a job's report has for proposals alone. `reduced`: by the newest flight record that people asked
    for; one of an earlier generation counts, too, as long as the script is the same."""
    return {
        "reductions": None if reduced is None else dataclasses.asdict(reduced),
        "settings": settings(job.spec),
        "recoveries": recoveries(core.incidents, job.name),
        "listening": listening(core, job, seen),
    }


def settings(spec: JobSpec) -> dict[str, Any]:
    """The settings of a job that proposals may change, by the names of its flags."""
    return {
        "snapshot_every": spec.snapshot_every,
        "snapshot_auto": spec.snapshot_auto,
        "checkpoint_every": spec.checkpoint_every,
        "checkpoint_auto": spec.checkpoint_auto,
        "checkpoint_every_s": spec.checkpoint_every_s,
        "storage": bool(spec.storage),
        "spares": spec.spares_per_node,
    }


def listening(core: Cluster, job: Job, seen: TermSeen) -> dict[str, Any]:
    """How failures of a job were noticed, and how long nodes that lived were silent."""
    nodes, noticing = list(core.state.nodes.values()), job.recovery.noticing
    worst = max(nodes, key=lambda each: each.listening.longest_s, default=None)
    processes_s = max((each.listening.process_timeout_s for each in nodes), default=0.0)
    return {
        "seen_s": round(seen.job_s, 3),
        "listened_s": round(seen.term_s, 3),
        "nodes": len(nodes),
        "node_timeout_s": core.settings.node_timeout_s,
        "must_exceed_s": {
            "--lease-ttl-s": seen.lease_ttl_s,
            "--retry-s": core.settings.retry_s,
            "--process-timeout-s": processes_s,
        },
        "longest_silence_s": 0.0 if worst is None else round(worst.listening.longest_s, 3),
        "longest_silence_node": "" if worst is None else worst.name,
        "mistaken_s": [round(each, 3) for each in noticing.mistaken_s],
        "noticed": {
            cause.value: {"count": count, "after_s": round(noticing.after_s[cause], 3)}
            for cause, count in sorted(noticing.times.items())
        },
    }


def recoveries(found: Iterable[Incident], job: str) -> dict[str, dict[str, dict[str, float]]]:
    """What closed incidents of a job took (s), by their cause and by their strategy: `count`; `recovered_s`,
    from the notice to the end; `fence_s` of that, until all had stopped or started and the next generation
    was written."""
    by_cause: dict[str, dict[str, float]] = {}
    by_strategy: dict[str, dict[str, float]] = {}
    for each in found:
        if each.job != job or each.verdict.cause is Cause.RESIZED or each.outcome != "recovered":
            continue
        phases_s = dict(each.phases_s)
        spent_s = sum(phases_s.values()) - phases_s.get("detect", 0.0)
        keys = (by_cause, each.verdict.cause.value), (by_strategy, each.plan.strategy.value)
        for table, key in keys:
            row = table.setdefault(key, {"count": 0, "recovered_s": 0.0, "fence_s": 0.0})
            row["count"] += 1
            row["recovered_s"] = round(row["recovered_s"] + spent_s, 6)
            row["fence_s"] = round(row["fence_s"] + phases_s.get("fence", 0.0), 6)
    return {"by_cause": by_cause, "by_strategy": by_strategy}
