"""Take the credentials for a coordinator from flags and environment."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from controlplane.cli.errors import UsageError
from controlplane.cli.flags.settings import add_settings, from_environment, given
from controlplane.settings import CallerSettings, SettingsError

if TYPE_CHECKING:
    import argparse

    from controlplane.access.client_credentials import ClientCredentials


def coordinator() -> str:
    """The addresses to call when no flag names any."""
    return os.environ.get("HOLDFAST_COORDINATOR", "") or "127.0.0.1:7070"


def add_access(parser: argparse.ArgumentParser) -> None:
    """Add the flags of TLS and login."""
    add_settings(parser.add_argument_group("TLS and login"), CallerSettings)


def access_of(values: argparse.Namespace | None = None) -> ClientCredentials:
    """The credentials from these flags and the environment. Raises UsageError."""
    from controlplane.access.client_credentials import ClientCredentials

    given_settings = from_environment(CallerSettings) | (
        given(CallerSettings, values) if values is not None else {}
    )
    try:
        return ClientCredentials.of(CallerSettings(**given_settings))
    except SettingsError as error:
        raise UsageError(str(error)) from error
