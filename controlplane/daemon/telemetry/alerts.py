"""Post alerts to the operators' webhook as JSON. They are repeated until accepted, and never waited for.

A URL that ends in /api/v2/alerts is Alertmanager's own: it gets Alertmanager's list of alerts, and again
each minute while an alert stands, as Alertmanager expects. Any other URL gets what Alertmanager sends to
webhooks (version 4)."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import datetime
import hashlib
import http.client
import json
import logging
import random
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit, urlunsplit

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.core.records.effects import Alert

ALERTMANAGER_PATH = "/api/v2/alerts"
REPEAT_S = 60.0
"""Seconds after which an alert that stands is repeated. Alertmanager regards an alert as resolved when it is
not repeated within resolve_timeout (5 min)."""
POST_TIMEOUT_S = 4.0
BACKOFF_S = (0.5, 60.0)
"""The first and the longest pause between two tries."""
CONFIRM_S = 150.0
"""Seconds in which a new leader term has to find an alert again; otherwise it counts as over."""
STANDING_MAX = 1000
"""Alerts that are held at once. Of more, the oldest are dropped: so many tell people nothing new."""
log = logging.getLogger(__name__)


@dataclass(slots=True)
class PostedAlert:
    """One alert as it has to be posted. `posted`: the receiver has accepted it in this form."""

    alert: Alert
    starts_at: str
    ends_at: str = ""
    posted: bool = False


def name_of(kind: str) -> str:
    """Return the alert's name: `nodes_lost` is HoldfastNodesLost."""
    return "Holdfast" + "".join(word.capitalize() for word in kind.split("_"))


def document(cluster: str, posted: PostedAlert) -> dict[str, Any]:
    """Return one alert, with the fields of both formats."""
    alert = posted.alert
    labels = {"alertname": name_of(alert.kind), "severity": alert.severity, "cluster": cluster}
    labels |= {"subject": alert.subject} if alert.subject else {}
    labels |= {"training_job": alert.job} if alert.job else {}
    identity = "\x00".join(f"{key}={value}" for key, value in sorted(labels.items()) if key != "severity")
    return {
        "status": "resolved" if alert.resolved else "firing",
        "labels": labels,
        "annotations": {"summary": alert.reason},
        "startsAt": posted.starts_at,
        "endsAt": posted.ends_at or "0001-01-01T00:00:00Z",
        "generatorURL": "",
        "fingerprint": hashlib.blake2b(identity.encode(), digest_size=8).hexdigest(),
    }


def body(url: str, cluster: str, news: list[PostedAlert]) -> bytes:
    """Return what is posted to this URL. Either all of `news` fire, or all are resolved."""
    alerts = [document(cluster, each) for each in news]
    if url.rstrip("/").endswith(ALERTMANAGER_PATH):
        for each in alerts:
            del each["status"], each["fingerprint"]
            if each["endsAt"].startswith("0001"):
                del each["endsAt"]
        return json.dumps(alerts).encode()
    status = alerts[0]["status"]
    return json.dumps(
        {
            "version": "4",
            "groupKey": f'{{}}:{{cluster="{cluster}"}}',
            "truncatedAlerts": 0,
            "status": status,
            "receiver": "holdfast",
            "groupLabels": {"cluster": cluster},
            "commonLabels": {"cluster": cluster},
            "commonAnnotations": {},
            "externalURL": "",
            "alerts": alerts,
        }
    ).encode()


class Alerts:
    """The alerts for one URL. It lives as long as the coordinator: a new leader term continues with it."""

    def __init__(self, url: str, cluster: str, count: Callable[[str], None]) -> None:
        self._url, self._cluster, self._count = url, cluster, count
        self._current: dict[tuple[str, str], PostedAlert] = {}  # by kind and subject
        self._confirmed: set[tuple[str, str]] = set()  # found by the present leader term
        self._wake = asyncio.Event()

    def take(self, alert: Alert) -> None:
        """Queue an alert to be posted. It replaces an earlier one of the same kind and subject; one that is
        unchanged is not posted again."""
        if not self._url:
            return
        key, now = (alert.kind, alert.subject), _now()
        self._confirmed.add(key)
        old = self._current.get(key)
        if old is not None and old.alert == alert:
            return
        if old is None and alert.resolved:
            return
        self._current[key] = PostedAlert(
            alert, old.starts_at if old and not old.alert.resolved else now, now if alert.resolved else ""
        )
        while len(self._current) > STANDING_MAX:
            del self._current[next(iter(self._current))]
        self._wake.set()

    def begin_term(self) -> None:
        """Begin a leader term, which has no findings yet. An alert that it does not find again within
        CONFIRM_S is over."""
        before = [key for key, each in self._current.items() if not each.alert.resolved]
        self._confirmed = set()
        asyncio.get_running_loop().call_later(CONFIRM_S, self._resolve, before)

    def _resolve(self, keys: list[tuple[str, str]]) -> None:
        for key in keys:
            each = self._current.get(key)
            if each is not None and key not in self._confirmed and not each.alert.resolved:
                self.take(dataclasses.replace(each.alert, resolved=True))

    async def run(self) -> None:
        """Post for ever."""
        pause_s = BACKOFF_S[0]
        while True:
            due = [each for each in self._current.values() if not each.posted]
            if due and not await self._post_all(due):
                await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
                pause_s = min(pause_s * 2, BACKOFF_S[1])
                continue
            pause_s = BACKOFF_S[0]
            await self._rest()

    async def _rest(self) -> None:
        """Wait for news. If none comes for REPEAT_S, post all standing alerts to an Alertmanager again."""
        self._wake.clear()
        if any(not each.posted for each in self._current.values()):
            return
        try:
            async with asyncio.timeout(REPEAT_S):
                await self._wake.wait()
        except TimeoutError:
            if self._url.rstrip("/").endswith(ALERTMANAGER_PATH):
                for each in self._current.values():
                    each.posted = False

    async def _post_all(self, due: list[PostedAlert]) -> bool:
        taken = True
        for resolved in (False, True):
            news = [each for each in due if each.alert.resolved is resolved]
            if not news:
                continue
            trouble = await asyncio.to_thread(post, self._url, body(self._url, self._cluster, news))
            self._count("failed" if trouble else "sent")
            if trouble:
                log.warning("alerts cannot be sent to %s, trying again: %s", _door(self._url), trouble)
                taken = False
                continue
            self._taken(news)
        return taken

    def _taken(self, news: list[PostedAlert]) -> None:
        for each in news:
            each.posted = True
            key = (each.alert.kind, each.alert.subject)
            if each.alert.resolved and self._current.get(key) is each:
                del self._current[key]


def post(url: str, content: bytes) -> str:
    """Post JSON; `user:password@` before the host becomes basic authentication. Return "" when
    accepted, else why not."""
    parts, headers = urlsplit(url), {"Content-Type": "application/json"}
    user, _, host = parts.netloc.rpartition("@")
    if user:
        headers["Authorization"] = f"Basic {base64.b64encode(unquote(user).encode()).decode()}"
    place = urlunsplit(parts._replace(netloc=host))
    request = urllib.request.Request(place, content, headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=POST_TIMEOUT_S) as answer:
            answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return f"HTTP {error.code}: {error.reason}"
    except (OSError, ValueError) as error:
        return str(getattr(error, "reason", error)) or type(error).__name__
    except http.client.HTTPException as error:
        return f"its answer is not HTTP: {type(error).__name__}"
    return ""


def _door(url: str) -> str:
    """Return scheme, host and port of a URL for the log: its other parts may hold a token."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/..."


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat().replace("+00:00", "Z")
