"""Colour the words that say how bad something is, on a terminal: the health, and how severe a finding is.

Only text that is already neutral is coloured, and only where Holdfast itself writes such a word: below the
heading HEALTH of a table, and at the beginning of some lines. What others wrote stays neutral: it is escaped
before any colour is added. There is none with NO_COLOR (https://no-color.org), on a terminal that is dumb,
and where the output is no terminal."""

from __future__ import annotations

import os
import re
import sys

from holdfast.neutral import neutral, raw

COLOURS = {"healthy": "32", "degraded": "33", "warning": "33", "critical": "1;31"}
"""The colour of each word (SGR parameters), for every command: green, yellow, bold red."""
HEADING = "HEALTH"
_WORD = f"({'|'.join(COLOURS)})"
_PLACES = tuple(
    re.compile(place)
    for place in (
        rf"[Hh]ealth: +{_WORD}(?=$|;)",  # status, top; describe
        rf"(?:job|cluster) [^ :]+: {_WORD}$",  # doctor: the level
        rf"{_WORD}: [a-z_]+, ",  # doctor: a finding
        rf"  {_WORD}: [a-z_]+: ",  # doctor: a finding about the cluster
    )
)


def show(text: str) -> None:
    """Print text for people, coloured where that is wanted."""
    if wanted():
        raw(sys.stdout).write(coloured(neutral(text)) + "\n")
        sys.stdout.flush()
    else:
        print(text, flush=True)


def wanted() -> bool:
    """Whether standard output is a terminal that shows colours, and nobody has said that it should not."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not plain


def coloured(text: str) -> str:
    """Neutral text, with its words coloured."""
    lines, at = [], -1
    for line in text.split("\n"):
        if HEADING in re.split(r"  +", line):
            at = line.index(HEADING)
        elif not line:
            at = -1  # the table ends
        lines.append(_line(line, at))
    return "\n".join(lines)


def _line(line: str, at: int) -> str:
    found = re.compile(rf"{_WORD}(?= |$)").match(line, at) if at >= 0 else None
    for place in _PLACES if found is None and at < 0 else ():
        found = found or place.match(line)
    if found is None:
        return line
    begin, end = found.span(1)
    word = found[1]
    return f"{line[:begin]}\x1b[{COLOURS[word]}m{word}\x1b[0m{line[end:]}"
