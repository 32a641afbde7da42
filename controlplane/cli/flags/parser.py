"""Build the tree of parsers: both spellings of flags, flags that end where a script begins, suggestions.

The root knows one line about every command. A command's own module is imported, and its flags are added, when
its parser is first used, so `holdfast --help` stays fast. Code that needs the whole tree (shell completion)
calls `load` on each node."""

from __future__ import annotations

import argparse
import importlib
import math
import textwrap
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from controlplane import setting
from controlplane.cli.errors import UsageError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

HELP_ALL = "--help-all"
_MOST = 1_000_000_000
"""The largest whole number where a flag sets no smaller limit: every message can hold it."""


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """One line of an overview. `module`, below `controlplane.cli`, is imported when the command is used."""

    module: str
    about: str


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """What a command or verb does; a module's `COMMANDS` has one for each.

    With `verbs` it has commands of its own, and `run` is called when none of them is given. With `short`,
    `--help` shows these flags only, and `--help-all` shows all of them."""

    about: str
    run: Callable[[argparse.Namespace], int]
    add_flags: Callable[[Parser], None] = lambda parser: None
    usage: str | None = None
    epilog: str | None = None
    verbs: Mapping[str, CommandEntry] | None = None
    short: tuple[str, ...] = ()


class Parser(argparse.ArgumentParser):
    """A node of the parser tree. A leaf imports its module and adds its flags when it is first used.

    Flags are registered with hyphens; underscores are accepted too. Errors are UsageError."""

    def __init__(self, *, load: Callable[[], CommandSpec] | None = None, **words: Any) -> None:
        super().__init__(**words, allow_abbrev=False, formatter_class=_Formatter)
        self._load = load
        self._takes_script = False
        self.about = ""
        """One line about this command."""
        self.verbs: dict[str, Parser] = {}
        self._short: frozenset[str] = frozenset()

    def load(self) -> None:
        """Add the flags or verbs of the command, once."""
        load, self._load = self._load, None
        if load is not None:
            self.become(load())

    def become(self, command: CommandSpec) -> None:
        """Take the texts, flags and verbs of a command."""
        self.description, self.usage, self.epilog = command.about, command.usage, command.epilog
        self.set_defaults(run=command.run, prog=self.prog)
        command.add_flags(self)
        if command.short:
            self._short = frozenset((*command.short, "--help", HELP_ALL))
            self.add_argument(HELP_ALL, action=_HelpAll, nargs=0, help="show every flag and exit")
        if command.verbs:
            self._add_verbs(command.verbs)

    def _add_verbs(self, entries: Mapping[str, CommandEntry]) -> None:
        added = self.add_subparsers(title="commands", prog=self.prog, metavar="COMMAND", parser_class=Parser)
        for name, entry in entries.items():
            self.verbs[name] = added.add_parser(name, help=entry.about, load=partial(_command, entry, name))
            self.verbs[name].about = entry.about

    def add_script(self, metavar: str, about: str) -> None:
        """End the flags at the first word that is not a flag; it and the rest go to `command` unchanged. The
        flags themselves, as given, are in `words`."""
        self._takes_script = True
        self.add_argument("command", nargs="*", metavar=metavar, help=about)

    def format_help(self) -> str:
        """Return the help: of the most important flags, if the command has named some."""
        hidden = {action: action.help for action in self._actions if self._hides(action)}
        for action in hidden:
            action.help = argparse.SUPPRESS
        try:
            text = super().format_help()
        finally:
            for action, about in hidden.items():
                action.help = about
        return text + (f"\n{len(hidden)} more flags: {self.prog} {HELP_ALL}\n" if hidden else "")

    def format_all_help(self) -> str:
        """Return the help of all flags."""
        return super().format_help()

    def _hides(self, action: argparse.Action) -> bool:
        flags = action.option_strings
        return bool(self._short and flags) and self._short.isdisjoint(flags)

    def error(self, message: str) -> NoReturn:
        """Raise UsageError instead of ending the process."""
        raise UsageError(f"{message} (see `{self.prog} --help`)")

    def parse_known_args(
        self, args: Iterable[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse all of `args`. Raises UsageError, with the nearest known word for an unknown one."""
        self.load()
        flags, rest = self._split(list(args or ()), stop_at_positional=self._takes_script or bool(self.verbs))
        if self.verbs and rest:
            rest[0] = self._verb(rest[0])
        found, extras = super().parse_known_args(flags if self._takes_script else [*flags, *rest], namespace)
        if extras:
            self.error(f"unrecognized arguments: {' '.join(extras)}")
        if self._takes_script:
            found.command, found.words = rest, flags
        return found, extras

    def _verb(self, argument: str) -> str:
        if argument in self.verbs:
            return argument
        if f"--{argument}" in self._option_string_actions:
            return f"--{argument}"  # `holdfast help`, `holdfast version`
        kind = "verb" if " " in self.prog else "command"
        raise UsageError(
            f"unknown {kind} {argument}{nearest(argument, self.verbs)} (see `{self.prog} --help`)"
        )

    def _split(self, argv: Sequence[str], stop_at_positional: bool) -> tuple[list[str], list[str]]:
        flags: list[str] = []
        others: list[str] = []  # behind the flags: argparse takes words that may be missing in one place only
        index = 0
        while index < len(argv):
            argument = argv[index]
            if argument == "--":
                return flags, [*others, *argv[index + (1 if stop_at_positional else 0) :]]
            if not argument.startswith("-") or argument == "-":
                if stop_at_positional:
                    return flags, list(argv[index:])
                others.append(argument)
                index += 1
                continue
            width = self._width(argument)
            flags += [_hyphened(argument), *argv[index + 1 : index + width]]
            index += width
        return flags, others

    def _width(self, argument: str) -> int:
        """How many words of the command line this flag takes, with its value. Raises UsageError for an
        unknown flag, and for the value `--`, of which argparse makes an empty list."""
        name, equals, value = _hyphened(argument).partition("=")
        action = self._option_string_actions.get(name)
        if action is None:
            known = [flag for flag in self._option_string_actions if flag.startswith("--")]
            advice = "flags of a command come after its name" if self.verbs else f"see `{self.prog} --help`"
            raise UsageError(f"unknown flag {argument.partition('=')[0]}{nearest(name, known)} ({advice})")
        if value == "--":
            raise UsageError(f"{name} needs a value, and -- is none (see `{self.prog} --help`)")
        return 1 if equals or action.nargs == 0 else 2


class _HelpAll(argparse.Action):
    """Prints the help of all flags, and ends."""

    def __call__(self, parser: argparse.ArgumentParser, *_words: Any) -> NoReturn:
        assert isinstance(parser, Parser)
        print(parser.format_all_help(), end="")
        raise SystemExit(0)


def _command(entry: CommandEntry, name: str) -> CommandSpec:
    module = importlib.import_module(f"controlplane.cli.{entry.module}")
    command: CommandSpec = module.COMMANDS[name]
    return command


class _Formatter(argparse.ArgumentDefaultsHelpFormatter):
    """Shows each default once, if it says anything; keeps the lines of an indented text."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        has_default = any(mark in (action.help or "") for mark in ("%(default)", "(default: "))
        if has_default or action.default in (None, "", False, [], argparse.SUPPRESS):
            return action.help
        return super()._get_help_string(action)

    def _split_lines(self, text: str, width: int) -> list[str]:
        """Wrap a text without breaking the flags in it."""
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False, break_long_words=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n  " in text:
            return "".join(indent + line for line in text.splitlines(keepends=True))
        return "\n".join(indent + line for line in self._split_lines(text, width - len(indent)))


def _hyphened(argument: str) -> str:
    if not argument.startswith("--"):
        return argument
    name, equals, value = argument.partition("=")
    return name.replace("_", "-") + equals + value


def whole(minimum: int, why: str, most: int = _MOST) -> Callable[[str], int]:
    """An argument type: a whole number from `minimum` to `most`. `why` tells what a smaller one would
    mean."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from error
        if value < minimum:
            raise argparse.ArgumentTypeError(f"{text} is too small: {why}; give {minimum} or more")
        if value > most:
            raise argparse.ArgumentTypeError(f"{text} is too large: give at most {most}")
        return value

    return read


def number(text: str) -> float:
    """An argument type: a finite number."""
    try:
        value = float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from error
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number")
    return value


def seconds(minimum: float) -> Callable[[str], float]:
    """An argument type: a finite number of seconds of at least `minimum`."""

    def read(text: str) -> float:
        value = number(text)
        if value < minimum:
            raise argparse.ArgumentTypeError(
                f"{text} is not allowed: give a number of seconds, {minimum:g} or more"
            )
        return value

    return read


def addresses(coordinators: str) -> list[str]:
    """The addresses that --coordinator names. Raises UsageError."""
    try:
        return list(setting.coordinators(coordinators))
    except setting.SettingsError as error:
        raise UsageError(str(error)) from error


@dataclass(frozen=True, slots=True)
class OneOf:
    """An argument type: one of `names`; an error suggests the nearest. `former`: old words, still
    accepted."""

    names: tuple[str, ...]
    former: tuple[str, ...] = ()

    def __call__(self, text: str) -> str:
        """The word itself. Raises ArgumentTypeError."""
        known = (*self.names, *self.former)
        if text not in known:
            raise argparse.ArgumentTypeError(
                f"unknown value {text!r}{nearest(text, known) or ';'} known: {', '.join(known)}"
            )
        return text


def one_of(*names: str, former: tuple[str, ...] = ()) -> OneOf:
    """An argument type: one of these words."""
    return OneOf(names, former)
