"""`holdfast why`: explain one incident: evidence, decision, durations, cost."""

from __future__ import annotations

import asyncio
import contextlib
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controlplane.cli.client import AdminClient
from controlplane.cli.errors import OK, CliError, UsageError
from controlplane.cli.flags.credentials import access_of
from controlplane.cli.flags.parser import CommandSpec, Parser
from controlplane.cli.questions.events import add_span, read_line, span_of
from controlplane.cli.questions.outputs import WIDE, add_output, data
from controlplane.cli.questions.queries import add_coordinator
from controlplane.cli.questions.tables import NOTHING, plain
from controlplane.daemon.journal.rotation import JournalReader
from controlplane.reporting import story
from controlplane.reporting.event_text import local_time
from controlplane.reporting.lines import brief
from controlplane.reporting.quantities import duration

if TYPE_CHECKING:
    import argparse


HEADINGS = ("INCIDENT", "BEGAN", "OUTCOME", "TOOK", "LOST", "CAUSE")


def _flags(parser: Parser) -> None:
    parser.add_argument(
        "incident", nargs="?", default="", help="its number, or JOB/NUMBER; default: the newest"
    )
    parser.add_argument("--job", default="", help="only incidents of this job")
    parser.add_argument(
        "--list",
        action="store_true",
        help="list all incidents: when, outcome, duration, lost steps, cause",
    )
    add_span(parser)
    add_output(
        parser, "wide: with --list, the full text of each; json, yaml: times in seconds", json_flag=True
    )
    parser.add_argument(
        "--journal", default="", metavar="FILE", help="read this journal instead of asking a coordinator"
    )
    add_coordinator(parser)


def why(values: argparse.Namespace) -> int:
    """Explain one incident, the newest unless one is named. Exit code 1 when there is none."""
    first, last = span_of(values, 0.0)
    found = [
        each
        for each in story.stories(asyncio.run(lines_of(values)))
        if each.begun_s <= last and (each.ended_s or math.inf) >= first
    ]
    if not found and not values.list and (values.at, values.since, values.until) != (None, None, None):
        raise CliError("there was no incident at that time (see `holdfast why --list`)")
    if values.list:
        job = values.job
        show([each for each in found if job in ("", each.job)], values.output)
    else:
        one = pick(found, values.incident, values.job)
        print(data(values.output, story.as_json(one)) or story.as_text(one))
    return OK


async def lines_of(values: argparse.Namespace) -> list[dict[str, Any]]:
    """The lines of the journal, from its file or from a coordinator."""
    if values.journal:
        return from_file(values.journal)
    async with AdminClient(values.coordinator, access=access_of(values)) as admin:
        return [read_line(line.json) async for line in admin.events(follow=False)]


def from_file(path: str) -> list[dict[str, Any]]:
    """The lines of a journal, across its files, without a line that a crash cut off. Raises CliError."""
    try:
        with contextlib.closing(JournalReader(Path(path))) as reader:
            return [read_line(text) for text in reader.lines()]
    except OSError as error:
        raise CliError(f"journal {path}: {error.strerror}") from error


def pick(found: list[story.IncidentReport], named: str, job: str) -> story.IncidentReport:
    """The incident of this number, or the newest. Raises CliError when there is none."""
    owner, _, number = named.rpartition("/")
    if number and not number.isdigit():
        raise UsageError(
            f"{named!r} is not an incident: give its number, or JOB/NUMBER (see `holdfast why --list`)"
        )
    job = owner or job
    mine = [each for each in found if job in ("", each.job)]
    if number:
        mine = [each for each in mine if each.id == int(number)]
        jobs = sorted({each.job for each in mine})
        if len(jobs) > 1:
            raise UsageError(f"incident {number} is in {', '.join(jobs)}: say which, as {jobs[0]}/{number}")
    if not mine:
        what = f"incident {number}" if number else "incident"
        raise CliError(f"the journal has no {what}{f' of job {job}' if job else ''}")
    return max(mine, key=lambda each: each.begun_s)


def show(found: list[story.IncidentReport], form: str) -> None:
    """Show all incidents: one line each, or their full text."""
    if text := data(form, [story.as_json(each) for each in found]):
        print(text)
        return
    if form == WIDE:
        for each in found:
            print(story.as_text(each) + "\n")
    else:
        print(plain(HEADINGS, [_row(each) for each in found]) if found else "no incidents")


def _row(each: story.IncidentReport) -> list[str]:
    """One incident in the list: when, what, how long, and what was lost."""
    took = duration(sum(each.phases_s.values())) if each.phases_s else NOTHING
    lost = each.incident.get("lost_steps", 0)
    return [
        f"{each.job}/{each.id}",
        local_time(each.begun_s),
        each.outcome,
        took,
        f"{lost} steps" if lost > 0 else NOTHING,
        brief(story.happened(each)),
    ]


COMMANDS = {
    "why": CommandSpec(
        "Explain one incident: what failed, the evidence, the decision, how long each phase took, and how "
        "many steps were lost.",
        why,
        _flags,
    )
}
