"""`holdfast completion`: print a completion script, which shtab makes from the parsers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.cli.errors import OK
from controlplane.cli.flags.parser import CommandSpec, OneOf, Parser, one_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

SHELLS = {"bash": "~/.bashrc", "zsh": "~/.zshrc, after compinit"}
PATHS = {"FILE": "FILE", "FILE.svg": "FILE", "PATH": "FILE", "SCRIPT": "FILE", "FOLDER": "DIRECTORY"}
"""Metavars whose values are paths, and shtab's name for them."""
SOURCED = ("$zsh_eval_context[-1] == eval ", "$zsh_eval_context[-1] == (eval|file) ")
"""shtab's script for zsh registers itself only when it is evaluated; ours does when it is sourced, too."""


def _flags(parser: Parser) -> None:
    parser.add_argument("shell", type=one_of(*SHELLS), metavar="|".join(SHELLS), help="the shell")


def completion(values: argparse.Namespace) -> int:
    """Print the script that completes words in a shell."""
    print(script(values.shell), end="")
    return OK


def script(shell: str) -> str:
    """The script for one shell."""
    import shtab

    from controlplane.cli.main import tree

    root = tree()
    for parser in walk(root):
        parser.description = parser.about
        for action in parser._actions:
            if isinstance(action.type, OneOf):
                action.choices = action.type.names
            if action.metavar in PATHS:
                action.complete = getattr(shtab, PATHS[action.metavar])  # type: ignore[attr-defined]
    text: str = shtab.complete(root, shell=shell, root_prefix="holdfast")
    head = f"# holdfast: put this into {SHELLS[shell]}: source <(holdfast completion {shell})"
    first, _, rest = text.replace(*SOURCED).partition("\n")
    return f"{first}\n{head}\n{rest}"


def walk(parser: Parser) -> Iterator[Parser]:
    """Yield a parser and all parsers below it, with their flags loaded."""
    parser.load()
    yield parser
    for verb in parser.verbs.values():
        yield from walk(verb)


def flags(*words: str) -> set[str]:
    """Every long flag of a command or verb, and of the verbs below it. Without words: of all commands."""
    from controlplane.cli.main import tree

    parser = tree()
    for word in words:
        parser.load()
        parser = parser.verbs[word]
    found = (option for each in walk(parser) for action in each._actions for option in action.option_strings)
    return {option for option in found if option.startswith("--")}


COMMANDS = {
    "completion": CommandSpec(
        "Print a script that completes commands, flags and their values. "
        "For bash: source <(holdfast completion bash)",
        completion,
        _flags,
    )
}
