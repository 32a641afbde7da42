"""Turn lines of the journal into sentences for people, each with a level of importance. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from controlplane.core.records.words import in_words, some_of
from controlplane.reporting import first_cause, repeating
from controlplane.reporting.quantities import duration, size

if TYPE_CHECKING:
    from collections.abc import Callable

Body = dict[str, Any]


class EventLevel(IntEnum):
    """How important a line is; a lower number is more important."""

    HEADLINE = 1  # failures, recoveries, checkpoints, the job's end
    DECISION = 2  # what was decided and why
    DETAIL = 3  # everything else


@dataclass(frozen=True, slots=True)
class Sentence:
    """One line of the journal in words."""

    level: EventLevel
    text: str


def sentence_of(line: dict[str, Any]) -> Sentence:
    """Return a line as a sentence. A type without words of its own is shown as JSON, as a detail."""
    words = _WORDS.get(line["type"])
    sentence = words(line["body"]) if words is not None else None
    return sentence or Sentence(EventLevel.DETAIL, f"{line['type']} {json.dumps(line['body'])[:300]}")


def stamped(line: dict[str, Any]) -> str:
    """Return a line's sentence after its local time of day."""
    return f"{datetime.fromtimestamp(line['wall_s']):%H:%M:%S.%f}"[:-3] + f"  {sentence_of(line).text}"


def dated(line: dict[str, Any]) -> str:
    """Return a line's sentence after its local date and time, with the zone's distance from UTC."""
    return f"{local_time(line['wall_s'])}  {sentence_of(line).text}"


def local_time(wall_s: float) -> str:
    """Return a moment (Unix time) as local date and time to the millisecond, with the distance from UTC."""
    return datetime.fromtimestamp(wall_s).astimezone().isoformat(" ", "milliseconds")


def headline(reason: str) -> str:
    """Return the first line of a reason, without the traceback that may follow it."""
    return reason.partition("\n")[0]


def phases(incident: Body) -> str:
    """Return the phases of an incident that were reached so far: `detect 3 ms, decide 1 ms`."""
    strategy = incident["plan"]["strategy"]
    spans = incident["phases_s"]
    return ", ".join(f"{repeating.phase(strategy, name)} {duration(span)}" for name, span in spans)


_NOBODY = {"job": "the whole job"}
"""What a verdict without ranks is about, by its scope."""


def whom(verdict: Body) -> str:
    """Return what a verdict is about: `rank 2 on n1`, `node n1`."""
    nodes = some_of(verdict["nodes"])
    if verdict["scope"] == "node":
        return f"node {nodes}"
    ranks = verdict["ranks"]
    name = (
        f"rank{'s' if len(ranks) > 1 else ''} {some_of(ranks)}"
        if ranks
        else _NOBODY.get(verdict["scope"], "a spare")
    )
    return f"{name} on {nodes}" if nodes else name


def _head(verdict: Body, number: int) -> str:
    """Return the beginning of a line about an incident: people are shown a planned change as such."""
    return f"{'planned change' if verdict['cause'] == 'resized' else 'incident'} {number}"


def _judged(body: Body) -> Sentence:
    verdict, plan = body["verdict"], body["plan"]
    first, more = verdict["evidence"][:1], len(verdict["evidence"]) - 1
    evidence = f" ({first[0]}{f'; and {more} more' if more > 0 else ''})" if first else ""
    cause = in_words(verdict["cause"])
    moment = repeating.moment(verdict["step"])
    what = f"{whom(verdict)} {cause}{moment}{evidence}"
    if verdict["cause"] == "resized":
        what = moment.strip() or "at the next step"
    text = (
        f"{_head(verdict, body['incident'])}: {what}; "
        f"{plan['strategy'].replace('_', ' ')}: {headline(plan['reason'])}"
    )
    return Sentence(EventLevel.HEADLINE, text)


def _incident(body: Body) -> Sentence:
    incident = body["incident"]
    head = _head(incident["verdict"], incident["id"])
    if incident["outcome"] == "open":
        return Sentence(EventLevel.DECISION, f"{head}: {phases(incident) or 'begins'}")
    total = duration(sum(span for _, span in incident["phases_s"]))
    text = f"{head} {_outcome(incident, total)} ({phases(incident)})"
    restored = incident.get("restored", "")
    if restored and not restored.startswith("donor"):
        text += f"; state from {restored}"
    if incident.get("inexact"):
        text += f"; not exact: {incident['inexact']}"
    return Sentence(EventLevel.HEADLINE, text)


def _outcome(incident: Body, total: str) -> str:
    if incident["plan"]["strategy"] == repeating.RELAUNCH and incident["outcome"] == "recovered":
        return f"over: started again in {total}; {repeating.SAID}"
    lost = f", {incident['lost_steps']} steps lost" if incident["outcome"] == "recovered" else ""
    return f"{incident['outcome']} in {total}{lost}"


_LOUD_NOTES = ("launch_waits", "copy_altered", "copy_refuted", "state_corrupt", "state_judged", "late_fault")
"""Kinds of notes that are headlines: something waits for what people can fix, a node offers state that its
ranks never made, or replicas of the state differ, and why."""
_NOTE_LEVELS = dict.fromkeys(_LOUD_NOTES, EventLevel.HEADLINE) | {"store_failed": EventLevel.DETAIL}
"""A write that etcd refuses is tried again every second; that it takes none is in the cluster's health."""


def _job(body: Body) -> Sentence:
    state = body["state"]
    reason = f": {state['reason']}" if state["reason"] else ""
    loud = state["phase"] in ("finished", "failed", "stopped", "parked", "paused", "leaving")
    return Sentence(
        EventLevel.HEADLINE if loud else EventLevel.DECISION, f"job {state['job']} {state['phase']}{reason}"
    )


_OF_INCIDENTS = ("first_failure", "fails_again")
"""Kinds of findings that repeat what the first cause of an incident says."""


def _finding(body: Body) -> Sentence:
    head = f"job {body['job']}: {body['severity']} {body['kind']} {body['outcome']}: {body['about']}"
    if body["kind"] in _OF_INCIDENTS:
        return Sentence(EventLevel.DETAIL, f"{head}: {body['reason']}")
    if body["outcome"] == "resolved":
        return Sentence(EventLevel.HEADLINE, head)
    return Sentence(EventLevel.HEADLINE, f"{head}: {body['reason']}")


def _cause(body: Body) -> Sentence:
    again = "" if body["restart"] else f"; {first_cause.outlook(body).lower()}: {body['advice']}"
    text = f"{body['job']}/{body['incident']}: first cause: {first_cause.sentence(body)}{again}"
    return Sentence(EventLevel.HEADLINE, text)


def _profiled(body: Body) -> Sentence:
    what = f"no profile: {body['reason']}" if body["reason"] else f"profiled, the trace is {body['path']}"
    return Sentence(EventLevel.DECISION, f"job {body['job']}: rank {body['rank']} on {body['node']}: {what}")


def _checkpoint(body: Body) -> Sentence:
    record, outcome = body["record"], body["outcome"]
    extent = f", {size(record['bytes_written'])} written" if record and outcome == "committed" else ""
    reason = f": {body['reason']}" if body["reason"] else ""
    level = EventLevel.DECISION if outcome in _QUIET else EventLevel.HEADLINE
    return Sentence(level, f"checkpoint {body['checkpoint']} {outcome}{reason}{extent}")


_QUIET = ("started", "mirrored", "collected")
"""Outcomes of a checkpoint that are no headline: they are as they should be, and nobody waits for them."""


def _report(body: Body) -> Sentence | None:
    status = body["status"]
    failure = status["failure"]
    rank = f" (rank {status['rank']})" if status["rank"] >= 0 else ""
    if failure is None:
        return Sentence(EventLevel.DETAIL, f"{body['node']}: {status['member']}{rank} {status['phase']}")
    return Sentence(EventLevel.DECISION, f"{body['node']}: {status['member']}{rank} {failure['message']}")


def _order_failed(body: Body) -> Sentence:
    return Sentence(EventLevel.DECISION, f"{body['node']}: {body['member']}: {body['failure']['message']}")


def _device(body: Body) -> Sentence:
    state = "healthy" if body["healthy"] else f"bad: {body['reason']}"
    return Sentence(EventLevel.DECISION, f"{body['node']}: device {body['device']} {state}")


def _joined(body: Body) -> Sentence:
    return Sentence(
        EventLevel.DECISION,
        f"node {body['node']} joined from {body['address']}, room for {body['slots']} ranks",
    )


def _phrase(level: EventLevel, pattern: str) -> Callable[[Body], Sentence]:
    return lambda body: Sentence(level, pattern.format_map(body))


def _loaded(body: Body) -> Sentence:
    if body["reason"]:
        return Sentence(
            EventLevel.DECISION, f"checkpoint {body['checkpoint']} could not be loaded: {body['reason']}"
        )
    return Sentence(EventLevel.HEADLINE, f"checkpoint {body['checkpoint']} loaded: training goes on from it")


def _troubled(pattern: str) -> Callable[[Body], Sentence | None]:
    """Return a function that makes a DECISION of a line with a reason; a line without one is a detail."""
    return lambda body: Sentence(EventLevel.DECISION, pattern.format_map(body)) if body["reason"] else None


_WORDS: dict[str, Callable[[Body], Sentence | None]] = {
    "Elected": _phrase(EventLevel.DECISION, "this coordinator leads, term {term}"),
    "SettingsChanged": lambda body: Sentence(
        EventLevel.HEADLINE,
        f"this coordinator decides by other settings than the leader before it, at {body['leader']}: "
        f"{', '.join(body['settings'])}; start all coordinators with the same settings",
    ),
    "NodeJoined": _joined,
    "NodeBroken": _phrase(EventLevel.DECISION, "node {node}: connection broken: {reason}"),
    "DeviceReport": _device,
    "MemberReport": _report,
    "OrderFailed": _order_failed,
    "PersistFailed": _phrase(
        EventLevel.DECISION, "checkpoint {checkpoint} could not be made durable: {reason}"
    ),
    "Loaded": _loaded,
    "Mirrored": _troubled("checkpoint {checkpoint} is not on the second storage: {reason}"),
    "Collected": _troubled("old checkpoints of {job} are still on storage: {reason}"),
    "Scrubbed": _troubled("checkpoint {checkpoint} was read again: {reason}"),
    "CheckpointAsked": _phrase(EventLevel.DECISION, "{member} asks for a checkpoint of step {step}"),
    "CheckpointTold": _phrase(
        EventLevel.DECISION, "{member} is told: checkpoint {checkpoint} {outcome}: {reason}"
    ),
    "Collect": lambda body: Sentence(
        EventLevel.DECISION, f"{body['node']}: delete checkpoints {some_of(body['remove'])} from storage"
    ),
    "Scrub": lambda body: Sentence(
        EventLevel.DECISION, f"{body['node']}: read checkpoint {body['record']['id']} again"
    ),
    "Published": _troubled("checkpoint {checkpoint} could not be published: {reason}"),
    "StoreFailed": _phrase(EventLevel.DETAIL, "etcd did not take it: {reason}"),
    "JobStopRequested": _phrase(EventLevel.HEADLINE, "job {job} shall stop: {reason}"),
    "JobDeleteRequested": _phrase(EventLevel.DECISION, "job {job} shall be deleted: {reason}"),
    "JobSubmitted": lambda body: Sentence(EventLevel.DECISION, f"job {body['spec']['job']} submitted"),
    "Refuse": _phrase(EventLevel.DECISION, "node {node} refused: {reason}"),
    "Kill": _phrase(EventLevel.DECISION, "{member} on {node} is killed: {reason}"),
    "Interrupt": _phrase(EventLevel.DECISION, "generation {generation} stops on {node}: {reason}"),
    "Judged": _judged,
    "IncidentChanged": _incident,
    "FindingChanged": _finding,
    "CauseFound": _cause,
    "FindingMuted": _phrase(EventLevel.DECISION, "job {job}: finding {id} is muted for {for_s} s: {reason}"),
    "ProfileAsked": _phrase(
        EventLevel.DECISION, "job {job}: ranks {ranks} are to be profiled for {steps} steps: {reason}"
    ),
    "Profiled": _profiled,
    "LinksAsked": _phrase(EventLevel.DETAIL, "job {job}: {nodes} nodes are to probe their links: {reason}"),
    "JobChanged": _job,
    "CheckpointChanged": _checkpoint,
    "Note": lambda body: Sentence(
        _NOTE_LEVELS.get(body["kind"], EventLevel.DECISION),
        f"{body['kind']}: {body['subject']}: {body['reason']}",
    ),
}
