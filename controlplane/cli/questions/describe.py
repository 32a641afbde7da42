"""`holdfast describe`: show everything that a coordinator knows about one job, node or checkpoint."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from controlplane.cli.client import AdminClient
from controlplane.cli.errors import OK, CliError, nearest
from controlplane.cli.flags.credentials import access_of
from controlplane.cli.flags.parser import CommandSpec, Parser, one_of
from controlplane.cli.questions.colours import show
from controlplane.cli.questions.events import read_line
from controlplane.cli.questions.outputs import WIDE, add_output, data, for_programs
from controlplane.cli.questions.queries import add_coordinator
from controlplane.cli.questions.tables import (
    CHECKPOINTS,
    NOTHING,
    RANKS,
    Table,
    age,
    loss,
    message,
    plain,
    step_time,
)
from controlplane.reporting import dates, story
from controlplane.reporting.event_text import EventLevel, sentence_of, stamped
from controlplane.reporting.lines import job_of
from controlplane.reporting.quantities import duration, size

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable

    from controlplane.wire import control_pb2 as pb

Lines = list[dict[str, Any]]
Row = tuple[str, str]
EVENTS_SHOWN = 15


def _flags(parser: Parser) -> None:
    parser.add_argument("what", type=one_of(*KINDS), metavar="|".join(KINDS), help="what to describe")
    parser.add_argument("name", help="its name; for a checkpoint its id, or JOB/ID")
    add_output(parser, "wide: all events about it, not only the newest")
    add_coordinator(parser)


def describe(values: argparse.Namespace) -> int:
    """Show everything about one thing. Exit code 1 when there is none of this name."""
    return asyncio.run(_describe(values))


async def _describe(values: argparse.Namespace) -> int:
    async with AdminClient(values.coordinator, access=access_of(values)) as admin:
        status = await admin.status()
        lines = [read_line(line.json) async for line in admin.events(follow=False)]
    known = KINDS[values.what](values.name, status, lines)
    if for_programs(values.output):
        print(data(values.output, as_data(known, lines)))
    else:
        show(described(known, lines, len(lines) if values.output == WIDE else EVENTS_SHOWN))
    return OK


@dataclass(frozen=True, slots=True)
class Known:
    """One thing: its row, the facts to show about it, and what belongs to it."""

    kind: str
    row: Any
    facts: list[Row]
    concerns: Callable[[dict[str, Any]], bool]  # whether a line of the journal is about it
    ranks: list[Any] = field(default_factory=list)
    checkpoints: list[Any] = field(default_factory=list)
    incidents: list[story.IncidentReport] = field(default_factory=list)


def described(known: Known, lines: Lines, shown: int) -> str:
    """The text for people, with the newest `shown` incidents and events."""
    heads = [story.as_text(each).partition("\n")[0] for each in known.incidents[-shown:]]
    parts = [
        _facts(known.facts),
        _section("Ranks" if known.kind == "job" else "Processes", _table(RANKS, known.ranks)),
        _section("Checkpoints", _table(CHECKPOINTS, known.checkpoints)),
        _section("Incidents (`holdfast why NUMBER` tells one)", "\n".join(heads)),
        _section("Newest events", _events(lines, known.concerns, shown)),
    ]
    return "\n\n".join(part for part in parts if part)


def as_data(known: Known, lines: Lines) -> dict[str, Any]:
    """The same for programs: its fields by the names of the wire, what belongs to it, its lines of the
    journal."""
    return {
        known.kind: message(known.row),
        "ranks": list(map(message, known.ranks)),
        "checkpoints": list(map(message, known.checkpoints)),
        "incidents": list(map(story.as_json, known.incidents)),
        "events": list(filter(known.concerns, lines)),
    }


def job(name: str, status: pb.StatusReply, lines: Lines) -> Known:
    """A job: its state, ranks, checkpoints and incidents."""
    row = _named(name, status.jobs, "job", "job")
    facts = [
        ("Job", row.job),
        ("Phase", row.phase),
        ("Health", "; ".join([row.health, *row.troubles]) if row.health else ""),
        ("Reason", row.reason),
        ("Runs", row.argv),
        ("Generation", f"{row.generation}, {row.world_size} ranks"),
        ("Age", age(row)),
        ("Step", str(row.step) if row.step >= 0 else NOTHING),
        ("Step time", step_time(row)),
        ("Ends", dates.arrival(row, time.time())),
        ("Loss", loss(row)),
        ("Failures survived", str(row.restarts)),
        ("Incidents", str(row.incidents)),
        ("Newest checkpoint", row.last_checkpoint),
    ]
    return Known(
        "job",
        row,
        facts,
        lambda line: job_of(line["body"]) == name,
        [each for each in status.ranks if each.job == name],
        [each for each in status.checkpoints if each.job == name],
        [each for each in story.stories(lines) if each.job == name],
    )


def node(name: str, status: pb.StatusReply, _lines: Lines) -> Known:
    """A node: its state, what runs there, and what happened to it."""
    row = _named(name, status.nodes, "node", "node")
    facts = [
        ("Node", row.node),
        ("State", row.state),
        ("Eligibility", f"{row.standing or 'ok'}, score {row.score:.1f}"),
        ("Reason", row.reason),
        ("Address", row.address),
        ("Slots", str(row.slots)),
        ("Processes", str(row.members)),
        ("Last heard", f"{duration(row.last_heard_s)} ago"),
        ("Connected", f"for {duration(row.connected_s)}" if row.connected_s > 0 else NOTHING),
        ("Incarnation of its agent", str(row.incarnation)),
    ]

    def concerns(line: dict[str, Any]) -> bool:
        body = line["body"]
        if line["type"] == "Note":
            about_node = str(body["kind"]).startswith(_ABOUT_NODES)
            return about_node and str(body["subject"]).partition("/")[0] == name
        return body.get("node") == name or name in (body.get("verdict") or {}).get("nodes", ())

    return Known("node", row, facts, concerns, [each for each in status.ranks if each.node == name])


def checkpoint(name: str, status: pb.StatusReply, _lines: Lines) -> Known:
    """A checkpoint: what it holds, whether it is good, and what became of it."""
    owner, _, number = name.rpartition("/")
    rows = [each for each in status.checkpoints if owner in ("", each.job)]
    row = _named(number, rows, "id", "checkpoint")
    facts = [
        ("Checkpoint", row.id),
        ("Job", row.job),
        ("Step", str(row.step)),
        ("Generation", str(row.generation)),
        ("Kind", f"{row.kind}, on base {row.base}"),
        ("Size", f"{size(row.bytes_total)}, {size(row.bytes_written)} of it written"),
        ("State", "published" if row.published else "committed, not yet published"),
        ("Damage", row.bad),
        ("Suspect", row.suspect),
        ("Shards", ", ".join(row.shards) or "one: every rank holds the whole state"),
        ("Digest", row.manifest_digest),
    ]

    def concerns(line: dict[str, Any]) -> bool:
        body = line["body"]
        known = body.get("checkpoint") or (body.get("record") or {}).get("id")
        return bool(known == row.id and job_of(line["body"]) == row.job)

    return Known("checkpoint", row, facts, concerns)


_ABOUT_NODES = (
    "node_",
    "device_",
    "drain",
    "cordon",
    "uncordon",
    "quarantin",
    "unquarantin",
    "not_quarantin",
)
"""Beginnings of the kinds of notes whose subject is a node, or `node/device`. Notes of other kinds are about
jobs, and a job may have the name of a node."""

KINDS: dict[str, Callable[[str, Any, Lines], Known]] = {"job": job, "node": node, "checkpoint": checkpoint}


def _named(name: str, rows: Iterable[Any], field: str, kind: str) -> Any:
    """The row of this name. Raises CliError, with the nearest known name."""
    known = {str(getattr(row, field)): row for row in rows}
    if name not in known:
        raise CliError(f"no {kind} named {name}{nearest(name, known)} (see `holdfast get {kind}s`)")
    return known[name]


def _facts(facts: list[Row]) -> str:
    width = max(len(label) for label, _ in facts) + 2
    rest = "\n" + " " * (width + 1)
    described = [(label, rest.join(value.splitlines())) for label, value in facts if value]
    return "\n".join(f"{(label + ':').ljust(width)} {value}" for label, value in described)


def _section(title: str, text: str) -> str:
    return f"{title}:\n" + "\n".join(f"  {line}" for line in text.splitlines()) if text else ""


def _table(table: Table, rows: list[Any]) -> str:
    return plain(table.headings(), [[show(row) for _, show in table.columns] for row in rows]) if rows else ""


def _events(lines: Lines, concerns: Callable[[dict[str, Any]], bool], shown: int) -> str:
    mine = [line for line in lines if concerns(line) and sentence_of(line).level <= EventLevel.DECISION]
    return "\n".join(stamped(line).partition("\n")[0] for line in mine[-shown:]) if shown else ""


COMMANDS = {
    "describe": CommandSpec(
        "Show everything that a coordinator knows about one job, node or checkpoint: state, ranks, "
        "checkpoints, incidents, newest events.",
        describe,
        _flags,
    )
}
