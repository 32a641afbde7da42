"""Declare the settings of both daemons: frozen dataclasses, every field with default, unit and help text.

The command line makes its flags from the fields (`lease_ttl_s` becomes `--lease-ttl-s`)."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from controlplane import timeout_constraints
from controlplane.decision_settings import DecisionSettings
from controlplane.diagnosis_settings import DiagnosisSettings
from controlplane.kube_settings import KubeSettings
from controlplane.port_settings import PortSettings, check_port
from controlplane.scale_settings import ScaleSettings
from controlplane.setting import SettingsError, check, coordinators, host_port, setting
from controlplane.storage_settings import StorageSettings, check_storages

__all__ = ["SettingsError", "check", "coordinators", "host_port", "setting"]

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
"""The pattern of every name of a cluster, a node or a job."""

_PEER_RATE_MIN = 1 << 20  # one block of a copy (agent/peers/blocks.py) per second


LOG_FORMATS = ("text", "json")


def check_name(kind: str, name: str) -> None:
    """Raise SettingsError when `name` is not a valid name for a cluster, a node or a job."""
    if not NAME.fullmatch(name):
        raise SettingsError(
            f"{kind} name {name!r} is invalid: use letters, digits, '.', '_' and '-', 63 at most, "
            "the first a letter or a digit"
        )


@dataclass(frozen=True)  # no slots: two bases with slots cannot be combined
class TlsSettings:
    """How a gRPC port is protected. Environment variables can set the fields with `env` too:
    HOLDFAST_TLS_CERT ..."""

    tls_cert: str = setting(
        "", "PEM file of this process's certificate, read again when it changes; empty: none", env=True
    )
    tls_key: str = setting("", "PEM file of the certificate's key", env=True)
    tls_ca: str = setting(
        "",
        "PEM file of the trusted certificate authority; a server that has one demands client certificates",
        env=True,
    )
    insecure: bool = setting(
        False, "allow plaintext without authentication on addresses that other machines can reach", env=True
    )
    private: bool = setting(
        False, "a private cluster on loopback: no TLS and no tokens, even if environment variables set them"
    )


@dataclass(frozen=True)
class CallerSettings(TlsSettings):
    """Credentials of a client, and the server that it expects."""

    tls_name: str = setting(
        "", "name to expect in the server's certificate; empty: the host in its address", env=True
    )
    token_file: str = setting(
        "", "file with the bearer token to send; empty: the variable HOLDFAST_TOKEN, if set", env=True
    )


@dataclass(frozen=True, slots=True)
class EtcdSettings:
    """The connection to etcd."""

    etcd: str = setting("127.0.0.1:2379", "addresses of etcd, host:port, comma separated")
    etcd_ca: str = setting("", "PEM file of the authority that signed etcd's certificate; empty: no TLS")
    etcd_cert: str = setting("", "PEM file of the client certificate for etcd")
    etcd_key: str = setting("", "PEM file of the key of --etcd-cert")
    etcd_user: str = setting("", "user name for etcd")
    etcd_password_file: str = setting("", "file with the password of --etcd-user")
    etcd_private: bool = setting(
        False, "this etcd is private: only warn about versions that can lose writes, instead of refusing them"
    )


@dataclass(frozen=True, slots=True)
class CoordinatorSettings(
    EtcdSettings, KubeSettings, TlsSettings, PortSettings, DecisionSettings, DiagnosisSettings, ScaleSettings
):
    """The settings of one coordinator process."""

    cluster: str = setting("default", "name of the cluster; its agents must use the same")
    listen: str = setting(
        "127.0.0.1:7070", "host:port to serve agents and commands on; port 0: any free port"
    )
    tokens: str = setting(
        "",
        "file with the digests and roles of tokens (docs/security.md), read again when it changes; empty: "
        "none",
    )
    health: str = setting(
        "", "host:port for health probes (grpc.health.v1, in plaintext, nothing else); empty: none"
    )
    advertise: str = setting(
        "", "host:port under which others reach this coordinator; empty: the --listen address"
    )
    metrics: str = setting("127.0.0.1:0", "host:port of /metrics; port 0: any free port, empty: none")
    page: str = setting("127.0.0.1:0", "host:port of the status page; port 0: any free port, empty: none")
    page_public: bool = setting(False, "show the status page without a login; actions on it always need one")
    log_format: str = setting(
        "text", "format of log lines: text for people, json for programs", words=LOG_FORMATS
    )
    journal: str = setting("", "file for every event, effect and decision, as JSON lines; empty: none")
    journal_bytes: int = setting(
        32 << 20,
        "a journal of this size is renamed (FILE.000001), and a new one is started; 0: no limit",
        unit="bytes",
        minimum=0,
    )
    journal_files: int = setting(8, "renamed journals to keep", minimum=1)
    recording_bytes: int = setting(
        32 << 20,
        "largest recording of one leader term, kept beside the journal for `holdfast replay`",
        unit="bytes",
        minimum=1 << 16,
    )
    recordings: int = setting(4, "recordings to keep, one for each leader term", minimum=1)
    address_file: str = setting("", "file to write the addresses in use to, as JSON, once the process serves")
    lease_ttl_s: float = setting(
        10.0, "a leader is replaced when etcd has not heard from it for this long", unit="s", minimum=2
    )
    alert_webhook: str = setting(
        "",
        "URL to send changes of the cluster's health to: Alertmanager's API (.../api/v2/alerts), or a "
        "receiver of Alertmanager's webhooks. Put a URL with a token into the variable "
        "HOLDFAST_ALERT_WEBHOOK, because other users can read command lines; empty: none",
        env=True,
    )
    otlp_endpoint: str = setting(
        "",
        "URL of an OTLP/HTTP collector for a trace of each incident, such as http://collector:4318; needs "
        "`pip install 'holdfast[otel]'`; empty: none",
        env=True,
    )


@dataclass(frozen=True, slots=True)
class AgentSettings(CallerSettings, PortSettings, StorageSettings):
    """The settings of the agent of one node."""

    tls_peer_name: str = setting(
        "", "name to expect in the certificates of other agents; empty: the host in their address", env=True
    )

    cluster: str = setting("default", "name of the cluster; its coordinators must use the same")
    coordinator: str = setting("127.0.0.1:7070", "addresses of the coordinators, host:port, comma separated")
    node: str = setting("", "name of this node; empty: the host name")
    address: str = setting(
        "",
        "host or IP under which other nodes reach this node; empty: the address of the route to the "
        "coordinator",
    )
    slots: int = setting(
        0, "ranks that this node can hold; 0: one per GPU, without GPUs one per core", minimum=0
    )
    run_dir: str = setting("", "folder for sockets, logs and pid files; empty: /tmp/holdfast-<uid>")
    shm_dir: str = setting("/dev/shm", "folder in memory for snapshots and progress pages")
    metrics: str = setting("127.0.0.1:0", "host:port of /metrics; port 0: any free port, empty: none")
    log_format: str = setting(
        "text", "format of log lines: text for people, json for programs", words=LOG_FORMATS
    )
    address_file: str = setting("", "file to write the addresses in use to, as JSON, once the process runs")
    beat_interval_s: float = setting(
        1.0, "time between two heartbeats, of ranks and of the agent", unit="s", minimum=0.05
    )
    process_timeout_s: float = setting(
        5.0, "a rank counts as dead when its process has been silent for this long", unit="s", minimum=0.2
    )
    device_timeout_s: float = setting(
        10.0,
        "a device counts as bad when its sensor has reported errors, or nothing, for this long",
        unit="s",
        minimum=0.2,
    )
    hang_floor_s: float = setting(
        60.0, "shortest time without progress after which a rank can count as hung", unit="s", minimum=0.1
    )
    hang_first_s: float = setting(
        1800.0,
        "the same for the first step of a job, and for a first compilation: their usual duration is unknown",
        unit="s",
        minimum=0.1,
    )
    hang_factor: float = setting(
        10.0,
        "a rank counts as hung after this many times the usual duration of its steps; 0: never",
        unit="times",
        minimum=0,
    )
    fence_after_s: float = setting(
        120.0,
        "ranks stop when a coordinator has not answered the agent for this long (a refused connection is an "
        "answer): it may have given their places to another node; 0: never",
        unit="s",
        minimum=0,
    )
    orphan_timeout_s: float = setting(
        60.0, "a launcher without an agent ends its ranks after this time", unit="s", minimum=1
    )
    own_launcher: bool = setting(
        True,
        "start a launcher when none runs; switch off where `holdfast exec` is the launcher, in another "
        "container",
    )
    drain_grace_s: float = setting(
        20.0,
        "after SIGTERM, time for the ranks to move to other nodes before the agent exits; 0: none",
        unit="s",
        minimum=0,
    )
    show_output: bool = setting(True, "copy the output of the ranks to standard output, with a prefix")
    show_tracebacks: bool = setting(
        True, "also copy the traceback that ends a script; switch off where the end of the job shows it"
    )
    show_local_ranks: str = setting(
        "", "local ranks whose output is copied there, comma separated, as 0,2; empty: all, and spares"
    )
    rank_log_bytes: int = setting(
        64 << 20,
        "how much of what each rank has written is kept, through restarts; what is older is given back to "
        "the disk; 0: all is kept",
        unit="bytes",
        minimum=0,
    )
    ledger: str = setting("", "folder where ranks record the samples that each step consumed; empty: none")
    upload_bytes_per_s: int = setting(
        0,
        "highest rate at which this node writes to storage, all uploads together; 0: unlimited",
        unit="bytes/s",
        minimum=0,
    )
    storage_deadline_s: float = setting(
        300.0,
        "a storage has failed when it has not answered for this long, retries included",
        unit="s",
        minimum=1,
    )
    scrub_bytes_per_s: int = setting(
        64 << 20,
        "highest rate of the background verification of checkpoints; 0: unlimited",
        unit="bytes/s",
        minimum=0,
    )
    jobs: str = setting(
        "",
        "jobs whose ranks this node takes, comma separated; empty: all that its certificate allows",
    )
    domain: str = setting(
        "",
        "failure domain: name of what this node fails together with (a rack, a power feed); empty: itself "
        "only",
    )
    peer_listen: str = setting(
        "",
        "host:port where other agents leave copies of their snapshots; port 0: any free port; "
        "empty: the node's address and a free port",
    )
    peer_bytes_per_s: int = setting(
        0,
        "highest rate at which this node sends snapshots to other nodes; 0: unlimited",
        unit="bytes/s",
        minimum=0,
    )
    peer_timeout_s: float = setting(
        10.0,
        "a copy between two agents is given up when the other agent has been silent for this long",
        unit="s",
        minimum=1,
    )


def check_coordinator(settings: CoordinatorSettings) -> None:
    """Raise SettingsError on invalid values, and on values that contradict each other."""
    check(settings)
    check_name("cluster", settings.cluster)
    check_exposed("--listen", settings.listen.rpartition(":")[0], settings)
    if settings.page:
        check_exposed("--page", settings.page.rpartition(":")[0], settings)
    _check_tls(settings, settings.tokens)
    check_port(settings, asks=not settings.private and bool(_asks(settings) or settings.tokens))
    _agree(timeout_constraints.COORDINATOR, settings)
    if settings.mass_loss_ratio > 1:
        raise SettingsError(
            f"--mass-loss-ratio {settings.mass_loss_ratio} is not a share of nodes: give 0 to 1 (1: never)"
        )
    _check_url("--alert-webhook", settings.alert_webhook)
    _check_url("--otlp-endpoint", settings.otlp_endpoint)


def _check_url(flag: str, url: str) -> None:
    """Raise SettingsError on an invalid URL. The message leaves the URL out: it may contain a token."""
    if not url:
        return
    if not url.startswith(("http://", "https://")):
        raise SettingsError(f"{flag} is not a URL: give one that begins with http:// or https://")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise SettingsError(
            f"{flag} has a space or another character that a URL cannot have: write it as %XX"
        )
    try:
        named = bool(urlsplit(url).hostname and urlsplit(url).port != 0)
    except ValueError:
        named = False
    if not named:
        raise SettingsError(f"{flag} names no host, or an invalid port: give http://host:port/...")


def check_agent(settings: AgentSettings) -> None:
    """Raise SettingsError on invalid values, and on values that contradict each other."""
    check(settings)
    check_name("cluster", settings.cluster)
    if settings.node:
        check_name("node", settings.node)
    coordinators(settings.coordinator)
    if settings.domain:
        check_name("failure domain", settings.domain)
    for job in filter(None, settings.jobs.split(",")):
        check_name("job", job)
    local_ranks(settings.show_local_ranks)
    for flag, address in (("--peer-listen", settings.peer_listen), ("--metrics", settings.metrics)):
        if address:
            host_port(flag, address)
    if 0 < settings.peer_bytes_per_s < _PEER_RATE_MIN:
        raise SettingsError(
            f"--peer-bytes-per-s {settings.peer_bytes_per_s} is so slow that other agents would take this "
            f"one for dead: give {_PEER_RATE_MIN} or more, or 0 for no limit"
        )
    _check_tls(settings)
    check_port(settings, asks=not settings.private and _asks(settings))
    check_storages(settings)
    _agree(timeout_constraints.AGENT, settings)


LOCAL_RANKS = re.compile(r"[0-9]{1,4}(,[0-9]{1,4})*")


def local_ranks(text: str) -> list[int]:
    """The local ranks in `0,2`; [] for "". Raises SettingsError."""
    if text and LOCAL_RANKS.fullmatch(text) is None:
        raise SettingsError(f"--show-local-ranks {text!r} names no local ranks: give them as 0,2")
    return [int(rank) for rank in text.split(",")] if text else []


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach this host."""
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def check_exposed(flag: str, host: str, settings: TlsSettings) -> None:
    """Raise SettingsError on a plaintext port that other machines can reach, unless --insecure is set."""
    if is_loopback(host) or (settings.insecure and not settings.private):
        return
    if settings.private:
        raise SettingsError(
            f"{flag} {host} can be reached by others: with --private, give a loopback address"
        )
    if not settings.tls_cert:
        raise SettingsError(
            f"{flag} {host} can be reached by others, and anyone there could run programs here: give "
            "--tls-cert, --tls-key and --tls-ca, or listen on 127.0.0.1, or give --insecure"
        )


def _asks(settings: TlsSettings) -> bool:
    return bool(settings.tls_cert and settings.tls_ca)


def _check_tls(settings: TlsSettings, tokens: str = "") -> None:
    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise SettingsError("--tls-cert and --tls-key belong together: give both, or neither")
    if settings.tls_cert and not (settings.tls_ca or tokens or settings.insecure):
        raise SettingsError(
            "with --tls-cert alone callers are not authenticated: give --tls-ca or --tokens, or --insecure"
        )


def _agree(rules: tuple[timeout_constraints.Constraint, ...], settings: Any) -> None:
    reason = timeout_constraints.violation(rules, settings)
    if reason:
        raise SettingsError(f"{reason} (timeouts that race each other kill jobs)")
