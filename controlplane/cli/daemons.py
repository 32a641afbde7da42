"""`holdfast coordinator` and `holdfast agent`: flags made from their settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.cli.errors import USAGE, CliError
from controlplane.cli.flags.parser import Command, Parser
from controlplane.cli.flags.settings import add_settings, read_settings
from controlplane.settings import (
    AgentSettings,
    CoordinatorSettings,
    SettingsError,
    check_agent,
    check_coordinator,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable


def _coordinator_flags(parser: Parser) -> None:
    add_settings(parser, CoordinatorSettings)


def coordinator(values: argparse.Namespace) -> int:
    """Run a coordinator until a signal ends it."""
    settings = read_settings(CoordinatorSettings, values, check_coordinator)
    from controlplane.daemon.coordinator import serve

    return _served(lambda: serve(settings))


def _agent_flags(parser: Parser) -> None:
    add_settings(parser, AgentSettings)


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
    "coordinator": Command(
        "Run a coordinator, the process that decides. Start one, or several for high availability: etcd "
        "elects one leader, and the others take over when it fails.",
        coordinator,
        _coordinator_flags,
    ),
    "agent": Command(
        "Run the agent of one node. It connects to the coordinator, starts and watches the ranks of the "
        "node, keeps their snapshots in memory and writes checkpoints.",
        agent,
        _agent_flags,
    ),
}
