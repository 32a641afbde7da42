"""`holdfast events`: the journal, from a coordinator or from its file."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controlplane.cli.errors import OK, CliError
from controlplane.cli.flags.credentials import access_of, add_access, coordinator
from controlplane.cli.flags.parser import Parser, whole
from controlplane.cli.questions.outputs import JSON, WIDE, add_output, part
from controlplane.daemon.journal.rotation import Reader
from controlplane.telling.event_text import Level, stamped, tell
from controlplane.telling.lines import job_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator, Sequence


def events(argv: Sequence[str]) -> int:
    """Print the journal, told for people or as it is."""
    parser = Parser("events", "What happened, what was decided, and why, in order.")
    parser.add_argument("--follow", action="store_true", help="go on as lines come, until Ctrl-C")
    parser.add_argument(
        "--journal",
        default="",
        metavar="FILE",
        help="read this file, and those before it (FILE.000001 ...), instead of asking",
    )
    parser.add_argument("--job", default="", help="of this job only")
    parser.add_argument("--all", action="store_true", help="every event and effect, not decisions only")
    number = whole(0, "lines are numbered from 1", most=(1 << 63) - 1)
    parser.add_argument("--after", type=number, default=0, metavar="N", help="lines behind sequence number N")
    add_output(parser, "wide: the same as --all; json: lines as written", former="text")
    parser.add_argument("--coordinator", default=coordinator(), metavar="HOST:PORT", help="whom to ask")
    add_access(parser)
    return asyncio.run(_events(parser.read(argv)))


async def _events(values: argparse.Namespace) -> int:
    source = _from_file(values) if values.journal else _from_coordinator(values)
    async for text in source:
        show(text, values)
    return OK


def show(text: str, values: argparse.Namespace) -> None:
    """Print one line as the flags want it, or leave it out."""
    if values.output == JSON:
        print(text, flush=values.follow)
        return
    line = read_line(text)
    if said := part(values.output, line):
        print(said, flush=values.follow)
    elif values.all or values.output == WIDE or tell(line).level <= Level.DECISION:
        print(stamped(line), flush=values.follow)


def read_line(text: str) -> dict[str, Any]:
    """A line of the journal. Raises CliError when it is none."""
    try:
        line: dict[str, Any] = json.loads(text)
        line["type"], line["body"], line["wall_s"]
    except (ValueError, KeyError, TypeError) as error:
        raise CliError(f"this is no line of a journal ({error!r}): {text[:80]!r}") from error
    return line


async def _from_coordinator(values: argparse.Namespace) -> AsyncIterator[str]:
    from controlplane.cli.client import Admin

    async with Admin(values.coordinator, access=access_of(values)) as admin:
        async for line in admin.events(values.follow, values.after, values.job):
            yield line.json


async def _from_file(values: argparse.Namespace) -> AsyncIterator[str]:
    path = Path(values.journal)
    try:
        reader = Reader(path)
    except OSError as error:
        raise CliError(f"journal {path}: {error.strerror}") from error
    with contextlib.closing(reader):
        while True:
            for text in reader.lines():
                line = read_line(text)
                mine = not values.job or job_of(line["body"]) == values.job
                if mine and line["sequence"] > values.after:
                    yield text
            if not values.follow:
                return
            await asyncio.sleep(0.1)


COMMANDS = {"events": events}
