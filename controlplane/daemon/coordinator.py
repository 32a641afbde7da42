"""Run one coordinator process, from its settings to its exit code."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import os
import signal
import socket
import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import uvloop

from controlplane.access.authentication import authenticator_of
from controlplane.access.tls import TlsFiles
from controlplane.access.tokens import Tokens
from controlplane.core.records.effects import Effect
from controlplane.core.records.events import Event
from controlplane.core.records.timing import CoreSettings
from controlplane.daemon.etcd.client import Etcd
from controlplane.daemon.etcd.election import Election
from controlplane.daemon.etcd.errors import EtcdError, EtcdUnavailable
from controlplane.daemon.etcd.keyspace import Keyspace
from controlplane.daemon.etcd.lease_keeper import WEDGED_TTLS
from controlplane.daemon.journal.journal import Journal
from controlplane.daemon.journal.recording import Bounds
from controlplane.daemon.journal.rotation import FileLimits
from controlplane.daemon.kube.platform import Platform
from controlplane.daemon.leadership.identity import Identity
from controlplane.daemon.leadership.standby import Standby
from controlplane.daemon.loop import garbage
from controlplane.daemon.loop.event_loop import CoordinatorLoop
from controlplane.daemon.loop.hang_watch import ends_when_it_hangs
from controlplane.daemon.page.server import Page
from controlplane.daemon.server import open_files
from controlplane.daemon.server.context import ServerContext
from controlplane.daemon.server.health import HealthServer
from controlplane.daemon.server.ports import PortTaken, Server
from controlplane.daemon.telemetry.alerts import Alerts
from controlplane.daemon.telemetry.incident_spans import Spans
from controlplane.daemon.telemetry.metrics import Metrics
from controlplane.daemon.telemetry.metrics_server import MetricsServer, watch_lag
from controlplane.setting import check_dialled
from controlplane.settings import SettingsError, check_coordinator, host_port, is_loopback
from controlplane.wire.shape import learn
from holdfast import removal
from holdfast.logs import set_up

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from controlplane.access.authentication import Authenticator
    from controlplane.settings import CoordinatorSettings

log = logging.getLogger(__name__)

EXIT_OK = 0
EXIT_FAILED = 1
"""Exit code when a port is taken, or when etcd cannot be used. The log says why, and what to do."""

HANG_TTLS = WEDGED_TTLS + 1.0
"""An event loop that has not turned for so many TTLs has lost its lease: no more is lost with its process."""

ETCD_TRY_S = 3.0
"""Seconds that one attempt to reach etcd may take at the start, and seconds between two attempts."""


def serve(settings: CoordinatorSettings) -> int:
    """Run until SIGTERM or SIGINT. Return the exit code. Raises SettingsError on invalid settings."""
    set_up(settings.log_format, cluster=settings.cluster)
    open_files.raise_limit()
    return uvloop.run(_watched(settings), loop_factory=CoordinatorLoop)


async def _watched(settings: CoordinatorSettings) -> int:
    async with ends_when_it_hangs(HANG_TTLS * settings.lease_ttl_s):
        return await run(settings)


async def run(settings: CoordinatorSettings) -> int:
    """Do the same as `serve`, within a running event loop."""
    check_coordinator(settings)
    try:
        await _serve(settings, _stop_on_signal())
    except (PortTaken, EtcdError, OSError) as error:
        log.error("%s", error)
        return EXIT_FAILED
    return EXIT_OK


async def _serve(settings: CoordinatorSettings, stop: asyncio.Event) -> None:
    """Bind all ports, then stand for election until `stop` is set. Undo it all in reverse order."""
    garbage.look_at_young_objects()
    learn((*get_args(Event), *get_args(Effect)))
    async with contextlib.AsyncExitStack() as stack:
        journal = _open_journal(settings)
        stack.push_async_callback(journal.close)
        metrics = Metrics(version("holdfast"))
        metrics_address = _start_metrics(settings, metrics, stack)
        front = ServerContext(settings.cluster, journal, metrics)
        front.relay_beats_from = settings.relay_beats_from
        host, port = host_port("--listen", settings.listen)
        if settings.advertise:
            check_dialled("--advertise", settings.advertise)
        tls = TlsFiles() if settings.private else TlsFiles.of(settings)
        tokens = Tokens(settings.tokens) if settings.tokens and not settings.private else None
        _warn_open(settings, tls, tokens)
        asks = authenticator_of(settings.cluster, settings, certificates=tls.verifies, tokens=tokens)
        server = Server(front, host, port, tls, asks)
        stack.push_async_callback(server.close)
        stack.callback(journal.release)
        alerts = front.alerts = Alerts(settings.alert_webhook, settings.cluster, metrics.saw_alert)
        front.spans = _start_traces(settings, stack)
        front.platform = Platform.of(settings, metrics.saw_kubernetes)
        if front.platform is not None:
            stack.push_async_callback(front.platform.close)
        front.address = settings.advertise or f"{_reachable(host)}:{server.port}"
        front.page = await _start_page(settings, front, tls, asks, stack)
        await server.start()
        await _start_health(settings, server, stack)
        listen = f"{_reachable(host)}:{server.port}"
        _write_address(settings.address_file, stack, listen=listen, metrics=metrics_address, page=front.page)
        log.info("cluster %s: listening on %s, metrics on %s", settings.cluster, listen, metrics_address)
        etcd = await stack.enter_async_context(Etcd.of(settings, private=settings.etcd_private))
        etcd.observed = metrics.saw_etcd
        works = [_campaign(settings, etcd, front), watch_lag(metrics), front.watch_line(), alerts.run()]
        works += [front.platform.run()] if front.platform is not None else []
        await _until(stop, works)


async def _campaign(settings: CoordinatorSettings, etcd: Etcd, front: ServerContext) -> None:
    """Wait for a usable etcd, then stand for election and lead, again and again."""
    await _usable(etcd, settings)
    keys = Keyspace(settings.cluster)
    own = Identity.own(front.address, front.page, settings)
    election = Election(etcd, keys, own.to_bytes(), ttl_s=settings.lease_ttl_s)
    await Standby(etcd, election, keys, front, core_settings(settings), own=own, diagnosis=settings).run()


async def _usable(etcd: Etcd, settings: CoordinatorSettings) -> None:
    """Return once etcd answers. Raises the errors that waiting cannot change: EtcdNotEtcd, EtcdAuth,
    EtcdVersion."""
    while True:
        try:
            async with asyncio.timeout(ETCD_TRY_S):
                log.info("etcd %s at %s", await etcd.check(), settings.etcd)
            return
        except TimeoutError:
            log.error(
                "etcd at %s does not answer: start it, or give another --etcd; trying again", settings.etcd
            )
        except EtcdUnavailable as error:
            log.error("etcd cannot be reached, trying again: %s", error)
            await asyncio.sleep(ETCD_TRY_S)


async def _until(stop: asyncio.Event, works: list[Coroutine[Any, Any, None]]) -> None:
    """Run all of these until `stop` is set. Raises the error by which one of them ends before."""
    tasks = [asyncio.ensure_future(work) for work in works]
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([stopped, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for each in [stopped, *tasks]:
            each.cancel()
        await asyncio.gather(stopped, *tasks, return_exceptions=True)


def core_settings(settings: CoordinatorSettings) -> CoreSettings:
    """Return the core's share of the settings: the fields of the same name."""
    names = {field.name for field in dataclasses.fields(settings)}
    shared = [field.name for field in dataclasses.fields(CoreSettings) if field.name in names]
    return CoreSettings(**{name: getattr(settings, name) for name in shared})


def _open_journal(settings: CoordinatorSettings) -> Journal:
    path, limits = settings.journal, FileLimits(settings.journal_bytes, settings.journal_files)
    bounds = Bounds(settings.recording_bytes, settings.recordings)
    try:
        return Journal(Path(path) if path else None, limits, bounds)
    except OSError as error:
        raise SettingsError(
            f"--journal {path} cannot be written: {error.strerror}; give another file"
        ) from error


def _start_metrics(settings: CoordinatorSettings, metrics: Metrics, stack: contextlib.AsyncExitStack) -> str:
    """Serve /metrics. Return its address; "" when it is not wanted."""
    if not settings.metrics:
        return ""
    host, port = host_port("--metrics", settings.metrics)
    try:
        server = MetricsServer(metrics, host, port)
    except OSError as error:
        raise PortTaken(
            f"cannot serve metrics on {settings.metrics}: {error.strerror}; give another --metrics"
        ) from error
    stack.callback(server.close)
    return f"{_reachable(host)}:{server.port}"


async def _start_page(
    settings: CoordinatorSettings,
    front: ServerContext,
    tls: TlsFiles,
    asks: Authenticator,
    stack: contextlib.AsyncExitStack,
) -> str:
    """Serve the status page. Return its URL; "" when it is not wanted."""
    if not settings.page:
        return ""
    host, port = host_port("--page", settings.page)
    try:
        page = Page(front, (host, port), tls, asks, public=settings.page_public)
    except OSError as error:
        raise PortTaken(
            f"cannot serve the page on {settings.page}: {error.strerror}; give another --page"
        ) from error
    stack.push_async_callback(page.close)
    page.start()
    url = f"{'https' if tls.serves else 'http'}://{_reachable(host)}:{page.port}/"
    log.info("status page: %s", url)
    if not is_loopback(host) and not tls.serves:
        log.warning("--page %s is plaintext, even logins: give --tls-cert and --tls-key", settings.page)
    return url


def _start_traces(settings: CoordinatorSettings, stack: contextlib.AsyncExitStack) -> Spans | None:
    """Send traces of incidents, if they are wanted. Only then OpenTelemetry is imported."""
    if not settings.otlp_endpoint:
        return None
    from controlplane.daemon.telemetry.otlp import Exporter

    exporter = Exporter(settings.otlp_endpoint, settings.cluster)
    stack.push_async_callback(exporter.close)
    return Spans(exporter.send, time.time)


def _warn_open(settings: CoordinatorSettings, tls: TlsFiles, tokens: Tokens | None) -> None:
    """Warn when the port is plaintext, or authenticates nobody."""
    if settings.private:
        return
    if not tls.serves:
        log.warning("--listen %s is plaintext: give --tls-cert, --tls-key and --tls-ca", settings.listen)
    if not tls.verifies and tokens is None:
        log.warning("callers of %s are not authenticated: give --tls-ca or --tokens", settings.listen)


async def _start_health(
    settings: CoordinatorSettings, server: Server, stack: contextlib.AsyncExitStack
) -> None:
    """Answer health probes on a port of their own, if that is wanted."""
    if not settings.health:
        return
    host_port("--health", settings.health)
    try:
        health = HealthServer(server.health, settings.health)
    except RuntimeError as error:
        raise PortTaken(f"cannot answer probes on {settings.health}: give another --health") from error
    stack.push_async_callback(health.close)
    await health.start()


def _reachable(host: str) -> str:
    """Return the host by which others reach a listener: this machine's name when it listens everywhere."""
    host = socket.gethostname() if host in ("0.0.0.0", "::") else host
    return f"[{host}]" if ":" in host else host


def _write_address(path: str, stack: contextlib.AsyncExitStack, **addresses: str) -> None:
    """Write the addresses in use to a file, whole or not at all. The file is removed at the end."""
    if not path:
        return
    document = json.dumps({**addresses, "pid": os.getpid()})
    fresh = Path(f"{path}.{os.getpid()}")
    try:
        fresh.write_text(document)
        fresh.replace(path)
    except OSError as error:
        raise SettingsError(
            f"--address-file {path} cannot be written: {error.strerror}; give another file"
        ) from error
    stack.callback(removal.written, Path(path), document.encode())


def _stop_on_signal() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop
