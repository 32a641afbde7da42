"""Cluster health: healthy, degraded or critical, with every reason. Rules are a table over plain facts.

What changes is told to the administrators once, and told again when it is over."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from controlplane.core import effects as fx
from controlplane.core import overdue, standing
from controlplane.core.job import ENDED
from controlplane.core.model import JobPhase, Role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from controlplane.core.job import Job, Member
    from controlplane.core.machine import Machine
    from controlplane.core.timing import CoreSettings

    Rule = Callable[["Facts", CoreSettings], Iterable["Finding"]]

HOUR_S = 3600.0


class Level(StrEnum):
    """How the cluster is."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    CRITICAL = "critical"


SEVERITIES = {Level.DEGRADED: "warning", Level.CRITICAL: "critical"}
"""What administrators are told at which level."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be."""

    kind: str
    level: Level
    subject: str
    reason: str
    job: str = ""  # whose it is; "": nobody's in particular


@dataclass(frozen=True, slots=True)
class Facts:
    """What health is judged from. Pairs are (subject, reason)."""

    nodes: int = 0  # known, whatever their state
    lost: tuple[str, ...] = ()
    quarantined: tuple[tuple[str, str], ...] = ()
    held: tuple[tuple[str, str], ...] = ()
    devices: tuple[tuple[str, str], ...] = ()
    brake: str = ""  # why decisions are paused
    dcs: str = ""  # why etcd does not answer
    parked: tuple[tuple[str, str], ...] = ()
    spareless: tuple[tuple[str, str], ...] = ()
    late: tuple[tuple[str, str], ...] = ()  # jobs without a newer checkpoint for long
    overdue: tuple[tuple[str, str, str], ...] = ()  # (what, job, why) of what training jobs owe
    incidents: int = 0  # within the last hour
    unreplaced: tuple[tuple[str, str], ...] = ()  # nodes that will not do, and are not replaced


def assess(facts: Facts, s: CoreSettings) -> tuple[Finding, ...]:
    """Everything that is wrong, worst first; nothing: healthy."""
    found = [finding for rule in RULES for finding in rule(facts, s)]
    return tuple(sorted(found, key=lambda f: (f.level is not Level.CRITICAL, f.kind, f.subject)))


def level(findings: Iterable[Finding]) -> Level:
    """The worst of them."""
    levels = [finding.level for finding in findings]
    return next((each for each in (Level.CRITICAL, Level.DEGRADED) if each in levels), Level.HEALTHY)


def _mass_loss(facts: Facts, s: CoreSettings) -> Iterable[Finding]:
    if facts.brake:
        yield Finding("mass_loss", Level.CRITICAL, "", f"{facts.brake}: decisions are paused")


def _lost(facts: Facts, s: CoreSettings) -> Iterable[Finding]:
    if not facts.lost:
        return
    critical = len(facts.lost) > s.lost_critical_ratio * facts.nodes
    names = ", ".join(facts.lost[:8]) + (" ..." if len(facts.lost) > 8 else "")
    reason = f"{len(facts.lost)} of {facts.nodes} nodes are lost: {names}"
    yield Finding("nodes_lost", Level.CRITICAL if critical else Level.DEGRADED, "", reason)


def _dcs(facts: Facts, s: CoreSettings) -> Iterable[Finding]:
    if facts.dcs:
        reason = f"etcd does not answer ({facts.dcs}): training goes on, decisions wait"
        yield Finding("dcs_unavailable", Level.CRITICAL, "", reason)


def _incidents(facts: Facts, s: CoreSettings) -> Iterable[Finding]:
    if facts.incidents > s.incidents_degraded:
        critical = facts.incidents > s.incidents_critical
        reason = f"{facts.incidents} incidents within the last hour"
        yield Finding("incidents", Level.CRITICAL if critical else Level.DEGRADED, "", reason)


def _overdue(facts: Facts, s: CoreSettings) -> Iterable[Finding]:
    for what, job, why in facts.overdue:
        yield Finding(f"{what}_overdue", Level.DEGRADED, job, f"{what} are overdue: {why}", job)


def _each(kind: str, pairs: Callable[[Facts], tuple[tuple[str, str], ...]], *, jobs: bool = False) -> Rule:
    """`jobs`: the subjects are jobs."""

    def rule(facts: Facts, s: CoreSettings) -> Iterable[Finding]:
        return [
            Finding(kind, Level.DEGRADED, subject, reason, subject if jobs else "")
            for subject, reason in pairs(facts)
        ]

    return rule


RULES: tuple[Rule, ...] = (
    _mass_loss,
    _dcs,
    _lost,
    _incidents,
    _each("node_quarantined", lambda f: f.quarantined),
    _each("node_held", lambda f: f.held),
    _each("device_unhealthy", lambda f: f.devices),
    _each("job_parked", lambda f: f.parked, jobs=True),
    _each("spares_exhausted", lambda f: f.spareless, jobs=True),
    _each("checkpoint_late", lambda f: f.late, jobs=True),
    _overdue,
    _each("node_unreplaced", lambda f: f.unreplaced),
)


# ------------------------------------------------------------------ from the book


def due(m: Machine) -> None:
    """Look at everything, and tell what has changed."""
    m.health_at = m.now
    before, found = m.findings, assess(facts_of(m), m.settings)
    m.findings = {(each.kind, each.subject): each for each in found}
    for key, each in m.findings.items():
        if key not in before or before[key].level is not each.level:
            m.emit(fx.Alert(each.kind, SEVERITIES[each.level], each.subject, each.reason))
    for key, each in before.items():
        if key not in m.findings:
            m.emit(fx.Alert(each.kind, SEVERITIES[each.level], each.subject, each.reason, resolved=True))
    now, then = level(found), level(before.values())
    if now is not then:
        m.note("health", now.value, "; ".join(each.reason for each in found) or "all is well")
    _pause(m, found)
    if found or any(job.phase not in ENDED for job in m.jobs.values()):
        m.deadlines.sooner(("health", ""), m.now + m.settings.health_every_s)


PAUSING = ("mass_loss", "nodes_lost", "incidents", "dcs_unavailable")
"""Findings that pause by policy: never one that only a new start would end."""


def _pause(m: Machine, found: tuple[Finding, ...]) -> None:
    grave = [each for each in found if each.level is Level.CRITICAL and each.kind in PAUSING]
    paused = grave[0].reason if grave and m.settings.pause_when_critical else ""
    if bool(paused) != bool(m.paused):
        m.note("paused" if paused else "resumed", "cluster", paused or "the cluster is critical no more")
    if paused != m.paused:  # another reason, too: jobs say for what they wait
        m.touch_all()
    m.paused = paused


def facts_of(m: Machine) -> Facts:
    """What the book says now."""
    quarantined, held, devices, lost = [], [], [], []
    for name, node in m.nodes.items():
        if node.state == "lost":
            lost.append(name)
        if node.lemon is not None and standing.last_choice(m, node):
            quarantined.append((name, node.lemon.reason))
        if node.cut or node.held_until > m.now:
            held.append((name, standing.barred(m, node)))
        if node.bad_devices:
            devices += [(f"{name}/{device}", why) for device, why in node.bad_devices.items()]
    jobs = [job for job in m.jobs.values() if job.phase not in ENDED]
    return Facts(
        nodes=len(m.nodes),
        lost=tuple(lost),
        quarantined=tuple(quarantined),
        held=tuple(held),
        devices=tuple(devices),
        brake=m.brake.reason if m.brake else "",
        dcs=m.dcs_trouble or _store_trouble(m),
        parked=tuple((job.name, job.reason) for job in jobs if job.phase is JobPhase.PARKED),
        spareless=tuple((job.name, why) for job in jobs if (why := _spareless(m, job))),
        late=tuple((job.name, why) for job in jobs if (why := _late(m, job))),
        overdue=tuple((what, job.name, why) for job in jobs for what, why in overdue.told(job)),
        incidents=_recent(m),
        unreplaced=tuple((node.name, node.unreplaced) for node in m.nodes.values() if node.unreplaced),
    )


def _store_trouble(m: Machine) -> str:
    return next((queue[0].trouble for queue in m.lanes.values() if queue and queue[0].trouble), "")


def _spareless(m: Machine, job: Job) -> str:
    """A node of the job whose spares died so often that no new ones are started."""
    most = job.spec.max_restarts
    spent = [node for node, times in job.spare_failures.items() if times > most] if most >= 0 else []
    if not job.spec.spares_per_node or job.phase is not JobPhase.RUNNING:
        return ""
    bare = [node for node in spent if not any(_spares(mb) for mb in job.by_node.get(node, {}).values())]
    return f"no spares are left on {', '.join(bare)}: they died too often" if bare else ""


def _spares(member: Member) -> bool:
    return member.role is Role.SPARE and not member.dead


def _late(m: Machine, job: Job) -> str:
    if not job.spec.storage or job.phase is not JobPhase.RUNNING or not job.barrier:
        return ""
    since = job.begun_at if job.begun_at >= 0 else job.launched_at
    age_s = m.now - since
    if age_s < m.settings.checkpoint_late_s:
        return ""
    return f"no checkpoint was begun for {age_s / 60:.0f} min"


def _recent(m: Machine) -> int:
    """Incidents begun within the last hour, of this leader's term."""
    m.begun = [at for at in m.begun if at > m.now - HOUR_S]
    return len(m.begun)
