"""Swap a node that is slow, or may fail next, for a spare one, where administrators let it.

They do by `--slow-rank-policy act` and `--node-risk-policy act`. Diagnosis says which findings are open. One
that has lasted, and of a slow node is critical, begins a drain of its node: the ranks move to the spare node
at a step boundary, and lose nothing (`draining`, `resizing`). Whatever stands against it is a row of
`REFUSALS`, read from the top: then the finding stays reported, and the journal says why. Unlike a drain that
people ask for, this one never shrinks a job nor ends a rank: when it cannot be done in time, it is given
up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.elasticity import draining, resizing, slow_policy
from controlplane.core.failures import marks
from controlplane.core.placement import capacity, formation
from controlplane.core.records.model import JobPhase
from controlplane.core.records.notes import NoteKind
from controlplane.core.records.timing import ACT
from controlplane.core.state.findings import Level

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.core.records.diagnosis import OpenFinding
    from controlplane.core.records.timing import CoreSettings
    from controlplane.core.state.cluster_state import ClusterState, Node
    from controlplane.core.state.job import Job

    Refusal = Callable[[ClusterState, Job, OpenFinding, Node], bool]


def reconcile(state: ClusterState, job: Job) -> None:
    """Begin a swap for the first finding that asks for one, or note why there is none."""
    if not acts(state.settings):
        return
    wanted = [found for each in state.diagnosed.get(job.name, ()) if (found := _asks(state, job, each))]
    if not wanted or job.changes.resize is not None or job.phase is not JobPhase.RUNNING:
        return
    if job.elastic and not resizing.calm(job):
        return  # it forms or recovers: looked at again when it trains
    why = ""
    for finding, node in wanted:
        why = next((words for words, holds in REFUSALS if holds(state, job, finding, node)), "")
        if not why:
            _swap(state, job, finding, node)
            return
    _refuse(state, job, *wanted[0], why)


def acts(settings: CoreSettings) -> bool:
    """Whether administrators let any finding begin a swap."""
    return ACT in (settings.slow_rank_policy, settings.node_risk_policy)


def _asks(state: ClusterState, job: Job, finding: OpenFinding) -> tuple[OpenFinding, Node] | None:
    """The finding with its node, if a swap would help: of such a kind, bad for long enough, about a node
    where the job still has ranks, and which stays."""
    node, response = state.nodes.get(finding.node), slow_policy.response(finding.kind)
    grave = finding.lasting and (response.risk or finding.level == Level.CRITICAL.value)
    if node is None or not grave or not response.swap or response.policy(state.settings) != ACT:
        return None
    if not job.seating.uses(node.name) or node.drain is not None:
        return None
    return finding, node


REFUSALS: tuple[tuple[str, Refusal], ...] = (
    ("it is muted", lambda _state, _job, finding, _node: finding.muted),
    ("decisions are paused", lambda state, _job, _finding, _node: bool(state.paused or state.guard)),
    ("its script does not use the SDK: to move would lose steps", lambda _s, job, _f, _n: not job.elastic),
    ("the last swap is too short a time ago", lambda state, job, _f, _n: state.now < job.changes.swap_at),
    ("its node is cordoned", lambda _state, _job, _finding, node: bool(node.cordoned)),
    ("another job runs on its node", lambda state, job, _f, node: _shared(state, job, node)),
    ("there is no healthy spare node", lambda state, job, _finding, _node: not _spare(state, job)),
)
"""Why a finding that asks for a swap gets none, and when that holds. The first row that holds counts."""


def _shared(state: ClusterState, job: Job, node: Node) -> bool:
    return any(other is not job for other in draining.jobs_on(state, node.name))


def _spare(state: ClusterState, job: Job) -> bool:
    """Whether a node could take the ranks: idle, not of last choice, and nothing is found against it."""
    blamed = {each.node for findings in state.diagnosed.values() for each in findings}
    rooms = [room for room in capacity.idle(state, job) if not room.last and room.node not in blamed]
    return bool(formation.fitting(job.spec, rooms))


def _swap(state: ClusterState, job: Job, finding: OpenFinding, node: Node) -> None:
    """Drain the node to a spare one."""
    job.changes.swap_at = state.now + state.settings.swap_every_s
    job.changes.swap_refused = ""
    reason = f"{marks.BY_DIAGNOSIS}{finding.kind}, {finding.subject}: {finding.reason}"
    draining.swap(state, node, reason[: slow_policy.NAME_MAX], slow_policy.DEADLINE_S)


def _refuse(state: ClusterState, job: Job, finding: OpenFinding, node: Node, why: str) -> None:
    """Note why the finding is reported only, once for each reason, and look again in time."""
    if state.now < job.changes.swap_at:
        state.wake(job, job.changes.swap_at)
    words = f"{finding.kind}, {finding.subject}: reported only, {why}"
    if job.changes.swap_refused != words:
        job.changes.swap_refused = words
        state.note(NoteKind.SWAP_REFUSED, node.name, f"job {job.name}: {words}")
