"""Turn evidence into a verdict: what failed, how far it reaches, and which failure came first. Pure.

One failure shows in many places: a dead rank breaks the collectives of all others. So all overlapping
evidence becomes one verdict, with the cause of the failure from which the others followed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.failures import blame
from controlplane.core.records.evidence import Evidence
from controlplane.core.records.model import NO_RANK, Cause, Failure, Placement, Scope, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

NODE_CAUSES = (Cause.NODE_LOST, Cause.NODE_RESTARTED, Cause.CUT)
"""Causes that concern a whole node by their nature, however many ranks it holds."""

SUSPICIONS = (Cause.BROKEN, Cause.RESIZED)
"""Causes without a dead member."""

EXCUSED = frozenset(Cause) - {Cause.HUNG, Cause.FAULT}
"""Causes whose count of repeats starts anew once the job makes progress. The others lie in the script or
its data: after a rollback to an earlier step, a few good steps prove nothing."""


def root(evidence: Sequence[Evidence]) -> Evidence:
    """The failure that the others followed from: the earliest; but a death before a suspicion."""
    return min(evidence, key=lambda e: (e.failure.cause in SUSPICIONS, e.injured_at, e.learned_at, e.rank))


def judge(job: str, evidence: Sequence[Evidence], seats: Sequence[Placement]) -> Verdict:
    """One verdict from all evidence of an incident. `seats`: the seats when it happened."""
    first = root(evidence)
    hit = {e.rank: e for e in sorted(evidence, key=lambda e: e.rank) if e.member and e.rank != NO_RANK}
    nodes = tuple(dict.fromkeys(e.node for e in hit.values()))
    return Verdict(
        job=job,
        scope=_scope(first, hit, seats),
        cause=first.failure.cause,
        nodes=nodes,
        members=tuple(e.member for e in hit.values()),
        ranks=tuple(hit),
        step=first.failure.step,
        evidence=tuple(_sentence(e) for e in evidence),
        whose=blame.whose(first.failure),
    )


def repeat_key(failure: Failure, *, after_return: bool = False) -> str:
    """The name under which a failure is counted, to recognise it when it happens again: exception (or
    cause) @ step.

    `after_return`: it happened after the training, where progress does not reset the count: to come so far
    again is no progress."""
    return f"{'behind ' if after_return else ''}{failure.exception or failure.cause}@{failure.step}"


def is_exception(key: str) -> bool:
    """Whether a repeat key names something that progress does not excuse: mostly an exception of the
    user's script."""
    return key.rpartition("@")[0] not in EXCUSED


def _scope(first: Evidence, hit: dict[int, Evidence], seats: Sequence[Placement]) -> Scope:
    """The extent: of the whole job if no rank, or every rank on several nodes, was hit; else by cause and
    by how many ranks of each node were hit."""
    if not hit:
        return Scope.JOB
    nodes = dict.fromkeys(e.node for e in hit.values())
    if len(hit) == len(seats) and len(seats) > 1 and len(dict.fromkeys(s.node for s in seats)) > 1:
        return Scope.JOB
    if first.failure.cause in NODE_CAUSES:
        return Scope.NODE
    if first.failure.cause is Cause.DEVICE:
        return Scope.DEVICE
    if len(hit) == len(nodes):
        return Scope.RANK
    return Scope.RANK if any(s.node in nodes and s.rank not in hit for s in seats) else Scope.NODE


def _sentence(e: Evidence) -> str:
    if not e.member:
        return e.failure.message
    return f"rank {e.rank} ({e.member} on {e.node}): {e.failure.message}"
