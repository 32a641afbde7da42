"""`holdfast why`: explain one incident: evidence, decision, durations, cost; and what slows its job now."""

from __future__ import annotations

import asyncio
import contextlib
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controlplane.analysis.findings_ledger.policy import HELD
from controlplane.cli.client import AdminClient
from controlplane.cli.doctor import live
from controlplane.cli.errors import OK, CliError, UsageError
from controlplane.cli.flags.credentials import access_of
from controlplane.cli.flags.parser import CommandSpec, Parser
from controlplane.cli.questions.events import add_span, read_line, span_of
from controlplane.cli.questions.outputs import WIDE, add_output, data
from controlplane.cli.questions.queries import add_coordinator
from controlplane.cli.questions.tables import NOTHING, plain
from controlplane.daemon.journal.rotation import JournalReader
from controlplane.reporting import repeating, story
from controlplane.reporting.event_text import headline, local_time
from controlplane.reporting.lines import brief
from controlplane.reporting.quantities import duration

if TYPE_CHECKING:
    import argparse


AROUND_S = 60.0
"""How long before and after the moment of --at an incident may be: 14:05 is a whole minute, and clocks that
people look at differ."""
HEADINGS = ("INCIDENT", "BEGAN", "OUTCOME", "TOOK", "LOST", "CAUSE")


def _flags(parser: Parser) -> None:
    parser.add_argument(
        "incident",
        nargs="?",
        default="",
        help="its number, JOB/NUMBER, or JOB for its newest one; default: the newest of all",
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
    """Explain one incident, the newest unless one is named, and then also what is found of its job now.

    Exit code 1 when there is neither."""
    first, last = span_of(values, AROUND_S)
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
        _explain(found, values)
    return OK


def _explain(found: list[story.IncidentReport], values: argparse.Namespace) -> None:
    """Show one incident, and what the diagnosis has open about its job unless an older incident is asked
    for."""
    job, number = named(values.incident, values.job)
    one, nothing = None, None
    try:
        one = pick(found, job, number, values.at)
    except CliError as error:
        nothing = error
    job = job if one is None else one.job
    past = number or values.journal or (values.at, values.since, values.until) != (None, None, None)
    now, findings = ("", []) if past or not job else asyncio.run(_now(values, job))
    if nothing is not None and not findings:
        raise nothing
    shown = {} if one is None else story.as_json(one)
    if one is None or one.outcome != "open":
        now = ""
    answer = {**shown, "job": job, "now": now, "findings": findings}
    print(data(values.output, answer) or _text(one, job, now, findings))


async def _now(values: argparse.Namespace, job: str) -> tuple[str, list[dict[str, Any]]]:
    """What a job does now, and what the diagnosis has open about it, but for the ends of incidents, which
    their story tells."""
    async with AdminClient(values.coordinator, access=access_of(values)) as admin:
        row = next((each for each in (await admin.status()).jobs if each.job == job), None)
        if row is None:
            return "", []  # it was deleted
        report = await admin.diagnose(job)
    findings = [each for each in report["findings"] if each["kind"] not in HELD]
    return f"{row.phase}: {'; '.join([*row.troubles[:1], row.reason])}", findings


def _text(one: story.IncidentReport | None, job: str, now: str, findings: list[dict[str, Any]]) -> str:
    told = f"the journal has no incident of job {job}" if one is None else story.as_text(one)
    lines = [f"  {live.line(each)}" for each in findings]
    standing = [f"Now: {headline(now)}."] if now else []
    return "\n".join(
        [told, *standing, *([f"found of job {job} now (`holdfast doctor {job}`):"] if lines else []), *lines]
    )


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


def named(words: str, job: str) -> tuple[str, str]:
    """The job and the number that are asked for, "" where none is. Raises UsageError."""
    owner, slash, number = words.rpartition("/")
    if number and not number.isdigit():
        if slash:
            raise UsageError(
                f"{words!r} is not an incident: give its number, JOB/NUMBER or JOB "
                "(see `holdfast why --list`)"
            )
        return number, ""
    return owner or job, number


def pick(
    found: list[story.IncidentReport], job: str, number: str, at_s: float | None = None
) -> story.IncidentReport:
    """The incident of this number; else the one nearest to a moment (Unix time), or the newest. Raises
    CliError when there is none."""
    mine = [each for each in found if job in ("", each.job)]
    if number:
        mine = [each for each in mine if each.id == int(number)]
        jobs = sorted({each.job for each in mine})
        if len(jobs) > 1:
            raise UsageError(f"incident {number} is in {', '.join(jobs)}: say which, as {jobs[0]}/{number}")
    if not mine:
        what = f"incident {number}" if number else "incident"
        raise CliError(f"the journal has no {what}{f' of job {job}' if job else ''}")
    if at_s is None:
        return max(mine, key=lambda each: each.begun_s)
    return min(mine, key=lambda each: (_apart_s(each, at_s), -each.begun_s))


def _apart_s(each: story.IncidentReport, at_s: float) -> float:
    """How far a moment is from an incident; 0: it was open then."""
    return max(0.0, each.begun_s - at_s, at_s - (each.ended_s or math.inf))


def show(found: list[story.IncidentReport], form: str) -> None:
    """Show all incidents: one line each, or their full text."""
    if text := data(form, [story.as_json(each) for each in found]):
        print(text)
        return
    if form == WIDE:
        for each in found:
            print(story.as_text(each) + "\n")
    else:
        print(plain(HEADINGS, [row(each) for each in found]) if found else "no incidents")


def row(each: story.IncidentReport) -> list[str]:
    """One incident in the list: when, what, how long, and what was lost."""
    took = duration(sum(each.phases_s.values())) if each.phases_s else NOTHING
    lost = max(0, each.incident.get("lost_steps", 0))
    known = each.outcome == "recovered" and each.plan.get("strategy") != repeating.RELAUNCH
    return [
        f"{each.job}/{each.id}",
        local_time(each.begun_s),
        each.outcome,
        took,
        f"{lost} step{'s' * (lost != 1)}" if known else NOTHING,
        brief(story.happened(each)),
    ]


COMMANDS = {
    "why": CommandSpec(
        "Explain one incident: what failed, the evidence, the decision, how long each phase took, and how "
        "many steps were lost; and what the diagnosis has found of the job now.",
        why,
        _flags,
    )
}
