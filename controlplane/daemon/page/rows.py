"""Make the page's rows from a leader's cluster. Pure.

A node's row has of its ranks only what changes when something happens, and not the step of each. So a cluster
in which all is well causes almost no traffic."""

from __future__ import annotations

import heapq
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from controlplane.core import view
from controlplane.core.records.model import NO_STEP, JobPhase, MemberPhase
from controlplane.core.records.words import GONE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from controlplane.analysis.live.eta import Eta
    from controlplane.core.cluster import Cluster
    from controlplane.core.records.model import CheckpointRecord
    from controlplane.core.state.cluster_state import Node
    from controlplane.core.state.job import Job
    from controlplane.core.state.member import Member
    from controlplane.daemon.page.picture import Row
    from controlplane.daemon.page.saves import Saves
    from controlplane.daemon.telemetry.job_time import Account
    from controlplane.reporting.story import IncidentReport

PHASES = tuple(phase.value for phase in MemberPhase)
"""The phases of ranks. Rows hold a phase's index in here."""
_PLACE = {phase: place for place, phase in enumerate(MemberPhase)}
STALLED = 1
"""Mark of a rank that its agent finds past its deadline."""
CHECKPOINTS_SHOWN = 50
"""Newest checkpoints shown of each job."""
REASON_MAX = 2000
_FIELDS = (
    *("job", "incident", "outcome", "begun_s", "ended_s", "happened", "done"),
    *("phases_s", "total_s", "repeated", "planned"),
)


def node(cluster: Cluster, now: float, found: Node) -> Row:
    """Return the row of a node. Its ranks are, by job, flat triples of rank, phase and mark."""
    ranks = _ranks(cluster, found.name)
    row = view.node_row(cluster, now, found, 0)
    return {
        "state": row.state,
        "standing": row.standing,
        "reason": row.reason,
        "slots": row.slots,
        "domain": found.domain,
        "seen_s": seen_s(cluster, now, found),
        "ranks": ranks,
    }


def seen_s(cluster: Cluster, now: float, found: Node) -> int | None:
    """Return when a node was heard last (Unix time, s); None: just now, 0: not known.

    It changes with no heartbeat, but only when one is missing: so a cluster in which all is well causes no
    traffic."""
    heard_at = found.last_contact_at
    if found.shown == "up" and now - heard_at < cluster.settings.node_timeout_s / 2:
        return None
    known = found.shown != "expected" and cluster.state.wall_s > 0
    return round(cluster.state.wall_s + heard_at) if known else 0


def _ranks(cluster: Cluster, name: str) -> dict[str, list[int]]:
    ranks: dict[str, list[int]] = {}
    for job in cluster.state.jobs.values():
        here = () if job.ended else job.by_node.get(name, {}).values()
        flat: list[int] = []
        for member in sorted(filter(lambda each: shown(job, each), here), key=_order):
            status = member.status
            stalled = status is not None and status.stalled_s > 0
            flat += (member.rank, _PLACE[phase(job, member)], STALLED if stalled else 0)
        if flat:
            ranks[job.name] = flat
    return ranks


def phase(job: Job, member: Member) -> MemberPhase:
    """Return a member's phase as people see it.

    A member that counts as dead is shown as exited. A script without the SDK reports no phases: its ranks are
    shown as running when the job runs."""
    if member.dead:
        return MemberPhase.EXITED
    silent = not job.elastic and member.rank >= 0 and member.phase is MemberPhase.STARTING
    return MemberPhase.RUNNING if silent and job.phase is JobPhase.RUNNING else member.phase


def _order(member: Member) -> tuple[bool, int, str]:
    return member.rank < 0, member.rank, member.name


def shown(job: Job, member: Member) -> bool:
    """Return whether a member is shown: it lives, or it is dead and nobody has taken its place yet."""
    if not member.dead and member.phase not in GONE:
        return True
    return 0 <= member.rank < len(job.seats) and job.seats[member.rank].member == member.name


def ranks(job: Job, most: int) -> list[dict[str, Any]]:
    """Return the ranks and spares of a job in detail, `most` at most."""
    found = heapq.nsmallest(most, filter(lambda each: shown(job, each), job.members.values()), key=_order)
    return [_detail(job, member) for member in found]


def node_detail(cluster: Cluster, name: str) -> dict[str, Any] | None:
    """Return a node with its ranks and spares in detail; None when there is no node of this name."""
    found = cluster.state.nodes.get(name)
    if found is None:
        return None
    here = [(job, each) for job, each in cluster.state.members_of(name) if shown(job, each)]
    row = asdict(view.node_row(cluster, cluster.state.now, found, len(here)))
    del row["last_heard_s"]
    return {**row, "domain": found.domain, "ranks": [_detail(*each) for each in here]}


def _detail(job: Job, member: Member) -> dict[str, Any]:
    row = asdict(view.rank_row(member)) | {"phase": phase(job, member).value}
    status = member.status
    row["activity"] = status.activity if status else ""
    row["failure"] = member.failure.message if member.failure else ""
    return row


def job(cluster: Cluster, found: Job, account: Account | None, eta: Eta) -> Row:
    """Return the row of a job. Its arguments are left out, because people put secrets there."""
    row = asdict(view.job_row(cluster, found))
    del row["argv"]
    row["reason"] = row["reason"][:REASON_MAX]
    row["storage"], row["pause"] = bool(found.spec.storage), found.changes.pause
    row["tiers"] = tiers(cluster, found)
    row["spares"] = sum(each.rank < 0 and not each.dead and each.phase not in GONE for each in _living(found))
    row["account"] = account.row() if account is not None else None
    del row["eta_s"]  # it changes with every look, and the moment hardly ever
    row |= {"eta_at_s": None if eta.at_s is None else round(eta.at_s), "eta_word": eta.word}
    row |= {"eta_reason": eta.reason, "end_step": eta.end_step, "eta_of": eta.of}
    return row


def _living(found: Job) -> Iterable[Member]:
    """Return the job's members if there are more than places; nothing otherwise: then none is a spare."""
    return found.members.values() if len(found.members) > len(found.seats) else ()


def tiers(cluster: Cluster, found: Job) -> list[dict[str, Any]]:
    """Return where the newest copies of a job's state are, nearest first. `step` -1: there is none."""
    kept = [copy for each in cluster.state.nodes.values() for copy in each.copies if copy.job == found.name]
    held = sum(found.snapshots.released in steps for steps in found.snapshots.held.values())
    good = [record for record in found.checkpoints.records.values() if not record.bad]
    newest = max(good, key=lambda each: (each.step, each.generation), default=None)
    rows: list[dict[str, Any]] = [
        {"tier": "memory", "step": found.snapshots.released, "copies": held},
        {"tier": "peer", "step": max((copy.step for copy in kept), default=NO_STEP), "copies": len(kept)},
        {"tier": "storage", "step": newest.step if newest else NO_STEP, "copies": len(good)},
    ]
    if found.spec.mirror:
        unknown = {"step": None, "copies": None}  # later copies to the mirror are not recorded
        rows.append(rows[-1] | {"tier": "mirror"} | (unknown if found.spec.commit_when == "first" else {}))
    return rows


def checkpoints(found: Job, saves: Saves) -> dict[str, Row]:
    """Return the newest checkpoints of a job, by JOB/ID."""
    newest = heapq.nlargest(
        CHECKPOINTS_SHOWN, found.checkpoints.records.values(), key=lambda each: (each.step, each.generation)
    )
    return {f"{found.name}/{record.id}": _checkpoint(record, saves) for record in newest}


def _checkpoint(record: CheckpointRecord, saves: Saves) -> Row:
    return {
        "job": record.job,
        "id": record.id,
        "step": record.step,
        "kind": record.kind,
        "committed_s": saves.committed_s(record.job, record.id),
        "bytes_total": record.bytes_total,
        "bytes_written": record.bytes_written,
        "published": record.published,
        "bad": record.bad,
        "suspect": record.suspect,
    }


def incident(story: IncidentReport, report: dict[str, Any]) -> Row:
    """Return the row of an incident; `report` is its whole story for programs."""
    verdict, plan = story.verdict, story.plan
    row: Row = {name: report[name] for name in _FIELDS}
    row |= {"cause": verdict.get("cause", ""), "strategy": plan.get("strategy", "")}
    row["lines"] = len(story.lines)
    return row
