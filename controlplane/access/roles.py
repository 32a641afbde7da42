"""List which roles may call each method of every service. A method without a line is refused to all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from controlplane.access.callers import CallerRole

CONTROL = "holdfast.control.v1.Control"
ADMIN = "holdfast.control.v1.Admin"
PEER = "holdfast.peer.v1.Peer"
HEALTH = "grpc.health.v1.Health"

JobOf = Callable[[Any], str]
"""Returns the job that a request is about; "" for the cluster as a whole."""


def _whole(_request: Any) -> str:
    return ""


def _named(request: Any) -> str:
    return str(request.job)


def _of_spec(request: Any) -> str:
    return str(request.spec.job)


def _kept(reply: Any, jobs: tuple[str, ...]) -> None:
    """Remove other jobs' rows from a StatusReply. What concerns the cluster or the nodes stays."""
    for field in ("jobs", "ranks", "checkpoints"):
        rows = getattr(reply, field)
        kept = [row for row in rows if row.job in jobs]
        del rows[:]
        rows.extend(kept)
    health = reply.health
    reasons, of = visible_reasons(jobs, health.reasons, health.jobs)
    del health.reasons[:], health.jobs[:]
    health.reasons.extend(reasons)
    health.jobs.extend(of)


def visible_reasons(
    jobs: Sequence[str], reasons: Sequence[str], of: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Return those reasons for the cluster's health that callers of these jobs may see, and the job of each.

    `of` has the job of each reason; one that concerns no single job ("") is for everybody."""
    kept = [(why, whose) for why, whose in zip(reasons, of, strict=True) if whose in ("", *jobs)]
    return [why for why, _ in kept], [whose for _, whose in kept]


@dataclass(frozen=True, slots=True)
class Rule:
    """Who may call a method.

    `job` reads from a request the job that it is about; None: the method itself limits what callers of some
    jobs may touch. `trim` removes from the reply what such callers may not see."""

    roles: frozenset[CallerRole]
    job: JobOf | None = _whole
    trim: Callable[[Any, tuple[str, ...]], None] | None = None
    public: bool = False  # callers are not authenticated


def _rule(*roles: CallerRole, **more: Any) -> Rule:
    return Rule(frozenset(roles), **more)


_OPERATOR = CallerRole.OPERATOR
_READS = (CallerRole.OPERATOR, CallerRole.READER)
"""Who may read what ranks write: a log may hold data and secrets that the state of a job does not show."""
_SEES = (*_READS, CallerRole.VIEWER)
RULES: dict[str, Rule] = {
    f"/{CONTROL}/Link": _rule(CallerRole.AGENT, job=None),
    f"/{CONTROL}/SendLog": _rule(CallerRole.AGENT, job=None),
    f"/{CONTROL}/Clock": _rule(CallerRole.AGENT, job=None),
    f"/{ADMIN}/ListLogs": _rule(*_READS, job=_named),
    f"/{ADMIN}/ReadLog": _rule(*_READS, job=_named),
    f"/{ADMIN}/Status": _rule(*_SEES, job=None, trim=_kept),
    f"/{ADMIN}/Events": _rule(*_SEES, job=_named),
    f"/{ADMIN}/Diagnose": _rule(*_SEES, job=_named),
    f"/{ADMIN}/Mute": _rule(_OPERATOR, job=_named),
    f"/{ADMIN}/Profile": _rule(_OPERATOR, job=_named),
    f"/{ADMIN}/Stacks": _rule(_OPERATOR, job=_named),
    f"/{ADMIN}/Submit": _rule(_OPERATOR, job=_of_spec),
    f"/{ADMIN}/Stop": _rule(_OPERATOR, job=_named),
    f"/{ADMIN}/Delete": _rule(_OPERATOR, job=_named),
    f"/{ADMIN}/Pause": _rule(_OPERATOR, job=_named),
    f"/{ADMIN}/Checkpoint": _rule(_OPERATOR, job=_named),
    f"/{ADMIN}/Adopt": _rule(_OPERATOR, job=_named),
    f"/{ADMIN}/Release": _rule(_OPERATOR),
    f"/{ADMIN}/Drain": _rule(_OPERATOR),
    f"/{ADMIN}/Cordon": _rule(_OPERATOR),
    f"/{PEER}/Put": _rule(CallerRole.AGENT, job=None),
    f"/{PEER}/Get": _rule(CallerRole.AGENT, job=None),
    f"/{PEER}/Have": _rule(CallerRole.AGENT, job=None),
    f"/{PEER}/Drop": _rule(CallerRole.AGENT, job=None),
    f"/{PEER}/Echo": _rule(CallerRole.AGENT, job=None),
    f"/{PEER}/Relay": _rule(CallerRole.AGENT, job=None),
    f"/{HEALTH}/Check": _rule(public=True),
    f"/{HEALTH}/Watch": _rule(public=True),
}
