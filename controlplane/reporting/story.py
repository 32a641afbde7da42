"""Build incident reports from the lines of the journal, as text for people and as data. Pure.

`ReportBuilder` takes the lines in order, one by one. The live page and the commands
that read a journal use it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from controlplane.core.records.words import in_words
from controlplane.reporting import first_cause, repeating
from controlplane.reporting.event_text import EventLevel, headline, sentence_of, whom
from controlplane.reporting.lines import Line, job_of
from controlplane.reporting.quantities import duration

if TYPE_CHECKING:
    from collections.abc import Iterable

CAUSES = {
    "signaled": "was killed by a signal",
    "exited": "ended by itself",
    "raised": "raised an exception",
    "silent": "fell silent",
    "stuck": "did not do what it was told in time",
    "device": "has a bad device",
    "node_lost": "was lost",
    "node_restarted": "came back without its processes",
    "broken": "saw a connection break",
    "launch_failed": "could not be started",
    "cut": "was cut off from the others",
    "hung": "got no further, and the others waited for it",
    "fault": "computed wrong numbers",
    "resized": "was to have other places; nothing failed",
}
STRATEGIES = {
    "spare": "a warm spare took its place, the others stayed and formed anew",
    "respawn": "a new process was started in its place, the others waited for it",
    "relaunch": "every rank was started again",
    "await_node": "its ranks waited for a node with room, the others kept their state",
    "reform": "nobody was replaced: the same ranks formed anew",
    "shrink": "the job went on with fewer nodes",
    "grow": "nodes that stood ready joined",
    "move": "ranks changed their places",
    "pause": "all ranks stopped at the end of a step, until people let them go on",
    "rollback": "the same ranks went back to an older state",
    "stop": "the job was stopped",
}
PHASES = {
    "detect": "until it was noticed",
    "decide": "until it was judged",
    "fence": "until all had stopped and etcd held the next generation",
    "reform": "to form the groups",
    "restore": "to put the state in place",
    "first_step": "for the first step after it",
}
_PLAIN_PHASES = {
    "reform": "until every rank's process ran the script",
    "first_step": "until one of them wrote its first output",
}
"""Names of phases that mean something else for a plain script."""
ENDINGS = {"incident_over": "recovered", "incident_overtaken": "superseded"}
"""Kinds of notes that end an incident which a former leader left open -> its outcome."""
ENDED = ("finished", "failed", "stopped")
"""Phases of a job that has ended."""
TIMELINE_MAX = 40


@dataclass(slots=True)
class IncidentReport:
    """What is known of one incident."""

    job: str
    id: int
    judged_s: float  # Unix time of the first line about it: the verdict
    ended_s: float = 0.0  # Unix time of its end; 0: it is open
    verdict: dict[str, Any] = field(default_factory=dict)
    plan: dict[str, Any] = field(default_factory=dict)
    incident: dict[str, Any] = field(default_factory=dict)  # as reported last; {}: not yet
    cause: dict[str, Any] = field(default_factory=dict)  # its first cause, CauseFound; {}: none was found
    lines: list[tuple[float, str]] = field(default_factory=list)  # (Unix time, text) about its job meanwhile

    @property
    def begun_s(self) -> float:
        """Unix time of the failure: that of the verdict, less the time until it was detected and judged."""
        spans = self.phases_s
        return self.judged_s - spans.get("detect", 0.0) - spans.get("decide", 0.0)

    @property
    def planned(self) -> bool:
        """Whether this is a planned change: people, or a policy, wanted it, and nothing failed."""
        return bool(self.verdict.get("cause") == "resized")

    @property
    def outcome(self) -> str:
        """open, recovered, failed, stopped or superseded."""
        return str(self.incident.get("outcome", "open"))

    @property
    def phases_s(self) -> dict[str, float]:
        """Time (s) by phase, for the phases reached so far."""
        return {name: float(span) for name, span in self.incident.get("phases_s", ())}


class ReportBuilder:
    """Takes the journal's lines in order, and keeps what they say about incidents."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, int], IncidentReport] = {}
        self._open: dict[str, IncidentReport] = {}

    def add(self, line: Line) -> IncidentReport | None:
        """Take one line. Returns the incident that it belongs to; None when there is none."""
        body = line["body"]
        job = job_of(body)
        if line["type"] == "Judged":
            return self._judged(line)
        if line["type"] == "IncidentChanged":
            return self._changed(line)
        if line["type"] == "Note" and body["kind"] in ENDINGS:
            return self._outlived(line)
        if line["type"] == "CauseFound":
            return self._caused(line)
        story = self._open.get(job)
        if story is not None and len(story.lines) < TIMELINE_MAX:
            sentence = sentence_of(line)
            if sentence.level <= EventLevel.DECISION:
                story.lines.append((line["wall_s"], headline(sentence.text)))
        if line["type"] == "JobChanged" and body["state"]["phase"] in ENDED:
            self._open.pop(job, None)
        return story

    def _judged(self, line: Line) -> IncidentReport:
        body = line["body"]
        story = self._story(body["verdict"]["job"], body["incident"], line["wall_s"])
        story.verdict, story.plan = body["verdict"], body["plan"]
        self._open[story.job] = story
        return story

    def _changed(self, line: Line) -> IncidentReport:
        incident = line["body"]["incident"]
        story = self._story(incident["job"], incident["id"], line["wall_s"])
        story.incident, story.verdict, story.plan = incident, incident["verdict"], incident["plan"]
        if incident["outcome"] != "open":
            story.ended_s = line["wall_s"]
            self._open.pop(story.job, None)
        return story

    def _caused(self, line: Line) -> IncidentReport | None:
        story = self.found.get((line["body"]["job"], line["body"]["incident"]))
        if story is not None:
            story.cause = line["body"]
        return story

    def _outlived(self, line: Line) -> IncidentReport | None:
        """Close an incident whose leader ended before it was over; its further phases are not known."""
        story = self._open.pop(line["body"]["subject"], None)
        if story is not None:
            story.incident = {**story.incident, "outcome": ENDINGS[line["body"]["kind"]]}
            story.ended_s = line["wall_s"]
            story.lines.append((line["wall_s"], headline(line["body"]["reason"])))
        return story

    def _story(self, job: str, number: int, wall_s: float) -> IncidentReport:
        return self.found.setdefault((job, number), IncidentReport(job, number, wall_s))


def stories(lines: Iterable[Line]) -> list[IncidentReport]:
    """Return all incidents in the lines, oldest first."""
    builder = ReportBuilder()
    for line in lines:
        builder.add(line)
    return list(builder.found.values())


def as_text(story: IncidentReport) -> str:
    """Return the report of an incident as text for people."""
    cause = first_cause.as_text(story.cause) if story.cause else ""
    parts = [_title(story), _happened(story), cause, _evidence(story), _done(story), _cost(story)]
    if story.lines:
        parts.append("In between:\n" + "\n".join(f"  {_clock(at)}  {text}" for at, text in story.lines))
    return "\n\n".join(part for part in parts if part)


def as_json(story: IncidentReport) -> dict[str, Any]:
    """Return the report of an incident for programs. Times are Unix times, spans in s."""
    return {
        "job": story.job,
        "incident": story.id,
        "outcome": story.outcome,
        "planned": story.planned,
        "begun_s": story.begun_s,
        "ended_s": story.ended_s or None,
        "happened": happened(story),
        "cause": story.cause or None,
        "evidence": list(story.verdict.get("evidence", ())),
        "verdict": story.verdict,
        "plan": story.plan,
        "done": done(story),
        "spans": [[_phase(story, name), span] for name, span in story.phases_s.items()],
        "phases_s": story.phases_s,
        "total_s": sum(story.phases_s.values()),
        "lost_steps": max(0, story.incident.get("lost_steps", 0)),
        "repeated": _again(story),
        "restored": story.incident.get("restored", ""),
        "inexact": story.incident.get("inexact", ""),
        "generation_before": story.incident.get("generation_before", 0),
        "generation_after": story.incident.get("generation_after", 0),
        "timeline": [{"wall_s": at, "text": text} for at, text in story.lines],
    }


def _title(story: IncidentReport) -> str:
    ending = "not over yet" if story.outcome == "open" else story.outcome
    begun = f"{datetime.fromtimestamp(story.begun_s).astimezone():%Y-%m-%d %H:%M:%S %z}"
    what = "planned change" if story.planned else "incident"
    return f"{what} {story.id} of job {story.job}, {begun}: {ending}"


def happened(story: IncidentReport) -> str:
    """Return in a sentence what failed, and how."""
    verdict = story.verdict
    cause = CAUSES.get(verdict["cause"], in_words(verdict["cause"]))
    moment = repeating.moment(verdict["step"])
    who = "the whole job" if verdict["scope"] == "job" else whom(verdict)
    return f"{who} {cause}{moment}"


def _happened(story: IncidentReport) -> str:
    return f"What happened: {happened(story)}."


def _evidence(story: IncidentReport) -> str:
    rows = [headline(row) for row in story.verdict["evidence"]]
    return "Evidence:\n" + "\n".join(f"  {row}" for row in rows) if rows else "Evidence: none was kept."


def done(story: IncidentReport) -> str:
    """Describe in a sentence what was done about it."""
    strategy = str(story.plan["strategy"])
    return STRATEGIES.get(strategy, strategy.replace("_", " "))


def _done(story: IncidentReport) -> str:
    plan = story.plan
    rows = [f"What was done: {done(story)}."]
    if plan["reason"]:
        rows.append(f"  Why: {headline(plan['reason'])}.")
    if plan["drop"] or plan["add"]:
        nobody = "nobody yet" if story.outcome == "open" else "nobody"
        left, came = ", ".join(plan["drop"]) or "nobody", ", ".join(plan["add"]) or nobody
        rows.append(f"  Left: {left}; came: {came}.")
    restored = story.incident.get("restored", "")
    if restored:
        rows.append(f"  State from: {restored}.")
    if story.incident.get("inexact"):
        rows.append(f"  Not exact: {story.incident['inexact']}.")
    return "\n".join(rows)


def _cost(story: IncidentReport) -> str:
    spans = story.phases_s
    if not spans:
        return "What it cost: not known yet."
    took, joined = duration(sum(spans.values())), "; " if _started_again(story) else ", "
    if story.outcome == "open":
        took = f"it goes on; {took} for what is over"
    rows = [f"What it cost: {took}{joined}{_again(story)}."]
    rows += [f"  {duration(span):>12}  {_phase(story, name)}" for name, span in spans.items()]
    return "\n".join(rows)


def _started_again(story: IncidentReport) -> bool:
    return story.plan.get("strategy") == repeating.RELAUNCH


def _again(story: IncidentReport) -> str:
    strategy, lost = str(story.plan.get("strategy", "")), story.incident.get("lost_steps", 0)
    return repeating.again(strategy, lost, over=story.outcome != "open")


def _phase(story: IncidentReport, name: str) -> str:
    if _started_again(story) and name in _PLAIN_PHASES:
        return _PLAIN_PHASES[name]
    return PHASES.get(name, name.replace("_", " "))


def _clock(wall_s: float) -> str:
    return f"{datetime.fromtimestamp(wall_s):%H:%M:%S.%f}"[:-3]
