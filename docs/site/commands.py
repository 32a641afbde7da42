"""Write the page of all commands from the parsers of the command line, so that it cannot be stale."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from controlplane.cli.completion import walk
from controlplane.cli.main import tree

if TYPE_CHECKING:
    from collections.abc import Iterator

COLUMNS = 100
HEAD = """# Commands

What `holdfast COMMAND --help` prints, for every command. Flags may be written with hyphens or underscores.
"""


def page() -> str:
    """The page: a section for each command, and for each of its verbs."""
    os.environ["COLUMNS"] = str(COLUMNS)  # what argparse wraps at
    return "\n".join([HEAD, *_sections()])


def _sections() -> Iterator[str]:
    for parser in walk(tree()):
        title = parser.prog
        level = "##" if title.count(" ") < 2 else "###"
        yield f"{level} {title}\n\n```text\n{parser.format_help().rstrip()}\n```\n"
