"""`holdfast completion`: commands and their flags for bash and zsh, from the commands' own help."""

from __future__ import annotations

import contextlib
import io
import re
from functools import cache
from typing import TYPE_CHECKING

from controlplane.cli.errors import OK, CliError
from controlplane.cli.flags.parser import Parser, one_of
from controlplane.cli.questions.outputs import FORMS

if TYPE_CHECKING:
    from collections.abc import Sequence

_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
_OUTPUT = re.compile(r"--output\s+([a-z]+(?:\|[a-z]+)+)")

BASH = """# holdfast: put this into ~/.bashrc: source <(holdfast completion bash)
_holdfast() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} command=${{COMP_WORDS[1]}}
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "{commands}" -- "$word"))
        return
    fi
    case "$command ${{COMP_WORDS[COMP_CWORD-1]}}" in
{outputs}
    esac
    case "$command" in
{cases}
    esac
}}
complete -o default -F _holdfast holdfast
"""
ZSH = """#compdef holdfast
# holdfast: put this into ~/.zshrc, after compinit: source <(holdfast completion zsh)
_holdfast() {{
    if (( CURRENT == 2 )); then
        local -a commands=(
{described}
        )
        _describe command commands
        return
    fi
    case "$words[2] $words[CURRENT-1]" in
{outputs}
    esac
    case "$words[2]" in
{cases}
    esac
    _files
}}
compdef _holdfast holdfast
"""
WORDS = {
    "get": "jobs nodes ranks checkpoints",
    "describe": "job node checkpoint",
    "checkpoint": "now list show verify diff gc adopt export",
    "completion": "bash zsh",
    "kubernetes": "render",
}
"""What may follow a command besides flags."""


def completion(argv: Sequence[str]) -> int:
    """Print the script that completes words in a shell."""
    parser = Parser("completion", "Print a script that completes commands and flags.")
    parser.add_argument("shell", type=one_of("bash", "zsh"), metavar="bash|zsh")
    print({"bash": bash, "zsh": zsh}[parser.read(argv).shell](), end="")
    return OK


def bash() -> str:
    """The script for bash."""
    cases = [
        f'        {name}) COMPREPLY=($(compgen -W "{words}" -- "$word")) ;;'
        for name, words in _known().items()
    ]
    outputs = [
        f'        "{name} -o"|"{name} --output") COMPREPLY=($(compgen -W "{words}" -- "$word")); return ;;'
        for name, words in _outputs().items()
    ]
    return BASH.format(commands=" ".join(_known()), outputs="\n".join(outputs), cases="\n".join(cases))


def zsh() -> str:
    """The script for zsh."""
    from controlplane.cli.main import COMMANDS

    described = [f"            '{name}:{COMMANDS[name].about.replace(chr(39), '')}'" for name in _known()]
    cases = [f"        {name}) compadd -- {words} ;;" for name, words in _known().items()]
    outputs = [
        f'        "{name} -o"|"{name} --output") compadd -- {words}; return ;;'
        for name, words in _outputs().items()
    ]
    return ZSH.format(described="\n".join(described), outputs="\n".join(outputs), cases="\n".join(cases))


def _known() -> dict[str, str]:
    """Every command with the words that may follow it."""
    from controlplane.cli.main import COMMANDS

    return {name: f"{WORDS.get(name, '')} {' '.join(flags(name))}".strip() for name in COMMANDS}


def _outputs() -> dict[str, str]:
    """What may follow `-o` of each command that has it, as its help says."""
    from controlplane.cli.main import COMMANDS

    found = {name: _OUTPUT.search(_help(name)) for name in COMMANDS}
    words = {name: match[1].replace("|", " ") for name, match in found.items() if match is not None}
    return words | {"checkpoint": " ".join(FORMS)}  # of its verbs


def flags(command: str, *verb: str) -> list[str]:
    """The flags that the help of a command (or of a verb of it) names, in its order."""
    return list(dict.fromkeys(_FLAG.findall(_help(command, *verb))))


@cache
def _help(command: str, *verb: str) -> str:
    from controlplane.cli.main import main

    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        if main([command, *verb, "--help"]) != OK:
            raise CliError(f"`holdfast {' '.join([command, *verb])} --help` failed")
    return said.getvalue()


COMMANDS = {"completion": completion}
