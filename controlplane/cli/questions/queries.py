"""`holdfast status`, `holdfast get` and `holdfast stop`."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

from controlplane.cli.client import AdminClient
from controlplane.cli.errors import OK, CliError, nearest
from controlplane.cli.flags.credentials import access_of, add_access, coordinator
from controlplane.cli.flags.parser import CommandSpec, Parser, one_of
from controlplane.cli.questions.documents import shown
from controlplane.cli.questions.outputs import TABLE, WIDE, add_output, data, for_programs, part
from controlplane.cli.questions.tables import CHECKPOINTS, TABLES, as_json
from controlplane.reporting.lines import brief
from holdfast.neutral import raw

if TYPE_CHECKING:
    import argparse

    from controlplane.wire import control_pb2 as pb


HEALTH_MAX = 400
"""How many characters of a reason for bad health are shown, on a line of its own."""


def add_coordinator(parser: Parser) -> None:
    """Add the flags that name the coordinators and the credentials for them."""
    parser.add_argument(
        "--coordinator",
        default=coordinator(),
        metavar="HOST:PORT",
        help="addresses of the coordinators, comma separated (default: the variable HOLDFAST_COORDINATOR, "
        "else 127.0.0.1:7070)",
    )
    add_access(parser)


def _get_flags(parser: Parser) -> None:
    parser.add_argument("what", type=one_of(*TABLES), metavar="|".join(TABLES), help="the table to show")
    add_output(parser)
    parser.add_argument("--job", default="", help="show only what belongs to this job")
    add_coordinator(parser)


def get(values: argparse.Namespace) -> int:
    """Show one table. Exit code 1 when --job names a job that is not there."""
    return asyncio.run(_get(values))


async def _get(values: argparse.Namespace) -> int:
    async with AdminClient(values.coordinator, access=access_of(values)) as admin:
        status = await admin.status()
    if values.job:
        _only(status, values.job)
    print(shown(values.output, TABLES[values.what], status))
    return OK


def _only(status: pb.StatusReply, job: str) -> None:
    """Drop from the answer what is not of this job. Raises CliError when there is no such job."""
    known = [row.job for row in status.jobs]
    if job not in known:
        raise CliError(f"no job named {job}{nearest(job, known)} (see `holdfast get jobs`)")
    for field in ("jobs", "ranks", "checkpoints"):
        rows = getattr(status, field)
        kept = [row for row in rows if row.job == job]
        del rows[:]
        rows.extend(kept)


def _status_flags(parser: Parser) -> None:
    add_output(parser, "wide: all fields, and checkpoints; json with --watch: one line each time")
    parser.add_argument("--watch", action="store_true", help="show it again each second, until Ctrl-C")
    add_coordinator(parser)


def status(values: argparse.Namespace) -> int:
    """Show jobs, nodes and ranks, once or again and again."""
    return asyncio.run(_status(values))


async def _status(values: argparse.Namespace) -> int:
    async with AdminClient(values.coordinator, access=access_of(values)) as admin:
        # Cursor home, then clear: only on a terminal.
        clear = ("\x1b[H\x1b[2J" if sys.stdout.isatty() else "\n") if values.watch else ""
        write = part if values.watch else data
        while True:
            reply = await admin.status()
            if for_programs(values.output):
                print(write(values.output, as_data(reply)), flush=True)
            else:
                raw(sys.stdout).write(clear)
                print(overview(reply, wide=values.output == WIDE), flush=True)
            if not values.watch:
                return OK
            await asyncio.sleep(1)


def as_data(reply: pb.StatusReply) -> dict[str, Any]:
    """The whole answer for programs."""
    health = {"level": reply.health.level, "reasons": list(reply.health.reasons)}
    head = {"cluster": reply.cluster, "leader": reply.leader, "term": reply.term, "health": health}
    return head | {name: as_json(table, reply) for name, table in TABLES.items()}


def overview(reply: pb.StatusReply, *, wide: bool = False) -> str:
    """The whole answer as text. `wide`: every field of everything."""
    parts = [f"cluster {reply.cluster}, led by {reply.leader or 'nobody'}, term {reply.term}"]
    if reply.health.level:
        parts.append(health(reply))
    for name, table in TABLES.items():
        if wide or table is not CHECKPOINTS:
            form = WIDE if wide else TABLE
            parts.append(shown(form, table, reply) if getattr(reply, name) else f"no {name}")
    return "\n\n".join(parts)


def health(reply: pb.StatusReply) -> str:
    """The cluster's health, a line for each reason."""
    reasons = [f"  {brief(why, HEALTH_MAX)}" for why in reply.health.reasons]
    return "\n".join([f"health: {reply.health.level or 'unknown'}", *reasons])


def _stop_flags(parser: Parser) -> None:
    parser.add_argument("job", help="name of the job")
    parser.add_argument(
        "--reason", default="asked for with `holdfast stop`", help="the reason that the journal records"
    )
    add_coordinator(parser)


def stop(values: argparse.Namespace) -> int:
    """End a job. Exit code 1 when there is none of that name."""
    return asyncio.run(_stop(values))


async def _stop(values: argparse.Namespace) -> int:
    async with AdminClient(values.coordinator, access=access_of(values)) as admin:
        _only(await admin.status(), values.job)
        await admin.stop(values.job, values.reason)
    print(f"job {values.job} is being stopped")
    return OK


COMMANDS = {
    "get": CommandSpec("Show one table of the cluster that a coordinator leads.", get, _get_flags),
    "status": CommandSpec(
        "Show the jobs, nodes and ranks of a cluster, and the reasons when it is not healthy.",
        status,
        _status_flags,
    ),
    "stop": CommandSpec("End a job: its processes end at once, its checkpoints stay.", stop, _stop_flags),
}
