"""`holdfast coordinator` and `holdfast agent`: flags made from their settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.cli.errors import USAGE, CliError
from controlplane.cli.flags.parser import CommandSpec, Parser
from controlplane.cli.flags.settings import add_groups, read_settings
from controlplane.decision_settings import DecisionSettings
from controlplane.kube_settings import KubeSettings
from controlplane.port_settings import PortSettings
from controlplane.settings import (
    AgentSettings,
    CallerSettings,
    CoordinatorSettings,
    EtcdSettings,
    SettingsError,
    TlsSettings,
    check_agent,
    check_coordinator,
)
from controlplane.storage_settings import StorageSettings

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable


def _coordinator_flags(parser: Parser) -> None:
    titles = {
        CoordinatorSettings: "the coordinator",
        EtcdSettings: "etcd",
        DecisionSettings: "decisions",
        TlsSettings: "TLS",
        PortSettings: "callers",
        KubeSettings: "Kubernetes",
    }
    add_groups(parser, CoordinatorSettings, titles)


def coordinator(values: argparse.Namespace) -> int:
    """Run a coordinator until a signal ends it."""
    settings = read_settings(CoordinatorSettings, values, check_coordinator)
    from controlplane.daemon.coordinator import serve

    return _served(lambda: serve(settings))


def _agent_flags(parser: Parser) -> None:
    titles = {
        AgentSettings: "the agent",
        StorageSettings: "storage",
        CallerSettings: "TLS",
        PortSettings: "callers",
    }
    add_groups(parser, AgentSettings, titles)


def agent(values: argparse.Namespace) -> int:
    """Run the agent of one node until a signal ends it."""
    settings = read_settings(AgentSettings, values, check_agent)
    import socket

    import uvloop

    from agent.main import serve
    from holdfast.logs import set_up

    set_up(settings.log_format, node=settings.node or socket.gethostname())
    return _served(lambda: uvloop.run(serve(settings)))


def _served(serve: Callable[[], int]) -> int:
    try:
        return serve()
    except SettingsError as error:
        failed = CliError(str(error))
        failed.code = USAGE
        raise failed from error


COMMANDS = {
    "coordinator": CommandSpec(
        "Run a coordinator, the process that decides. Start one, or several for high availability: etcd "
        "elects one leader, and the others take over when it fails.",
        coordinator,
        _coordinator_flags,
        "holdfast coordinator [flags]",
    ),
    "agent": CommandSpec(
        "Run the agent of one node. It connects to the coordinator, starts and watches the ranks of the "
        "node, keeps their snapshots in memory and writes checkpoints.",
        agent,
        _agent_flags,
        "holdfast agent [flags]",
    ),
}
