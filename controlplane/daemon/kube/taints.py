"""Watch the hosts, and drain the nodes on one that is cordoned, or tainted so that pods must leave.

A pod that is evicted for a taint gets SIGTERM in the end anyway. This is earlier: the ranks move to other
nodes while the host still lives."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import logging
import random
import socket
import ssl
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from controlplane.core.records.events import CordonRequested, DrainRequested
from controlplane.daemon.kube.api import BACKOFF_S, NONSENSE, TRY_S, KubeError, understood

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.core.records.events import Event
    from controlplane.daemon.kube.api import Api

PATH = "/api/v1/nodes"
GONE = 410
WATCH_S = 240
SILENT_S = 300.0
"""A connection without any data for this long is dead: the API itself ends a watch after WATCH_S."""
LINE_BYTES_MAX = 4 << 20
DRAIN_S = 300.0
"""Seconds for ranks to reach a step boundary and move to other nodes; then they move as if
the node were lost."""
OURS = "its host is "
"""The beginning of the reasons for our own drains."""
UNREACHABLE = ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready")
"""Taints of a silent host. They are ignored: our own heartbeats show silence sooner."""
log = logging.getLogger(__name__)


def why(host: dict[str, Any]) -> str:
    """Return why pods should leave this host; "" when they may stay."""
    spec = host.get("spec", {})
    for taint in spec.get("taints") or ():
        if taint.get("key") in UNREACHABLE or taint.get("effect") != "NoExecute":
            continue
        return f"{OURS}tainted {taint.get('key')}={taint.get('value', '')}:NoExecute"
    return f"{OURS}cordoned" if spec.get("unschedulable") else ""


class HostWatch:
    """Requests a drain of every node on a host that pods should leave, and withdraws it when they may stay
    again.

    `nodes(host)` returns the names of the host's nodes and why each is cordoned. `drain_s`:
    deadline of a drain."""

    def __init__(
        self,
        api: Api,
        post: Callable[[Event], None],
        nodes: Callable[[str], list[tuple[str, str]]],
        drain_s: float = DRAIN_S,
    ) -> None:
        self._api, self._post, self._nodes, self._drain_s = api, post, nodes, drain_s
        self._hosts: dict[str, str] = {}  # by host: why pods should leave it; "": they may stay
        self._reader: HostReader | None = None

    async def run(self) -> None:
        """List the hosts, then watch them, for ever; after an error again, with jitter."""
        pause_s = BACKOFF_S[0]
        try:
            while True:
                try:
                    await self._follow(await self._list())
                    pause_s = BACKOFF_S[0]
                except KubeError as error:
                    if error.status != GONE:
                        log.warning("hosts cannot be watched, trying again: %s", error)
                except NONSENSE as error:
                    log.warning("the API sent invalid data about hosts, trying again: %r", error)
                await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
                pause_s = min(pause_s * 2, BACKOFF_S[1])
        finally:
            self._hang_up()

    async def _list(self) -> str:
        document = await self._api.get("nodes_list", PATH)
        self._hosts = {}
        for each in document.get("items", ()):
            self._take({"type": "ADDED", "object": each})
        return str(document.get("metadata", {}).get("resourceVersion", ""))

    async def _follow(self, version: str) -> None:
        """Follow one watch to its end. Raises KubeError; the status GONE means that the hosts have to
        be listed again."""
        query = {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": WATCH_S}
        path = f"{PATH}?{urlencode({**query, 'resourceVersion': version})}"
        self._reader = reader = HostReader(self._api, path)
        try:
            while (change := await reader.lines.get()) is not None:
                if isinstance(change, KubeError):
                    raise change
                self._take(change)
        finally:
            self._hang_up()

    def _take(self, change: dict[str, Any]) -> None:
        """Take in one change of the watch. Raises KubeError when it says that the watch is over."""
        if change.get("type") == "ERROR":
            status = change.get("object", {})
            raise KubeError(int(status.get("code", 0)), str(status.get("message", "")))
        if change.get("type") not in ("ADDED", "MODIFIED", "DELETED"):
            return
        name = str(change["object"]["metadata"]["name"])
        reason = "" if change["type"] == "DELETED" else why(change["object"])
        before = self._hosts.get(name)
        self._hosts[name] = reason
        if reason != before:
            self._log_change(name, reason)

    def _log_change(self, host: str, reason: str) -> None:
        for node, cordoned in self._nodes(host):
            ours = cordoned.startswith(f"drained: {OURS}")
            if reason and not ours:
                log.info("node %s is drained: %s", node, reason)
                self._post(DrainRequested(node, reason, self._drain_s))
            elif ours and not reason:
                self._post(CordonRequested(node, False, f"host {host} takes pods again"))

    def _hang_up(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.end()


class HostReader:
    """Reads one watch in a thread of its own. `lines` gets each change, a KubeError if one occurs, and
    None at the end."""

    def __init__(self, api: Api, path: str) -> None:
        self.lines: asyncio.Queue[Any] = asyncio.Queue()
        self._api, self._path, self._loop = api, path, asyncio.get_running_loop()
        self._connection: http.client.HTTPSConnection | None = None
        self._door: socket.socket | None = None  # set after the handshake: ssl leaks one that fails in it
        self._over = False
        threading.Thread(target=self._run, name="kube-watch", daemon=True).start()

    def end(self) -> None:
        """Make the thread return."""
        self._over = True
        if (door := self._door) is not None:  # the thread closes it
            with contextlib.suppress(OSError):
                door.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        try:
            self._read()
        except KubeError as error:
            self._say(error)
        except (OSError, http.client.HTTPException, ssl.SSLError, ValueError) as error:
            self._say(KubeError(0, str(error) or type(error).__name__))
        finally:
            if self._connection is not None:
                self._connection.close()
            self._say(None)

    def _read(self) -> None:
        self._connection = connection = self._api.connect(TRY_S)
        connection.connect()
        self._door = connection.sock
        if self._over:
            return
        self._door.settimeout(SILENT_S)
        connection.request("GET", self._path, headers=self._api.headers())
        with connection.getresponse() as response:  # by now only the response may hold the socket
            if response.status != http.client.OK:
                understood(response.status, dict(response.headers), response.read(LINE_BYTES_MAX))
            while not self._over and (line := response.readline(LINE_BYTES_MAX)):
                if line.strip():
                    self._say(json.loads(line))

    def _say(self, each: Any) -> None:
        if not self._over:
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                self._loop.call_soon_threadsafe(self.lines.put_nowait, each)
