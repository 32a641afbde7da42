"""Help is short where a command has very many flags, and all of it is there for who asks."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

import pytest

from controlplane.cli.main import main, tree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controlplane.cli.flags.parser import Parser


def commands(parser: Parser) -> Iterator[Parser]:
    """This command, and all below it."""
    parser.load()
    yield parser
    for verb in parser.verbs.values():
        yield from commands(verb)


ALL = list(commands(tree()))


def described(parser: Parser) -> Iterator[tuple[str, str, str]]:
    """What the help says of each flag and word of a command: its names, its value, its text."""
    for action in parser._actions:
        if not isinstance(action, argparse._SubParsersAction):
            form = parser._get_formatter()
            names = ", ".join(action.option_strings) or action.dest
            yield names, str(action.metavar or ""), form._expand_help(action) if action.help else ""


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main([*words]) == 0
    return capsys.readouterr().out


def test_run_has_a_short_help_and_a_long_one(capsys: pytest.CaptureFixture[str]) -> None:
    short, long = shown(capsys, "run", "--help"), shown(capsys, "run", "--help-all")
    assert "--nproc-per-node" in short and "--storage" in short and "SCRIPT" in short
    assert "--grow-after-s" in long and "--grow-after-s" not in short
    assert len(short.splitlines()) < 60 < len(long.splitlines())
    more = int(short.splitlines()[-1].split()[0])
    assert short.endswith(" more flags: holdfast run --help-all\n") and more > 40
    assert shown(capsys, "run", "--help-all") == long, "nothing of it is hidden for good"


def test_the_help_of_other_commands_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert "more flags" not in shown(capsys, "logs", "--help")


@pytest.mark.parametrize("command", ALL, ids=lambda command: command.prog)
def test_every_flag_is_explained_once_and_its_value_named(command: Parser) -> None:
    for names, value, text in described(command):
        assert text, f"{command.prog}: nothing is said of {names}"
        assert len(re.findall(r"\(default: ", text)) <= 1, f"{command.prog} {names}: {text}"
        assert value != "TEXT", f"{command.prog} {names} takes a TEXT: {text}"
        about_file = re.match(r"(the |a )?(\w+ )?file\b", text) is not None and names.startswith("-")
        assert not (about_file and value) or value in ("FILE", "PATH"), f"{names}: {text}"


@pytest.mark.parametrize("command", ALL, ids=lambda command: command.prog)
def test_flags_that_kubectl_has_mean_the_same(command: Parser) -> None:
    kubectl = {"-o": "--output", "-f": "--follow", "-p": "--previous"}
    for names in (action.option_strings for action in command._actions):
        for short, long in kubectl.items():
            assert short not in names or long in names, f"{command.prog}: {short} is {names}"


@pytest.mark.parametrize(
    "words", ["run --nnodes=-- x.py", "submit --checkpoint_every=-- x.py", "why --job=--"]
)
def test_a_value_that_ends_flags_is_refused_by_name(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 2
    flag = next(word for word in words.split() if "=" in word).partition("=")[0].replace("_", "-")
    assert f"{flag} needs a value, and -- is none" in capsys.readouterr().err
