"""Declare and check one setting: default, help, unit, smallest value, words. See controlplane.settings."""

from __future__ import annotations

import dataclasses
from typing import Any

_PORT_MAX = 65535


class SettingsError(ValueError):
    """An invalid setting. The message names it and says how to correct it."""


def setting(
    default: Any,
    about: str,
    *,
    unit: str = "",
    minimum: float | None = None,
    env: bool = False,
    words: tuple[str, ...] = (),
    flag: str = "",
) -> Any:
    """Return a dataclass field from which the command line makes a flag.

    `about` is the flag's help, `minimum` its smallest value, `words` are the only values that it may have
    (empty: any). With `env`, the variable HOLDFAST_<NAME> may set it too. `flag`: a better name of the flag;
    the one made from the field's name is accepted as well."""
    known = {"about": about, "unit": unit, "minimum": minimum, "env": env, "words": words, "flag": flag}
    return dataclasses.field(default=default, metadata=known)


def check(settings: Any) -> None:
    """Raise SettingsError when a field is below its minimum, or is not one of its allowed words."""
    for spec in dataclasses.fields(settings):
        minimum, value = spec.metadata.get("minimum"), getattr(settings, spec.name)
        flag = spec.metadata.get("flag") or "--" + spec.name.replace("_", "-")
        words = spec.metadata.get("words")
        if words and value not in words:
            raise SettingsError(f"{flag} {value!r} is not one of {', '.join(words)}")
        if minimum is not None and value < minimum:
            raise SettingsError(
                f"{flag} {value} is too small: give {minimum} or more ({spec.metadata['about']})"
            )


def host_port(flag: str, text: str) -> tuple[str, int]:
    """Return host and port of `host:port` or `[v6]:port`. Raises SettingsError."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or "/" in host or not (port.isascii() and port.isdigit()) or int(port) > _PORT_MAX:
        raise SettingsError(f"{flag} {text!r:.80} is not an address: give host:port, like 127.0.0.1:7070")
    return host, int(port)


def check_dialled(flag: str, text: str) -> None:
    """Raise SettingsError on an address that cannot be connected to: port 0 means "any free port" only for a
    server."""
    _, port = host_port(flag, text)
    if port == 0:
        raise SettingsError(f"{flag} {text!r:.80} is not an address: nothing can listen on port 0")


def coordinators(text: str) -> tuple[str, ...]:
    """Return the addresses that --coordinator names. Raises SettingsError on an invalid one, or on none."""
    found = tuple(address.strip() for address in text.split(",") if address.strip())
    for address in found:
        check_dialled("--coordinator", address)
    if not found:
        raise SettingsError("--coordinator is empty: give host:port")
    return found
