"""Make flags from the dataclasses of settings, and settings from flags."""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import typing
from typing import TYPE_CHECKING, Any, TypeVar

from controlplane.cli.errors import UsageError
from controlplane.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

Settings = TypeVar("Settings")
_BOOLS = {"1": True, "true": True, "0": False, "false": False}


def add_groups(parser: argparse.ArgumentParser, kind: type, titles: Mapping[type, str]) -> None:
    """Add one flag per field of `kind`, in a group for each class of `titles`: `kind` itself and its
    bases."""
    shared = {spec.name for base in titles if base is not kind for spec in dataclasses.fields(base)}
    for base, title in titles.items():
        add_settings(parser.add_argument_group(title), base, but=shared if base is kind else ())


def add_settings(
    parser: argparse._ActionsContainer,
    kind: type,
    only_unit: str | None = None,
    but: Collection[str] = (),
) -> None:
    """Add one flag per field of `kind`; with `only_unit` only for fields of that unit.

    A flag that is not given leaves no value, so that the environment and the defaults count."""
    types = typing.get_type_hints(kind)
    for spec in dataclasses.fields(kind):
        if spec.name in but or (only_unit is not None and spec.metadata["unit"] != only_unit):
            continue
        options: dict[str, Any] = {"default": argparse.SUPPRESS, "help": _help(spec)}
        if types[spec.name] is bool:
            options["action"] = argparse.BooleanOptionalAction
        else:
            options |= {"type": _reader(types[spec.name]), "metavar": _metavar(spec, types[spec.name])}
        names = (*filter(None, (spec.metadata["flag"],)), flag(spec.name))
        parser.add_argument(*names, dest=spec.name, **options)


def read_settings(
    kind: type[Settings], values: argparse.Namespace, check: Callable[[Settings], None]
) -> Settings:
    """The settings from these flags and the environment. Raises UsageError when `check` refuses them."""
    settings = kind(**(from_environment(kind) | given(kind, values)))
    try:
        check(settings)
    except SettingsError as error:
        raise UsageError(str(error)) from error
    return settings


def given(kind: type, values: argparse.Namespace) -> dict[str, Any]:
    """The fields of `kind` that were given as flags."""
    return {
        spec.name: getattr(values, spec.name)
        for spec in dataclasses.fields(kind)
        if hasattr(values, spec.name)
    }


def from_environment(kind: type) -> dict[str, Any]:
    """The fields of `kind` that HOLDFAST_ variables set. Raises UsageError for an impossible value."""
    found: dict[str, Any] = {}
    types = typing.get_type_hints(kind)
    for spec in dataclasses.fields(kind):
        name = f"HOLDFAST_{spec.name.upper()}"
        text = os.environ.get(name, "") if spec.metadata["env"] else ""
        if not text:
            continue
        if types[spec.name] is bool and text not in _BOOLS:
            raise UsageError(
                f"{name}={text} is neither {' nor '.join(_BOOLS)}: unset it, or give one of them"
            )
        found[spec.name] = _BOOLS[text] if types[spec.name] is bool else _read(name, text, types[spec.name])
    return found


def _read(name: str, text: str, kind: type) -> Any:
    """The value of a variable, read as its flag is. Raises UsageError."""
    try:
        return _reader(kind)(text)
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"{name}={text} is impossible: {error}") from error


def as_flags(kind: type, settings: dict[str, Any]) -> list[str]:
    """The command line that gives these settings of `kind`."""
    words = []
    for spec in dataclasses.fields(kind):
        if spec.name in settings:
            words += _words(spec.name, settings[spec.name])
    return words


def flag(name: str) -> str:
    """The flag of a field: `beat_interval_s` is `--beat-interval-s`."""
    return "--" + name.replace("_", "-")


def _words(name: str, value: object) -> list[str]:
    if isinstance(value, bool):
        return [flag(name) if value else flag("no_" + name)]
    return [f"{flag(name)}={value}"]


def _help(spec: dataclasses.Field[Any]) -> str:
    about = spec.metadata["about"].replace("%", "%%")
    if spec.default in ("", None):
        return str(about)
    unit = f" {spec.metadata['unit']}" if spec.metadata["unit"] else ""
    default = f"{spec.default:g}" if isinstance(spec.default, float) else spec.default
    return f"{about} (default: {default}{unit})"


_METAVARS = (
    ("PEM file", "FILE"),
    ("file ", "FILE"),
    ("folder ", "FOLDER"),
    ("host:port ", "HOST:PORT"),
    ("addresses ", "HOST:PORT"),
    ("URL ", "URL"),
    ("name ", "NAME"),
    ("user name ", "NAME"),
    ("failure domain: name ", "NAME"),
    ("host or IP ", "HOST"),
    ("jobs ", "NAME,NAME"),
    ("local ranks ", "RANK,RANK"),
)
"""What the value of a setting is, by how its description begins."""


def _metavar(spec: dataclasses.Field[Any], kind: type) -> str:
    if spec.metadata["unit"]:
        return "SECONDS" if spec.metadata["unit"] == "s" else str(spec.metadata["unit"]).upper()
    if kind is str:
        if spec.metadata.get("words"):
            return "|".join(spec.metadata["words"])
        about = str(spec.metadata["about"])
        return next((word for begin, word in _METAVARS if about.startswith(begin)), "TEXT")
    return {int: "N", float: "X"}[kind]


def _reader(kind: type) -> Callable[[str], Any]:
    words = {int: "whole number", float: "number", str: "text"}

    def read(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r} is not a {words[kind]}") from error
        if isinstance(value, float) and not math.isfinite(value):
            raise argparse.ArgumentTypeError(f"{text!r} is not a {words[kind]}")
        return value

    return read
