"""`holdfast events`: print the journal, from a coordinator or from its file."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controlplane.cli.errors import OK, CliError, UsageError
from controlplane.cli.flags.credentials import access_of
from controlplane.cli.flags.moments import MOMENT, moment
from controlplane.cli.flags.parser import CommandSpec, Parser, whole
from controlplane.cli.questions.outputs import JSON, WIDE, add_output, part
from controlplane.cli.questions.queries import add_coordinator
from controlplane.daemon.journal.rotation import JournalReader
from controlplane.reporting.event_text import EventLevel, dated, sentence_of
from controlplane.reporting.lines import job_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator

AROUND_S = 30.0
"""How long before and after the moment of --at."""


def _flags(parser: Parser) -> None:
    parser.add_argument("--follow", action="store_true", help="print new lines as they come, until Ctrl-C")
    parser.add_argument(
        "--journal",
        default="",
        metavar="FILE",
        help="read this journal, and its older files (FILE.000001 ...), instead of asking a coordinator",
    )
    parser.add_argument("--job", default="", help="only lines about this job")
    parser.add_argument("--all", action="store_true", help="print every event and effect, not only decisions")
    number = whole(0, "lines are numbered from 1", most=(1 << 63) - 1)
    parser.add_argument("--after", type=number, default=0, metavar="N", help="start after line number N")
    add_span(parser)
    add_output(parser, "wide: the same as --all; json: the lines of the journal as they are", former="text")
    add_coordinator(parser)


def add_span(parser: Parser) -> None:
    """Add the flags that limit what is shown to a span of time."""
    parser.add_argument(
        "--since", type=moment, default=None, metavar="WHEN", help=f"only what happened since then: {MOMENT}"
    )
    parser.add_argument(
        "--until", type=moment, default=None, metavar="WHEN", help="only what happened until then"
    )
    parser.add_argument(
        "--at", type=moment, default=None, metavar="WHEN", help="only what happened around then"
    )


def span_of(values: argparse.Namespace, around_s: float = AROUND_S) -> tuple[float, float]:
    """The first and the last moment (Unix time) that is asked for. Raises UsageError."""
    if values.at is not None:
        if values.since is not None or values.until is not None:
            raise UsageError("--at is a span of its own: give it without --since and --until")
        return values.at - around_s, values.at + around_s
    first = -math.inf if values.since is None else values.since
    last = math.inf if values.until is None else values.until
    if first > last:
        raise UsageError("--since is later than --until: nothing lies between them")
    return first, last


def events(values: argparse.Namespace) -> int:
    """Print the journal, in words or as it is stored. Exit code 1 when it has nothing about --job."""
    return asyncio.run(_events(values))


async def _events(values: argparse.Namespace) -> int:
    source = _from_file(values) if values.journal else _from_coordinator(values)
    first, last = span_of(values)
    found = False
    async for text in source:
        found = True
        if first <= read_line(text)["wall_s"] <= last:
            show(text, values)
    if values.job and not found:
        later = f" after line {values.after}" if values.after else ""
        raise CliError(f"the journal has no line about job {values.job:.80}{later} (see `holdfast get jobs`)")
    return OK


def show(text: str, values: argparse.Namespace) -> None:
    """Print one line in the format that the flags ask for, or leave it out."""
    if values.output == JSON:
        print(text, flush=values.follow)
        return
    line = read_line(text)
    if line_text := part(values.output, line):
        print(line_text, flush=values.follow)
    elif values.all or values.output == WIDE or sentence_of(line).level <= EventLevel.DECISION:
        print(dated(line), flush=values.follow)


def read_line(text: str) -> dict[str, Any]:
    """Parse a line of the journal. Raises CliError when it is not one."""
    try:
        line: dict[str, Any] = json.loads(text)
        line["type"], line["body"], line["wall_s"]
    except (ValueError, KeyError, TypeError) as error:
        raise CliError(f"this is not a line of a journal ({error!r}): {text[:80]!r}") from error
    return line


async def _from_coordinator(values: argparse.Namespace) -> AsyncIterator[str]:
    from controlplane.cli.client import AdminClient

    async with AdminClient(values.coordinator, access=access_of(values)) as admin:
        async for line in admin.events(values.follow, values.after, values.job):
            yield line.json


async def _from_file(values: argparse.Namespace) -> AsyncIterator[str]:
    path = Path(values.journal)
    try:
        with contextlib.closing(JournalReader(path)) as reader:
            while True:
                for text in reader.lines():
                    line = read_line(text)
                    mine = not values.job or job_of(line["body"]) == values.job
                    if mine and line["sequence"] > values.after:
                        yield text
                if not values.follow:
                    return
                await asyncio.sleep(0.1)
    except OSError as error:
        raise CliError(f"journal {path}: {error.strerror}") from error


COMMANDS = {
    "events": CommandSpec(
        "Print what happened in a cluster, in order: failures, decisions with their reasons, checkpoints.",
        events,
        _flags,
    )
}
