"""An argparse parser that takes both spellings of a flag, knows where a script begins, and suggests."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, NoReturn

from controlplane import setting
from controlplane.cli.errors import UsageError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_MOST = 1_000_000_000
"""What a whole number may be where nobody says less: every message can hold it."""


class Parser(argparse.ArgumentParser):
    """One command's flags, registered with hyphens; underscores are taken too. Errors are UsageError."""

    def __init__(
        self, command: str, about: str, *, usage: str | None = None, epilog: str | None = None
    ) -> None:
        super().__init__(
            prog=f"holdfast {command}",
            description=about,
            usage=usage,
            epilog=epilog,
            allow_abbrev=False,
            formatter_class=_Formatter,
        )

    def error(self, message: str) -> NoReturn:
        """Raise UsageError instead of leaving the process."""
        raise UsageError(f"{message} (see `{self.prog} --help`)")

    def read(self, argv: Sequence[str]) -> argparse.Namespace:
        """Parse all of `argv`. Raises UsageError, with the nearest known flag for an unknown one."""
        flags, rest = self._split(argv, stop_at_positional=False)
        return self.parse_args([*flags, *rest])

    def read_before_script(self, argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
        """Parse the flags before the first word that is none; the rest belongs to the script."""
        flags, rest = self._split(argv, stop_at_positional=True)
        return self.parse_args(flags), rest

    def _split(self, argv: Sequence[str], stop_at_positional: bool) -> tuple[list[str], list[str]]:
        flags: list[str] = []
        index = 0
        while index < len(argv):
            word = argv[index]
            if word == "--":
                return flags, list(argv[index + (1 if stop_at_positional else 0) :])
            if not word.startswith("-") or word == "-":
                if stop_at_positional:
                    return flags, list(argv[index:])
                flags.append(word)
                index += 1
                continue
            width = self._width(word)
            flags += [_hyphened(word), *argv[index + 1 : index + width]]
            index += width
        return flags, []

    def _width(self, word: str) -> int:
        """How many words this flag takes with its value. Raises UsageError when it is not known."""
        name, equals, _ = _hyphened(word).partition("=")
        action = self._option_string_actions.get(name)
        if action is None:
            known = [flag for flag in self._option_string_actions if flag.startswith("--")]
            raise UsageError(
                f"unknown flag {word.partition('=')[0]}{nearest(name, known)} (see `{self.prog} --help`)"
            )
        return 1 if equals or action.nargs == 0 else 2


class _Formatter(argparse.ArgumentDefaultsHelpFormatter):
    """Defaults are shown where they say something, once; lines that are indented stay lines."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        told = any(word in (action.help or "") for word in ("%(default)", "(default: "))
        if told or action.default in (None, "", False, [], argparse.SUPPRESS):
            return action.help
        return super()._get_help_string(action)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n  " in text:
            return "".join(indent + line for line in text.splitlines(keepends=True))
        return super()._fill_text(text, width, indent)


def _hyphened(word: str) -> str:
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value


def whole(minimum: int, why: str, most: int = _MOST) -> Callable[[str], int]:
    """An argument type: a whole number of at least `minimum`; `why` tells what less would mean."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from error
        if value < minimum:
            raise argparse.ArgumentTypeError(f"{text} is too small: {why}; give {minimum} or more")
        if value > most:
            raise argparse.ArgumentTypeError(f"{text} is too large: give {most} at most")
        return value

    return read


def number(text: str) -> float:
    """An argument type: a finite number."""
    try:
        value = float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from error
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is no finite number")
    return value


def seconds(minimum: float) -> Callable[[str], float]:
    """An argument type: a finite number of seconds of at least `minimum`."""

    def read(text: str) -> float:
        value = number(text)
        if value < minimum:
            raise argparse.ArgumentTypeError(
                f"{text} will not do: give a number of seconds, {minimum:g} or more"
            )
        return value

    return read


def addresses(coordinators: str) -> list[str]:
    """The addresses that --coordinator names. Raises UsageError."""
    try:
        return list(setting.coordinators(coordinators))
    except setting.SettingsError as error:
        raise UsageError(str(error)) from error


def one_of(*names: str) -> Callable[[str], str]:
    """An argument type: one of these words; the nearest is suggested for another."""

    def read(text: str) -> str:
        if text not in names:
            raise argparse.ArgumentTypeError(
                f"unknown value {text!r}{nearest(text, names)} Known: {', '.join(names)}"
            )
        return text

    return read
