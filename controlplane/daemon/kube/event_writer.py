"""Write incidents as Kubernetes Events (events.k8s.io/v1), beside the pods that they are about.

An event that is repeated within SERIES_S becomes a series, which is updated now and then. A budget bounds the
requests. Nothing waits for the API."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import time
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from controlplane.core.records import effects as fx
from controlplane.core.records.model import JobPhase
from controlplane.core.records.words import in_words
from controlplane.daemon.kube.api import NONSENSE, PATCH, KubeError
from controlplane.reporting import repeating

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.core.records.effects import Effect
    from controlplane.daemon.kube.api import Api

CONTROLLER = "holdfast.dev/coordinator"
NOTE_CHARS_MAX = 1000
"""Bytes of a note; the API takes 1 KiB. Bytes are counted, because a character may have up to four."""
BURST, PER_S = 25, 0.2
"""The budget of requests: this many at once, then this many per second."""
SERIES_S = 360.0
"""An event that is repeated within this many seconds of its last occurrence belongs to a series."""
UPDATE_S = 60.0
"""Shortest time between two updates of a series, in s."""
WAITING_MAX = 500
KNOWN_MAX = 1000
NORMAL, WARNING = "Normal", "Warning"
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EventText:
    """One event to be written. `node` "": it is about the coordinator's own pod."""

    kind: str  # Normal, Warning
    reason: str
    action: str
    node: str
    note: str


def _judged(effect: fx.Judged) -> EventText:
    verdict, plan = effect.verdict, effect.plan
    ranks = ", ".join(map(str, verdict.ranks)) or "none"
    cause = f"{in_words(verdict.cause)} ({verdict.scope})"
    what = f"job {verdict.job}, incident {effect.incident}: {cause}, ranks {ranks}"
    note = f"{what}; {plan.strategy}: {plan.reason}; {'; '.join(verdict.evidence)}"
    return EventText(WARNING, "Incident", _camel(plan.strategy), next(iter(verdict.nodes), ""), note)


def _incident(effect: fx.IncidentChanged) -> EventText | None:
    incident = effect.incident
    if incident.outcome not in _OUTCOMES:
        return None
    kind, reason = _OUTCOMES[incident.outcome]
    took_s = sum(spent for _, spent in incident.phases_s)
    note = f"job {incident.job}, incident {incident.id}: {incident.outcome} after {took_s:.2f} s"
    note += f", {repeating.again(incident.plan.strategy.value, incident.lost_steps)}"
    if incident.plan.strategy.value != repeating.RELAUNCH:
        note += f"; state from {incident.restored or 'where it was'}"
    return EventText(
        kind, reason, _camel(incident.plan.strategy), next(iter(incident.verdict.nodes), ""), note
    )


def _job(effect: fx.JobChanged) -> EventText | None:
    state = effect.state
    if state.phase not in _PHASES:
        return None
    kind, reason = _PHASES[state.phase]
    return EventText(kind, reason, "Report", "", f"job {state.job}: {state.reason}")


def _alert(effect: fx.Alert) -> EventText:
    kind = NORMAL if effect.resolved else WARNING
    note = f"{'over: ' if effect.resolved else ''}{effect.reason}"
    return EventText(
        kind, _camel(effect.kind), "Report", "", f"{effect.subject}: {note}" if effect.subject else note
    )


def _note(effect: fx.Note) -> EventText | None:
    kind = _NOTES.get(effect.kind)
    node = effect.subject.partition("/")[0]
    return (
        EventText(kind, _camel(effect.kind), "Mark", node, effect.reason or effect.subject) if kind else None
    )


_OUTCOMES = {"recovered": (NORMAL, "Recovered"), "failed": (WARNING, "RecoveryFailed")}
_PHASES = {
    JobPhase.FINISHED: (NORMAL, "JobFinished"),
    JobPhase.FAILED: (WARNING, "JobFailed"),
    JobPhase.STOPPED: (NORMAL, "JobStopped"),
    JobPhase.PARKED: (WARNING, "JobParked"),
}
_NOTES = {
    "node_replacing": WARNING,
    "node_replaced": NORMAL,
    "node_replace_failed": WARNING,
    "node_drained": NORMAL,
    "draining": NORMAL,
    "device_excluded": WARNING,
    "quarantined": WARNING,
    "node_checking": NORMAL,
    "node_checked": NORMAL,  # what it found is an alert, too
    "node_unchecked": WARNING,
}
_WORDS: dict[type, Callable[[Any], EventText | None]] = {
    fx.Judged: _judged,
    fx.IncidentChanged: _incident,
    fx.JobChanged: _job,
    fx.Alert: _alert,
    fx.Note: _note,
}


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


@dataclass(slots=True)
class Series:
    """An event that the API has. `count`: how often it occurred; `sent`: the count that the API knows."""

    name: str
    namespace: str
    count: int
    occurred_at: float  # when it occurred last; this and the next in s on the clock of EventWriter
    sent_at: float  # when the API was updated last
    sent: int = 1


class EventWriter:
    """Writes the Events of one coordinator. `pod`: its own name; `clock` in s."""

    def __init__(self, api: Api, pod: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._api, self._pod, self._clock = api, pod, clock
        self._waiting: deque[EventText] = deque(maxlen=WAITING_MAX)
        self._known: OrderedDict[EventText, Series] = OrderedDict()
        self._uids: dict[str, str] = {}
        self._room, self._room_at = float(BURST), clock()
        self._wake = asyncio.Event()
        self.not_written = 0
        """Events that were not written, because of the budget or the API."""

    def take(self, effect: Effect) -> None:
        """Queue an Event for this effect, if it is of a kind that gets one."""
        make = _WORDS.get(type(effect))
        event = make(effect) if make is not None else None
        if event is None:
            return
        if len(self._waiting) == WAITING_MAX:
            self.not_written += 1
        self._waiting.append(event)
        self._wake.set()

    async def run(self) -> None:
        """Write Events for ever."""
        while True:
            self._wake.clear()
            while self._waiting:
                await self._write(self._waiting.popleft())
            for series in list(self._known.values()):
                await self._update(series)
            self._forget()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(UPDATE_S / 4):
                    await self._wake.wait()

    async def _write(self, event: EventText) -> None:
        now, series = self._clock(), self._known.get(event)
        if series is not None and now < series.occurred_at + SERIES_S:
            series.count, series.occurred_at = series.count + 1, now
            return
        if not self._may(now):
            self.not_written += 1
            return
        try:
            document = await self._document(event)
            path = f"/apis/events.k8s.io/v1/namespaces/{document['metadata']['namespace']}/events"
            await self._api.once("event_create", "POST", path, document)
        except KubeError as error:
            self.not_written += 1
            log.warning(
                "an event could not be written to Kubernetes (%d lost so far): %s", self.not_written, error
            )
            return
        except NONSENSE as error:
            self.not_written += 1
            log.warning("the API sent invalid data about a pod: %r", error)
            return
        meta = document["metadata"]
        self._known[event] = Series(meta["name"], meta["namespace"], 1, now, now)
        self._known.move_to_end(event)

    async def _document(self, event: EventText) -> dict[str, Any]:
        namespace, pod = self._api.account.namespace, event.node or self._pod
        regarding = {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": pod}
        uid = await self._uid(pod)
        regarding |= {"uid": uid} if uid else {}
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": f"{pod[:200]}.{time.time_ns():x}", "namespace": namespace},
            "eventTime": _micro(),
            "reportingController": CONTROLLER,
            "reportingInstance": self._pod[:128],
            "action": event.action[:128],
            "reason": event.reason[:128],
            "regarding": regarding,
            "note": event.note.encode()[:NOTE_CHARS_MAX].decode(errors="ignore"),
            "type": event.kind,
        }

    async def _uid(self, pod: str) -> str:
        """Return the uid of a pod, by which `kubectl describe` finds its events; "" when the pod is gone."""
        if pod not in self._uids:
            try:
                path = f"/api/v1/namespaces/{self._api.account.namespace}/pods/{pod}"
                found = await self._api.once("pod_get", "GET", path)
            except KubeError as error:
                if error.status != 404:
                    raise
                return ""
            self._uids[pod] = str(found["metadata"]["uid"])
        return self._uids[pod]

    async def _update(self, series: Series) -> None:
        now = self._clock()
        if series.count == series.sent or now < series.sent_at + UPDATE_S or not self._may(now):
            return
        series.sent_at = now
        patch = {"series": {"count": series.count, "lastObservedTime": _micro()}}
        path = f"/apis/events.k8s.io/v1/namespaces/{series.namespace}/events/{series.name}"
        try:
            await self._api.once("event_patch", "PATCH", path, patch, PATCH)
            series.sent = series.count
        except KubeError as error:
            log.warning("a series of events could not be updated in Kubernetes: %s", error)

    def _may(self, now: float) -> bool:
        """Return whether the budget has room for one more request, and take it."""
        self._room = min(BURST, self._room + (now - self._room_at) * PER_S)
        self._room_at = now
        if self._room < 1:
            return False
        self._room -= 1
        return True

    def _forget(self) -> None:
        now = self._clock()
        over = [event for event, each in self._known.items() if now > each.occurred_at + SERIES_S]
        for event in over[:KNOWN_MAX]:
            del self._known[event]
        while len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
        if len(self._uids) > KNOWN_MAX:
            self._uids.clear()


def _micro() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
