"""Turn incidents into traces: when each began and ended, and its parts one after another.

No tracing library is needed here: an exporter (otlp.py) is given whole traces."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from controlplane.core.records import effects
from controlplane.core.records.model import Strategy
from holdfast.logs import incident_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.core.records.effects import Effect
    from controlplane.core.records.model import Incident

DETECTION, DECISION, STOP = "detection", "decision", "stop"
PERSIST, TELL, REGROUP = "persist", "tell", "regroup"
RESTORE, FIRST_STEP = "restore", "first step"
PARTS = (DETECTION, DECISION, STOP, PERSIST, TELL, REGROUP, RESTORE, FIRST_STEP)
"""The parts of a recovery, in order. detection: from the failure to the first evidence; decision: to the
verdict; stop: ranks stop and replacements come to the barrier; persist: the new generation is written to
etcd; tell: the nodes are informed; regroup: groups are built; restore: state is put in place; first step. The
last three are those of the slowest rank, by its own clock."""

IS_GOODPUT_SPAN = "is_goodput_span"
"""The attribute of each span that says whether the job trained in it. It never does: incidents are traced,
and the last step of a recovery is one that had been done before, or is the first of a generation."""

LEFT_OPEN = "left open"
"""The outcome of an incident that was open when the leader term ended: the next leader judges anew."""

OPEN_MAX = 1024
"""Incidents that may be open at once; beyond it the oldest are not traced."""


@dataclass(frozen=True, slots=True)
class SpanPart:
    """One part of an incident. Times are Unix times in s."""

    name: str
    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Trace:
    """A whole incident. Times are Unix times in s. `notes`: (time, what was decided)."""

    name: str  # job/number
    begin_s: float
    end_s: float
    outcome: str
    parts: tuple[SpanPart, ...]
    attributes: tuple[tuple[str, Any], ...]
    notes: tuple[tuple[float, str], ...]


@dataclass(slots=True)
class _Open:
    incident: Incident | None = None
    judged_s: float = 0.0
    writing_s: float = 0.0  # when the write of the newest generation began
    stored_s: float = 0.0
    notes: list[tuple[float, str]] = field(default_factory=list)


class Spans:
    """Makes the traces of one leader term: follows its effects, and gives each incident that closed to
    `export`.

    `wall`: Unix time in s."""

    def __init__(self, export: Callable[[Trace], None], wall: Callable[[], float]) -> None:
        self._export, self._wall = export, wall
        self._open: dict[str, _Open] = {}  # by job
        self._handlers: dict[type, Callable[[Any], None]] = {
            effects.Judged: self._judged,
            effects.StoreJob: self._writing,
            effects.IncidentChanged: self._changed,
        }

    def effect(self, effect: Effect) -> None:
        """Take in an effect of the core."""
        if (handler := self._handlers.get(type(effect))) is not None:
            handler(effect)

    def end(self) -> None:
        """Export what is still open, as far as it came: the leader term is over."""
        for seen in self._open.values():
            if seen.incident is not None:
                left = dataclasses.replace(seen.incident, outcome=LEFT_OPEN)
                self._export(trace(left, seen, self._wall()))
        self._open.clear()

    def _judged(self, effect: effects.Judged) -> None:
        now, job = self._wall(), effect.verdict.job
        seen = self._open.setdefault(job, _Open(judged_s=now))
        seen.notes.append((now, f"{effect.plan.strategy.value}: {effect.plan.reason.partition(chr(10))[0]}"))
        seen.writing_s = seen.stored_s = 0.0
        while len(self._open) > OPEN_MAX:
            del self._open[next(iter(self._open))]

    def _writing(self, effect: effects.StoreJob) -> None:
        seen = self._open.get(effect.job) if effect.generation is not None else None
        if seen is not None:
            seen.writing_s, seen.stored_s = self._wall(), 0.0

    def _changed(self, effect: effects.IncidentChanged) -> None:
        incident = effect.incident
        seen = self._open.get(incident.job)
        if seen is None:
            return
        seen.incident = incident
        if seen.writing_s and not seen.stored_s and "fence" in dict(incident.phases_s):
            seen.stored_s = self._wall()
        if incident.outcome != "open":
            del self._open[incident.job]
            self._export(trace(incident, seen, self._wall()))


def trace(incident: Incident, seen: _Open, end_s: float) -> Trace:
    """Return an incident that ended at `end_s` as its parts, which follow each other without a gap."""
    spans = dict(incident.phases_s)
    heard_s = seen.judged_s - spans.get("decide", 0.0)
    begin_s = heard_s - spans.get("detect", 0.0)
    marks = [(DETECTION, heard_s), (DECISION, seen.judged_s)]
    if seen.writing_s:
        marks.append((STOP, seen.writing_s))
    if seen.stored_s:
        marks.append((PERSIST, seen.stored_s))
    if "reform" in spans:
        first_s = end_s - spans.get("first_step", 0.0)
        placed_s = first_s - spans.get("restore", 0.0)
        regrouping_s = placed_s - spans["reform"]
        marks += [(TELL, regrouping_s), (REGROUP, placed_s), (RESTORE, first_s), (FIRST_STEP, end_s)]
    return Trace(
        incident_name(incident.job, incident.id),
        begin_s,
        end_s,
        incident.outcome,
        tuple(_parts(begin_s, marks, end_s)),
        tuple(_attributes(incident)),
        tuple(seen.notes),
    )


def _parts(begin_s: float, marks: list[tuple[str, float]], end_s: float) -> list[SpanPart]:
    """Return the parts, each from the end of the one before.

    The marks come from the clocks of several machines: no part may end before it begins."""
    parts = []
    for name, mark_s in marks:
        parts.append(SpanPart(name, begin_s, min(max(mark_s, begin_s), end_s)))
        begin_s = parts[-1].end_s
    return parts


def _lost(incident: Incident) -> list[tuple[str, Any]]:
    """Return the steps that were lost. They are not known for a script without the SDK."""
    known = incident.plan.strategy is not Strategy.RELAUNCH
    return [("holdfast.lost_steps", max(0, incident.lost_steps))] if known else []


def _attributes(incident: Incident) -> list[tuple[str, Any]]:
    verdict = incident.verdict
    return [
        (IS_GOODPUT_SPAN, False),
        ("holdfast.training_job", incident.job),
        ("holdfast.scope", verdict.scope.value),
        ("holdfast.cause", verdict.cause.value),
        ("holdfast.strategy", incident.plan.strategy.value),
        ("holdfast.outcome", incident.outcome),
        ("holdfast.nodes", list(verdict.nodes)),
        ("holdfast.ranks", list(verdict.ranks)),
        ("holdfast.step", verdict.step),
        *_lost(incident),
        ("holdfast.generation_before", incident.generation_before),
        ("holdfast.generation_after", incident.generation_after),
        ("holdfast.restored", incident.restored),
    ]
