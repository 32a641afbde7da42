"""Turn a page that GitHub shows into one that mkdocs shows: its links, and its lists.

The pages are written for both. mkdocs lacks what lies outside of docs, so such a link leads to a copy within
the site; and Python-Markdown wants four blanks before an inner list, and an empty line before a list. Pure:
text and paths in, text out."""

from __future__ import annotations

import os
import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

OUTSIDE = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changes.md",
    "LICENSE": "license.md",
    "benchmarks/README.md": "benchmarks.md",
    "examples/README.md": "examples.md",
    "helm/holdfast/README.md": "chart.md",
}
"""Files of the repository that are pages of the site, and their names there."""

_LINK = re.compile(r"(?P<before>\]\()(?P<path>[^)#:\s]+)(?P<rest>(?:#[^)\s]*)?\))")
_FENCE = re.compile(r"^ *(```|~~~)")
_ITEM = re.compile(r"^(?P<indent> *)(?:[-*]|\d+\.) +\S")


def place(path: str) -> str:
    """The name within the site of a file or folder of the repository; both are relative to their roots."""
    if path in OUTSIDE:
        return OUTSIDE[path]
    inside = PurePosixPath(path)
    if inside.parts[0] == "docs" and inside.suffix == ".md":
        return str(inside.relative_to("docs"))
    return f"files/{path}.md"


def targets(text: str, page: str) -> set[str]:
    """The files and folders of the repository that a page links to; `page` is its own path there."""
    return {_resolved(page, found["path"]) for line in _prose(text) for found in _LINK.finditer(line)}


def linked(text: str, page: str) -> str:
    """The page with every link to a file of the repository changed into one within the site."""
    here = os.path.dirname(place(page))

    def within(found: re.Match[str]) -> str:
        there = os.path.relpath(place(_resolved(page, found["path"])), here or ".")
        return f"{found['before']}{there}{found['rest']}"

    return _outside_of_code(text, lambda line: _LINK.sub(within, line))


def lists(text: str) -> str:
    """The page with inner lists indented by four blanks, and an empty line before each list."""
    lines: list[str] = []
    fenced, shift, listing, before = False, "", False, ""
    for line in text.splitlines():
        fence = bool(_FENCE.match(line))
        if fenced:
            lines.append(shift + line if line else line)
            fenced = not fence
            continue
        item = _ITEM.match(line)
        if item and not listing and before.strip():
            lines.append("")
        if item:
            listing = True
        elif line and not line.startswith(" "):  # goes on in the item, unless an empty line came before
            listing = bool(listing and before.strip() and not fence)
        shift = _shift(line) if listing else ""
        fenced = fence
        lines.append(shift + line)
        before = line
    return "\n".join(lines) + "\n"


def _shift(line: str) -> str:
    """The blanks that are missing: a level of a list is two or three wide here, and four there."""
    width = len(line) - len(line.lstrip(" "))
    return " " * (4 * (width // 2) - width) if line.strip() else ""


def _resolved(page: str, link: str) -> str:
    return os.path.normpath(os.path.join(os.path.dirname(page), link))


def _prose(text: str) -> list[str]:
    return _outside_of_code(text, str, drop=True).splitlines()


def _outside_of_code(text: str, change: Callable[[str], str], *, drop: bool = False) -> str:
    """Change, line by line, what is not in a block of code; leave the blocks as they are, or drop them."""
    lines, code = [], False
    for line in text.splitlines():
        if _FENCE.match(line):
            code = not code
        if not (code and drop):
            lines.append(line if code else change(line))
    return "\n".join(lines) + "\n"
