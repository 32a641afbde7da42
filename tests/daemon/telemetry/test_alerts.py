"""Alerts at a real HTTP server that fails, comes back, and takes them; probes at real doors."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from controlplane.core.records.effects import Alert, Probe
from controlplane.daemon.loop.prober import Prober
from controlplane.daemon.telemetry.alerts import Alerts
from controlplane.settings import CoordinatorSettings, SettingsError, check_coordinator
from tests.daemon.rig import Agent, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.daemon.rig import Coordinator

LOST = Alert("nodes_lost", "warning", "", "1 of 3 nodes are lost: c")


class Receiver:
    """An administrators' webhook. While `broken` it answers 500."""

    def __init__(self) -> None:
        self.broken, self.bodies, self.refused = False, list[Any](), 0
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if receiver.broken:
                    receiver.refused += 1
                else:
                    receiver.bodies.append(body)
                self.send_response(500 if receiver.broken else 200)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


@contextlib.asynccontextmanager
async def running(url: str) -> Any:
    counts: list[str] = []
    alerts = Alerts(url, "prod", counts.append)
    task = asyncio.create_task(alerts.run())
    yield alerts, counts
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_told_once_resolved_once(receiver: Receiver) -> None:
    async with running(f"{receiver.url}/hook") as (alerts, counts):
        alerts.take(LOST)
        alerts.take(LOST)
        await until(lambda: len(receiver.bodies) == 1)
        alerts.take(LOST)
        alerts.take(Alert(LOST.kind, LOST.severity, "", LOST.reason, resolved=True))
        await until(lambda: len(counts) == 2)
        alerts.take(Alert("other", "critical", "x", "never stood", resolved=True))
        assert counts == ["sent", "sent"]
    fired, resolved = receiver.bodies
    assert (fired["version"], fired["status"], resolved["status"]) == ("4", "firing", "resolved")
    (alert,) = fired["alerts"]
    assert alert["labels"] == {"alertname": "HoldfastNodesLost", "severity": "warning", "cluster": "prod"}
    assert alert["annotations"]["summary"] == LOST.reason
    assert alert["fingerprint"] == resolved["alerts"][0]["fingerprint"]
    assert alert["startsAt"] == resolved["alerts"][0]["startsAt"] < resolved["alerts"][0]["endsAt"]


async def test_a_webhook_that_fails_is_tried_again(receiver: Receiver) -> None:
    receiver.broken = True
    async with running(f"{receiver.url}/hook") as (alerts, counts):
        alerts.take(LOST)
        await until(lambda: receiver.refused >= 2)
        receiver.broken = False
        await until(lambda: len(receiver.bodies) == 1)
        assert counts.count("failed") >= 2


async def test_a_webhook_that_speaks_no_http_is_tried_again_and_its_token_is_in_no_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heads = []

    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        writer.close()

    server = await asyncio.start_server(babble, "127.0.0.1", 0)
    door = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, running(f"http://me:planted@{door}/planted?token=planted") as (alerts, counts):
        alerts.take(LOST)
        await until(lambda: len(counts) >= 2)
    assert set(counts) == {"failed"}
    assert f"Basic {base64.b64encode(b'me:planted').decode()}" in heads[0]
    assert f"http://{door}/..." in caplog.text and "is not HTTP: BadStatusLine" in caplog.text
    assert "planted" not in caplog.text


@pytest.mark.parametrize(
    "url", ["hooks/planted", "http:///planted", "http://h:planted/", "http://h/pla nted"]
)
def test_a_url_that_is_none_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(SettingsError, match="--alert-webhook") as refused:
        check_coordinator(CoordinatorSettings(alert_webhook=url))
    assert "planted" not in str(refused.value)


async def test_alertmanagers_own_door_gets_its_list(receiver: Receiver) -> None:
    async with running(f"{receiver.url}/api/v2/alerts") as (alerts, _):
        alerts.take(LOST)
        await until(lambda: len(receiver.bodies) == 1)
    ((alert,),) = receiver.bodies
    assert set(alert) == {"labels", "annotations", "startsAt", "generatorURL"}


async def test_without_a_url_nobody_is_told() -> None:
    async with running("") as (alerts, counts):
        alerts.take(LOST)
        await asyncio.sleep(0)
        assert not counts


async def test_probes_at_an_open_and_a_closed_door() -> None:
    events: list[Any] = []
    server = await asyncio.start_server(lambda _r, w: w.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with socket.create_server(("127.0.0.1", 0)) as gone:
        closed = gone.getsockname()[1]
    prober = Prober(events.append)
    async with server:
        prober.probe(Probe(f"127.0.0.1:{port}", "a", 1))
        prober.probe(Probe(f"127.0.0.1:{closed}", "b", 2))
        prober.probe(Probe("no address", "c", 3))
        await until(lambda: len(events) == 3)
    await prober.close()
    answers = {event.node: event for event in events}
    assert answers["a"].answered and not answers["b"].answered and not answers["c"].answered
    assert "Connection refused" in answers["b"].reason


async def test_a_lost_node_is_told_of_by_a_real_coordinator(
    make: Callable[..., Coordinator], cluster: str, receiver: Receiver
) -> None:
    one = await make(
        "a", lease_ttl_s=2.0, node_timeout_s=3.0, retry_s=0.2, alert_webhook=f"{receiver.url}/hook"
    ).start()
    await one.leads()
    async with Agent(one.listen) as agent:
        await agent.hello(cluster)
        await until(lambda: one.samples()['holdfast_cluster_health{state="healthy"}'] == 1)
    await until(lambda: receiver.bodies)
    (alert,) = receiver.bodies[0]["alerts"]
    assert alert["labels"]["cluster"] == cluster
    assert alert["annotations"]["summary"] == "1 of 1 nodes are lost: n1"
    await until(lambda: one.samples()['holdfast_cluster_health{state="critical"}'] == 1)
    async with Agent(one.listen, incarnation=2) as agent:
        await agent.hello(cluster)
        await until(lambda: receiver.bodies[-1]["status"] == "resolved")
