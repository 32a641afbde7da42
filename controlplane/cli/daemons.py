"""`holdfast coordinator` and `holdfast agent`: flags made from their settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.cli.errors import USAGE, CliError
from controlplane.cli.flags.parser import Parser
from controlplane.cli.flags.settings import add_settings, read_settings
from controlplane.settings import (
    AgentSettings,
    CoordinatorSettings,
    SettingsError,
    check_agent,
    check_coordinator,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def coordinator(argv: Sequence[str]) -> int:
    """Run a coordinator until it is told to end."""
    parser = Parser("coordinator", "Run a coordinator: it leads the cluster, or waits to take over.")
    add_settings(parser, CoordinatorSettings)
    settings = read_settings(CoordinatorSettings, parser.read(argv), check_coordinator)
    from controlplane.daemon.coordinator import serve

    return _served(lambda: serve(settings))


def agent(argv: Sequence[str]) -> int:
    """Run the agent of one node until it is told to end."""
    parser = Parser("agent", "Run the agent of one node: it starts, watches and feeds its ranks.")
    add_settings(parser, AgentSettings)
    settings = read_settings(AgentSettings, parser.read(argv), check_agent)
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


COMMANDS = {"coordinator": coordinator, "agent": agent}
