"""How one setting is said: its default, reason, unit, smallest value. See controlplane.settings."""

from __future__ import annotations

import dataclasses
from typing import Any

_PORT_MAX = 65535


class SettingsError(ValueError):
    """A setting that cannot be. The message names it and says how to mend it."""


def setting(
    default: Any,
    about: str,
    *,
    unit: str = "",
    minimum: float | None = None,
    env: bool = False,
    words: tuple[str, ...] = (),
) -> Any:
    """A dataclass field that the command line can show: its reason, unit, smallest value or words. With
    `env` the environment may say it too: HOLDFAST_ and the name in capitals."""
    known = {"about": about, "unit": unit, "minimum": minimum, "env": env, "words": words}
    return dataclasses.field(default=default, metadata=known)


def check(settings: Any) -> None:
    """Raise SettingsError when a field is below its minimum, or none of its words."""
    for spec in dataclasses.fields(settings):
        minimum, value = spec.metadata.get("minimum"), getattr(settings, spec.name)
        if words := spec.metadata.get("words"):
            check_word(spec.name, value, words)
        if minimum is not None and value < minimum:
            flag = "--" + spec.name.replace("_", "-")
            raise SettingsError(
                f"{flag} {value} is too small: give {minimum} or more ({spec.metadata['about']})"
            )


def check_word(name: str, value: str, words: tuple[str, ...]) -> None:
    """Raise SettingsError when a setting is none of the words that it may be."""
    if value not in words:
        raise SettingsError(f"--{name.replace('_', '-')} {value!r} is none of {', '.join(words)}")


def host_port(flag: str, text: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[v6]:port`. Raises SettingsError."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > _PORT_MAX:
        raise SettingsError(f"{flag} {text!r:.80} is no address: give host:port, like 127.0.0.1:7070")
    return host, int(port)


def check_dialled(flag: str, text: str) -> None:
    """Raise SettingsError when nobody can be called there: port 0 stands for any free one only where somebody
    listens."""
    _, port = host_port(flag, text)
    if port == 0:
        raise SettingsError(f"{flag} {text!r:.80} is no address: nobody listens at port 0")


def coordinators(text: str) -> tuple[str, ...]:
    """The addresses that --coordinator names. Raises SettingsError when one will not do, or there is none."""
    found = tuple(address.strip() for address in text.split(",") if address.strip())
    for address in found:
        check_dialled("--coordinator", address)
    if not found:
        raise SettingsError("--coordinator is empty: give host:port")
    return found
