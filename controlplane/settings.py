"""The settings of both daemons: frozen dataclasses, every field with its unit, default and reason.

The command line makes its flags from these (`heartbeat_s` becomes `--heartbeat-s`)."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from controlplane import contradictions
from controlplane.kube_settings import KubeSettings
from controlplane.port_settings import PortSettings, check_port
from controlplane.setting import SettingsError, check, check_word, coordinators, host_port, setting
from controlplane.storage_settings import StorageSettings, check_storages

__all__ = ["SettingsError", "check", "check_word", "coordinators", "host_port", "setting"]

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
"""What names of clusters, nodes and jobs look like."""

_PEER_RATE_MIN = 1 << 20  # a block per second


LOG_FORMATS = ("text", "json")


def check_name(kind: str, name: str) -> None:
    """Raise SettingsError when `name` cannot name a cluster, a node or a job."""
    if not NAME.fullmatch(name):
        raise SettingsError(
            f"{kind} name {name!r} will not do: letters, digits, '.', '_' and '-', 63 at most, "
            "the first a letter or a digit"
        )


@dataclass(frozen=True)  # without slots: it is a second base
class TlsSettings:
    """What proves who we are on a gRPC port. The environment can say each, too: HOLDFAST_TLS_CERT ..."""

    tls_cert: str = setting(
        "", "PEM file of our certificate, read anew when it changes; empty: none", env=True
    )
    tls_key: str = setting("", "PEM file of its key", env=True)
    tls_ca: str = setting(
        "",
        "PEM file of the authority whose certificates we believe; a server with one asks for them",
        env=True,
    )
    insecure: bool = setting(
        False, "plaintext, and nobody asked who they are, on addresses that others can reach", env=True
    )
    private: bool = setting(
        False, "a laptop's own cluster on loopback: no TLS, no tokens, whatever the environment says"
    )


@dataclass(frozen=True)
class CallerSettings(TlsSettings):
    """What we show when we call, and whom we expect to answer."""

    tls_name: str = setting(
        "", "name in the certificates of those we call; empty: the host that we call", env=True
    )
    token_file: str = setting("", "file of our bearer token; empty: HOLDFAST_TOKEN, if set", env=True)


@dataclass(frozen=True, slots=True)
class EtcdSettings:
    """How to reach etcd."""

    etcd: str = setting("127.0.0.1:2379", "etcd endpoints, host:port, comma separated")
    etcd_ca: str = setting("", "PEM file of the authority that signed etcd's certificate; empty: no TLS")
    etcd_cert: str = setting("", "PEM file of our client certificate")
    etcd_key: str = setting("", "PEM file of its key")
    etcd_user: str = setting("", "etcd user")
    etcd_password_file: str = setting("", "file that holds the etcd password")
    etcd_private: bool = setting(
        False, "this etcd is a laptop's own: versions unfit for production earn a warning only"
    )


@dataclass(frozen=True, slots=True)
class CoordinatorSettings(EtcdSettings, KubeSettings, TlsSettings, PortSettings):
    """One coordinator process."""

    cluster: str = setting("default", "name of the cluster; agents must name the same")
    listen: str = setting("127.0.0.1:7070", "host:port for agents and tools; port 0 takes a free one")
    tokens: str = setting(
        "", "file of the tokens' digests and roles (docs/security.md), read anew when it changes; empty: none"
    )
    health: str = setting(
        "", "host:port that answers grpc.health.v1 in plaintext, nothing else, for probes; empty: none"
    )
    advertise: str = setting("", "host:port that others reach it at; empty: the listen address")
    metrics: str = setting("127.0.0.1:0", "host:port of /metrics; port 0 takes a free one, empty: none")
    page: str = setting("127.0.0.1:0", "host:port of the status page; port 0 takes a free one, empty: none")
    page_public: bool = setting(
        False, "the page shows the cluster also to those who have not logged in; acting takes a login"
    )
    log_format: str = setting("text", "of log lines: text for people, json for machines", words=LOG_FORMATS)
    journal: str = setting("", "JSON lines file of every event, effect and decision; empty: none")
    journal_bytes: int = setting(
        32 << 20,
        "a journal of this size gets a number (FILE.000001), and another one is begun; 0: it grows for ever",
        unit="bytes",
        minimum=0,
    )
    journal_files: int = setting(8, "so many journals with numbers stay, besides the one written", minimum=1)
    recording_bytes: int = setting(
        32 << 20,
        "most that is recorded of one reign beside the journal, for `holdfast replay`",
        unit="bytes",
        minimum=1 << 16,
    )
    recordings: int = setting(4, "reigns whose recordings stay", minimum=1)
    overdue_after_s: float = setting(
        30.0,
        "snapshots and checkpoints of a training job are overdue, and mended, after this at the earliest",
        unit="s",
        minimum=1,
    )
    address_file: str = setting("", "file to write the bound addresses to, as JSON, once serving")
    lease_ttl_s: float = setting(
        10.0, "a leader that etcd has not heard of for so long is replaced", unit="s", minimum=2
    )
    node_timeout_s: float = setting(30.0, "a node silent for so long is lost", unit="s", minimum=1)
    stop_timeout_s: float = setting(
        30.0, "a survivor that does not stop within this is killed", unit="s", minimum=1
    )
    form_timeout_s: float = setting(
        60.0, "a member that does not form and restore within this is killed", unit="s", minimum=1
    )
    retry_s: float = setting(
        1.0, "an order whose effect is not seen is repeated after this", unit="s", minimum=0.1
    )
    broken_grace_s: float = setting(
        6.0, "a broken collective without a dead member re-forms after this", unit="s", minimum=0
    )
    join_grace_s: float = setting(
        10.0, "with the minimum of nodes there, wait so long for more", unit="s", minimum=0
    )
    shrink_after_s: float = setting(
        5.0,
        "a job waits so long for a lost node, or another, before it goes on with fewer",
        unit="s",
        minimum=0,
    )
    grow_after_s: float = setting(
        10.0, "a node must have stood for so long before a job grows onto it", unit="s", minimum=0
    )
    resize_every_s: float = setting(
        30.0, "planned changes of a job's places are so far apart", unit="s", minimum=0
    )
    launch_timeout_s: float = setting(
        120.0, "a launcher that has not started a process within this is silent", unit="s", minimum=1
    )
    mass_loss_ratio: float = setting(
        0.3,
        "when more of the nodes than this fall silent within one node timeout, no node is given up before "
        "each was asked directly; 1: never. Fewer than 4 nodes know no mass loss",
        minimum=0,
    )
    brake_max_s: float = setting(
        30.0, "for so long at most, decisions are paused by a mass loss", unit="s", minimum=1
    )
    lemon_score: float = setting(
        3.0, "a node whose failures weigh more than this is the last choice for seats", minimum=0.1
    )
    quarantine_s: float = setting(86400.0, "for so long it is", unit="s", minimum=1)
    pause_when_critical: bool = setting(False, "start nothing new while the cluster's health is critical")
    alert_webhook: str = setting(
        "",
        "URL that is told of the cluster's health: Alertmanager's own (.../api/v2/alerts), or one that takes "
        "what Alertmanager sends to webhooks; say one with a token in it by HOLDFAST_ALERT_WEBHOOK, since "
        "others see command lines; empty: nobody",
        env=True,
    )
    otlp_endpoint: str = setting(
        "",
        "URL of an OTLP/HTTP collector that gets a trace of each incident, as http://collector:4318; needs "
        "the extra `otel`; empty: none",
        env=True,
    )


@dataclass(frozen=True, slots=True)
class AgentSettings(CallerSettings, PortSettings, StorageSettings):
    """One agent process, beside one node."""

    tls_peer_name: str = setting(
        "", "name in the certificates of other agents; empty: the host of their address", env=True
    )

    cluster: str = setting("default", "name of the cluster; the coordinator must name the same")
    coordinator: str = setting("127.0.0.1:7070", "coordinators, host:port, comma separated")
    node: str = setting("", "name of this node; empty: the host name")
    address: str = setting(
        "",
        "host or IP that other nodes' ranks reach this node at; empty: found by the route to the coordinator",
    )
    slots: int = setting(0, "ranks this node can hold; 0: one per device, else one per core", minimum=0)
    run_dir: str = setting("", "folder for sockets, logs and pid files; empty: /tmp/holdfast-<uid>")
    shm_dir: str = setting("/dev/shm", "folder in memory for snapshots and boards")
    metrics: str = setting("127.0.0.1:0", "host:port of /metrics; port 0 takes a free one, empty: none")
    log_format: str = setting("text", "of log lines: text for people, json for machines", words=LOG_FORMATS)
    address_file: str = setting("", "file to write the bound addresses to, as JSON, once running")
    beat_interval_s: float = setting(1.0, "how often ranks and the agent beat", unit="s", minimum=0.05)
    process_timeout_s: float = setting(5.0, "a rank silent for so long is dead", unit="s", minimum=0.2)
    device_timeout_s: float = setting(
        10.0, "a device that its sensor calls bad, or cannot read, for so long is bad", unit="s", minimum=0.2
    )
    hang_floor_s: float = setting(
        60.0, "a rank is not called hung before so long without progress", unit="s", minimum=0.1
    )
    hang_first_s: float = setting(
        1800.0,
        "the same for the first step of a job, while nothing is known of its pace",
        unit="s",
        minimum=0.1,
    )
    hang_factor: float = setting(
        10.0,
        "a rank without progress for so many times as long as its steps usually take is hung; 0: never",
        unit="times",
        minimum=0,
    )
    fence_after_s: float = setting(
        120.0,
        "ranks stop when no coordinator could be heard for so long, and none was found to be down: another "
        "node may have their seats by then; 0: never",
        unit="s",
        minimum=0,
    )
    orphan_timeout_s: float = setting(
        60.0, "a launcher without an agent for so long ends its ranks", unit="s", minimum=1
    )
    own_launcher: bool = setting(
        True, "start a launcher when none runs; off where `holdfast exec` is it, in a container of its own"
    )
    drain_grace_s: float = setting(
        20.0,
        "after SIGTERM, ranks have so long to go elsewhere before the node ends; 0: it ends at once",
        unit="s",
        minimum=0,
    )
    show_output: bool = setting(True, "copy the ranks' output to standard output, prefixed")
    show_tracebacks: bool = setting(
        True, "copy also the traceback that ends a script; off where the job's end tells it anyway"
    )
    ledger: str = setting("", "folder where ranks write which samples each step consumed; empty: none")
    upload_bytes_per_s: int = setting(
        0,
        "most that this node writes to storages, all uploads together; 0: unlimited",
        unit="bytes/s",
        minimum=0,
    )
    storage_deadline_s: float = setting(
        300.0, "a storage that does not answer, retries included, for so long has failed", unit="s", minimum=1
    )
    scrub_bytes_per_s: int = setting(
        64 << 20,
        "most that the background reading of checkpoints takes; 0: unlimited",
        unit="bytes/s",
        minimum=0,
    )
    jobs: str = setting(
        "",
        "jobs whose ranks this node takes, comma separated; empty: all that our certificate speaks for",
    )
    domain: str = setting(
        "", "what this node fails together with (a rack, a power feed); empty: the node is its own"
    )
    peer_listen: str = setting(
        "",
        "host:port where other agents leave copies of their snapshots; port 0 takes a free one; "
        "empty: the node's address, a free port",
    )
    peer_bytes_per_s: int = setting(
        0,
        "most that this node sends of its snapshots to other nodes; 0: unlimited",
        unit="bytes/s",
        minimum=0,
    )
    peer_timeout_s: float = setting(
        10.0, "an agent that is silent for so long in the midst of a copy ends it", unit="s", minimum=1
    )


def check_coordinator(settings: CoordinatorSettings) -> None:
    """Raise SettingsError on values that cannot be, alone or together."""
    check(settings)
    check_name("cluster", settings.cluster)
    check_exposed("--listen", settings.listen.rpartition(":")[0], settings)
    if settings.page:
        check_exposed("--page", settings.page.rpartition(":")[0], settings)
    _check_tls(settings, settings.tokens)
    check_port(settings, asks=not settings.private and bool(_asks(settings) or settings.tokens))
    _agree(contradictions.COORDINATOR, settings)
    if settings.mass_loss_ratio > 1:
        raise SettingsError(
            f"--mass-loss-ratio {settings.mass_loss_ratio} is no part of the nodes: give 0 to 1 (1: never)"
        )
    _check_url("--alert-webhook", settings.alert_webhook)
    _check_url("--otlp-endpoint", settings.otlp_endpoint)


def _check_url(flag: str, url: str) -> None:
    """Its value is not told: there may be a token in it."""
    if not url:
        return
    if not url.startswith(("http://", "https://")):
        raise SettingsError(f"{flag} is no URL: give one that begins with http:// or https://")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise SettingsError(f"{flag} has a blank or another character in it that no URL has: write it as %XX")
    try:
        named = bool(urlsplit(url).hostname and urlsplit(url).port != 0)
    except ValueError:
        named = False
    if not named:
        raise SettingsError(f"{flag} names no host, or a port that is none: give http://host:port/...")


def check_agent(settings: AgentSettings) -> None:
    """Raise SettingsError on values that cannot be, alone or together."""
    check(settings)
    check_name("cluster", settings.cluster)
    if settings.node:
        check_name("node", settings.node)
    coordinators(settings.coordinator)
    if settings.domain:
        check_name("failure domain", settings.domain)
    for job in filter(None, settings.jobs.split(",")):
        check_name("job", job)
    for flag, address in (("--peer-listen", settings.peer_listen), ("--metrics", settings.metrics)):
        if address:
            host_port(flag, address)
    if 0 < settings.peer_bytes_per_s < _PEER_RATE_MIN:
        raise SettingsError(
            f"--peer-bytes-per-s {settings.peer_bytes_per_s} would look like silence to a partner: "
            f"give {_PEER_RATE_MIN} or more, or 0 for no limit"
        )
    _check_tls(settings)
    check_port(settings, asks=not settings.private and _asks(settings))
    check_storages(settings)
    _agree(contradictions.AGENT, settings)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches this host."""
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def check_exposed(flag: str, host: str, settings: TlsSettings) -> None:
    """Raise SettingsError when others would reach a plaintext port that nobody asked for by name."""
    if is_loopback(host) or (settings.insecure and not settings.private):
        return
    if settings.private:
        raise SettingsError(f"{flag} {host} can be reached by others: with --private only loopback will do")
    if not settings.tls_cert:
        raise SettingsError(
            f"{flag} {host} can be reached by others, and anyone there could run programs here: give "
            "--tls-cert, --tls-key and --tls-ca, or listen on 127.0.0.1, or say --insecure"
        )


def _asks(settings: TlsSettings) -> bool:
    return bool(settings.tls_cert and settings.tls_ca)


def _check_tls(settings: TlsSettings, tokens: str = "") -> None:
    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise SettingsError("--tls-cert and --tls-key belong together: give both, or neither")
    if settings.tls_cert and not (settings.tls_ca or tokens or settings.insecure):
        raise SettingsError(
            "with --tls-cert alone nobody is asked who they are: give --tls-ca or --tokens, or say --insecure"
        )


def _agree(rules: tuple[contradictions.Rule, ...], settings: Any) -> None:
    reason = contradictions.contradiction(rules, settings)
    if reason:
        raise SettingsError(f"{reason} (timeouts that race each other kill jobs)")
