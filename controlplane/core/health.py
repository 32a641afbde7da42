"""Assess the cluster's health, with every reason, by a table of rules over plain facts.

The level is healthy, degraded or critical. It is assessed shortly after a change, and once a minute.
Administrators are alerted once when a finding appears or its level changes, and once when it is gone. With
`pause_when_critical`, some critical findings keep anything new from being started."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from controlplane.core.checkpoint import durability
from controlplane.core.elasticity import swapping
from controlplane.core.failures import eligibility
from controlplane.core.placement import launches
from controlplane.core.records import effects as fx
from controlplane.core.records.model import JobPhase, Role
from controlplane.core.records.notes import NoteKind
from controlplane.core.records.words import some_of
from controlplane.core.remedies import REMEDIES
from controlplane.core.state.cluster_state import LEFT
from controlplane.core.state.findings import Finding, Level, Recommendation
from controlplane.core.state.job import ENDED
from holdfast.errors import raised

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from controlplane.core.checkpoint.durability import DurabilityProblem
    from controlplane.core.records.diagnosis import Diagnosed, OpenFinding
    from controlplane.core.records.node_checks import BadPart
    from controlplane.core.records.stores import Unread
    from controlplane.core.records.timing import CoreSettings
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job
    from controlplane.core.state.member import Member

    Rule = Callable[["HealthFacts", CoreSettings], Iterable["Finding"]]

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class HealthFacts:
    """What health is assessed from. Pairs are (subject, reason)."""

    nodes: int = 0  # all known ones but those that were drained and left
    lost: tuple[str, ...] = ()  # names of nodes
    quarantined: tuple[tuple[str, str], ...] = ()
    held: tuple[tuple[str, str], ...] = ()  # held down, or cut from their peers
    devices: tuple[tuple[str, str, str], ...] = ()  # unhealthy ones: (node, device, reason)
    guard: str = ""  # why the mass-failure guard is on; "": it is off
    dcs: str = ""  # why etcd does not answer; "": it does
    refused: str = ""  # why etcd does not take a write; "": none is refused
    parked: tuple[tuple[str, str], ...] = ()
    spareless: tuple[tuple[str, str], ...] = ()  # jobs without spares on some node
    unstarted: tuple[tuple[str, str], ...] = ()  # job, which rank cannot be started now and why
    undecided: tuple[tuple[str, str], ...] = ()  # jobs that stand still until etcd takes a write, and why
    unkept: tuple[tuple[str, DurabilityProblem], ...] = ()  # (job, what is wrong with how its state is kept)
    incidents: int = 0  # begun within the last hour
    bad_parts: tuple[tuple[str, BadPart], ...] = ()  # (node, what its check found)
    unchecked: tuple[tuple[str, str], ...] = ()  # nodes whose check brought nothing
    strays: tuple[tuple[str, str], ...] = ()  # nodes that run ranks of jobs that are not known here
    unreplaced: tuple[tuple[str, str], ...] = ()  # nodes that should be replaced and were not
    unread: tuple[Unread, ...] = ()  # rows of etcd that cannot be read
    diagnosed: tuple[tuple[str, OpenFinding], ...] = ()  # (job, what diagnosis has open about it)


def assess(
    facts: HealthFacts,
    s: CoreSettings,
    before: Iterable[Finding] = (),
    rules: Mapping[str, Rule] | None = None,
) -> tuple[Finding, ...]:
    """Everything that is wrong, critical findings first; (): healthy.

    A rule that raises is a finding itself. What it has found `before` stays, since nobody knows better."""
    found: list[Finding] = []
    for name, rule in (RULES if rules is None else rules).items():
        try:
            found += [replace(each, rule=name) for each in rule(facts, s)]
        except Exception as error:
            found += [each for each in before if each.rule == name]
            found.append(_failed_rule(name, error))
    found = [_advised(each) for each in found]
    return tuple(sorted(found, key=lambda f: (f.level is not Level.CRITICAL, f.kind, f.subject)))


def _advised(finding: Finding) -> Finding:
    """The finding with what to do about it. What diagnosis found is left: its report says what to do."""
    action = REMEDIES.get(finding.kind)
    if finding.rule == "diagnosis" or action is None:
        return finding
    return replace(finding, recommendations=(Recommendation(action),))


def _failed_rule(name: str, error: Exception) -> Finding:
    reason = f"the rule raised {raised(error)}; what it looks for is not known"
    return Finding("health_rule_failed", Level.DEGRADED, name, reason)


def level(findings: Iterable[Finding]) -> Level:
    """The worst level of these findings."""
    levels = [finding.level for finding in findings]
    return next((each for each in (Level.CRITICAL, Level.DEGRADED) if each in levels), Level.HEALTHY)


def _mass_loss(facts: HealthFacts, s: CoreSettings) -> Iterable[Finding]:
    if facts.guard:
        yield Finding("mass_loss", Level.CRITICAL, "", f"{facts.guard}: decisions are paused")


def _lost(facts: HealthFacts, s: CoreSettings) -> Iterable[Finding]:
    if not facts.lost:
        return
    critical = len(facts.lost) > s.lost_critical_ratio * facts.nodes
    reason = f"{len(facts.lost)} of {facts.nodes} nodes are lost: {some_of(facts.lost)}"
    yield Finding(
        "nodes_lost",
        Level.CRITICAL if critical else Level.DEGRADED,
        "",
        reason,
        place=tuple(("node", name) for name in facts.lost),
    )


def _dcs(facts: HealthFacts, s: CoreSettings) -> Iterable[Finding]:
    if facts.dcs or facts.refused:
        trouble = f"does not answer ({facts.dcs})" if facts.dcs else f"takes no writes ({facts.refused})"
        reason = f"etcd {trouble}: training goes on, decisions wait"
        yield Finding("dcs_unavailable", Level.CRITICAL, "", reason)


def _incidents(facts: HealthFacts, s: CoreSettings) -> Iterable[Finding]:
    if facts.incidents > s.incidents_degraded:
        critical = facts.incidents > s.incidents_critical
        reason = f"{facts.incidents} incidents within the last hour"
        yield Finding("incidents", Level.CRITICAL if critical else Level.DEGRADED, "", reason)


def _each(
    kind: str,
    pairs: Callable[[HealthFacts], tuple[tuple[str, str], ...]],
    *,
    jobs: bool = False,
    level: Level = Level.DEGRADED,
) -> Rule:
    """A rule that makes one finding of each pair. `jobs`: the subjects are jobs, else nodes."""

    def rule(facts: HealthFacts, s: CoreSettings) -> Iterable[Finding]:
        return [
            Finding(kind, level, subject, reason, subject)
            if jobs
            else Finding(kind, level, subject, reason, place=(("node", subject),))
            for subject, reason in pairs(facts)
        ]

    return rule


def _devices(facts: HealthFacts, s: CoreSettings) -> Iterable[Finding]:
    for node, device, reason in facts.devices:
        place = (("node", node), ("device", device))
        yield Finding("device_unhealthy", Level.DEGRADED, f"{node}/{device}", reason, place=place)


def _bad_parts(facts: HealthFacts, s: CoreSettings) -> Iterable[Finding]:
    for node, each in facts.bad_parts:
        place = (("node", node), ("part", each.part))
        subject = f"{node}: {each.part}"
        yield Finding(
            each.kind, Level.DEGRADED, subject, each.reason, place=place, confidence=each.confidence
        )


def _unkept(facts: HealthFacts, s: CoreSettings) -> Iterable[Finding]:
    for job, found in facts.unkept:
        yield Finding(found.kind, Level.DEGRADED, job, found.reason, job, loud=found.loud)


def _unread(facts: HealthFacts, s: CoreSettings) -> Iterable[Finding]:
    for row in facts.unread:
        left = f"job {row.job} is left alone" if row.whole else "it is left out"
        reason = f"it lies in etcd and cannot be read, so {left}: {row.reason}; repair the row, or delete it"
        yield Finding("row_unreadable", Level.DEGRADED, row.key, reason, row.job)


def _diagnosed(facts: HealthFacts, s: CoreSettings) -> Iterable[Finding]:
    for job, each in facts.diagnosed:
        about = about_job(job, each.subject)
        place = (("node", each.node),) if each.node else ()
        yield Finding(each.kind, Level(each.level), about, each.reason, job, loud=not each.muted, place=place)


def about_job(job: str, subject: str) -> str:
    """What a finding of diagnosis is about, for the whole cluster."""
    return f"{job}: {subject}" if subject else job


RULES: dict[str, Rule] = {
    "mass_loss": _mass_loss,
    "dcs_unavailable": _dcs,
    "nodes_lost": _lost,
    "incidents": _incidents,
    "node_quarantined": _each("node_quarantined", lambda f: f.quarantined),
    "node_held": _each("node_held", lambda f: f.held),
    "device_unhealthy": _devices,
    "node_checks": _bad_parts,
    "node_unchecked": _each("node_unchecked", lambda f: f.unchecked),
    "unknown_job": _each("unknown_job", lambda f: f.strays),
    "job_parked": _each("job_parked", lambda f: f.parked, jobs=True),
    "spares_exhausted": _each("spares_exhausted", lambda f: f.spareless, jobs=True),
    "rank_unstarted": _each("rank_unstarted", lambda f: f.unstarted, jobs=True),
    "job_undecided": _each("job_undecided", lambda f: f.undecided, jobs=True, level=Level.CRITICAL),
    "durability": _unkept,
    "node_unreplaced": _each("node_unreplaced", lambda f: f.unreplaced),
    "row_unreadable": _unread,
    "diagnosis": _diagnosed,
}
"""All rules of the cluster's health, by name."""


JOB_KINDS = (
    *("job_parked", "spares_exhausted", "rank_unstarted", "job_undecided"),
    *("checkpoints_failing", "checkpoint_late", "snapshots_failing", "mirror_failing", "marks_failing"),
    *("checkpoints_overdue", "snapshots_overdue"),
)
"""Kinds of findings about one job. The last two come from `checkpoint/overdue.py`."""


# ------------------------------------------------------------------ with the cluster state


def diagnosed(state: ClusterState, event: Diagnosed) -> None:
    """Record what diagnosis has open about a job."""
    if event.job not in state.jobs or state.diagnosed.get(event.job, ()) == event.findings:
        return
    state.diagnosed[event.job] = event.findings
    state.ask_health()
    if swapping.acts(state.settings):
        state.touch(state.jobs[event.job])


def due(state: ClusterState) -> None:
    """Assess health now, alert what has changed, and set the next deadline."""
    state.health_at = state.now
    before = state.findings
    found = assess(facts_of(state), state.settings, before.values())
    state.findings = {(each.kind, each.subject): each for each in found}
    _alert_changes(state, before)
    now, then = level(found), level(before.values())
    if now is not then:
        state.note(NoteKind.HEALTH, now.value, "; ".join(each.reason for each in found) or "all is well")
    _pause(state, found)
    if found or any(job.phase not in ENDED for job in state.jobs.values()):
        state.deadlines.sooner(("health", ""), state.now + state.settings.health_every_s)


def _alert_changes(state: ClusterState, before: dict[tuple[str, str], Finding]) -> None:
    """Alert administrators to findings that are new, have another level, or are gone."""
    loud = {key: each for key, each in state.findings.items() if each.loud}
    loud_before = {key: each for key, each in before.items() if each.loud}
    for key, each in loud.items():
        if key not in loud_before or loud_before[key].level is not each.level:
            state.emit(fx.Alert(each.kind, each.severity, each.subject, each.reason, job=each.job))
    for key, each in loud_before.items():
        if key not in loud:
            state.emit(
                fx.Alert(each.kind, each.severity, each.subject, each.reason, resolved=True, job=each.job)
            )


PAUSING = ("mass_loss", "nodes_lost", "incidents", "dcs_unavailable")
"""Findings that pause the cluster when they are critical and `pause_when_critical` is set. None of them
needs a new start to go away: such a pause would never end."""


def _pause(state: ClusterState, found: tuple[Finding, ...]) -> None:
    """Start or end the pause. Jobs that wait show its reason, so a changed reason drives them, too."""
    grave = [each for each in found if each.level is Level.CRITICAL and each.kind in PAUSING]
    paused = grave[0].reason if grave and state.settings.pause_when_critical else ""
    if bool(paused) != bool(state.paused):
        state.note(
            NoteKind.PAUSED if paused else NoteKind.RESUMED,
            "cluster",
            paused or "the cluster is critical no more",
        )
    if paused != state.paused:  # also when only the reason changed: jobs show why they wait
        state.touch_all()
    state.paused = paused


def facts_of(state: ClusterState) -> HealthFacts:
    """The facts as the cluster state has them now."""
    quarantined, held, devices, lost = [], [], [], []
    for name, node in state.nodes.items():
        if node.shown == "lost":
            lost.append(name)
        if node.failure_history is not None and eligibility.last_choice(state, node):
            quarantined.append((name, node.failure_history.reason))
        if node.cut or node.held_until > state.now:
            held.append((name, eligibility.barred(state, node)))
        if node.bad_devices:
            devices += [(name, device, why) for device, why in node.bad_devices.items()]
    jobs = [job for job in state.jobs.values() if job.phase not in ENDED]
    return HealthFacts(
        nodes=sum(node.shown != LEFT for node in state.nodes.values()),
        lost=tuple(lost),
        quarantined=tuple(quarantined),
        held=tuple(held),
        devices=tuple(devices),
        guard=state.guard.reason if state.guard else "",
        dcs=state.dcs_trouble,
        refused=_store_trouble(state),
        parked=tuple((job.name, job.reason) for job in jobs if job.phase is JobPhase.PARKED),
        spareless=tuple((job.name, why) for job in jobs if (why := _spareless(state, job))),
        unstarted=tuple((job.name, why) for job in jobs if (why := launches.unstarted(job))),
        undecided=tuple((job.name, why) for job in jobs if (why := _undecided_by(state, job))),
        unkept=tuple((job.name, each) for job in jobs for each in durability.troubles(state, job)),
        incidents=_recent(state),
        bad_parts=tuple((node.name, each) for node in state.nodes.values() for each in node.check.bad),
        unchecked=tuple((n.name, n.check.unchecked) for n in state.nodes.values() if n.check.unchecked),
        strays=tuple((n.name, why) for n in state.nodes.values() if (why := eligibility.strays(state, n))),
        unreplaced=tuple((node.name, node.unreplaced) for node in state.nodes.values() if node.unreplaced),
        unread=state.unread,
        diagnosed=tuple((job.name, each) for job in jobs for each in state.diagnosed.get(job.name, ())),
    )


def _store_trouble(state: ClusterState) -> str:
    """Why etcd refused a write that waits; "": none was refused."""
    return next((queue[0].trouble for queue in state.write_queues.values() if queue and queue[0].trouble), "")


def _undecided_by(state: ClusterState, job: Job) -> str:
    """Why a job stands still until etcd takes a write that it has refused; "": it does not."""
    trouble, storing = state.trouble(f"job/{job.name}"), job.generations.storing
    if not trouble or (storing is None and job.ending is None):
        return ""
    what = "its end" if storing is None else f"generation {storing.number}"
    return f"it stands still until etcd has stored {what}: {trouble}"


def _spareless(state: ClusterState, job: Job) -> str:
    """Why a node of the job has no spares left: they died so often that no new ones are started; "": all
    have some."""
    most = job.spec.max_restarts
    spent = [node for node, times in job.recovery.spare_failures.items() if times > most] if most >= 0 else []
    if not job.spec.spares_per_node or job.phase is not JobPhase.RUNNING:
        return ""
    bare = [node for node in spent if not any(_spares(mb) for mb in job.by_node.get(node, {}).values())]
    return f"no spares are left on {some_of(bare)}: they died too often" if bare else ""


def _spares(member: Member) -> bool:
    return member.role is Role.SPARE and not member.dead


def _recent(state: ClusterState) -> int:
    """Incidents begun within the last hour, in this leader's term."""
    state.begun = [at for at in state.begun if at > state.now - HOUR_S]
    return len(state.begun)
