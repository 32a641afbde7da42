"""`holdfast status`, `holdfast get` and `holdfast stop`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from controlplane.cli.client import AdminClient
from controlplane.cli.errors import OK, CliError, UnreachableError, nearest
from controlplane.cli.flags.credentials import access_of, add_access, coordinator
from controlplane.cli.flags.parser import CommandSpec, Parser, one_of
from controlplane.cli.local.finding import coordinator_for
from controlplane.cli.questions.colours import show
from controlplane.cli.questions.documents import shown
from controlplane.cli.questions.outputs import TABLE, WIDE, add_output, data, for_programs, part
from controlplane.cli.questions.screens import LastPicture
from controlplane.cli.questions.tables import CHECKPOINTS, TABLES, Table, as_json
from controlplane.reporting.lines import brief

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from controlplane.wire import control_pb2 as pb


HEALTH_MAX = 400
"""How many characters of a reason for bad health are shown, on a line of its own."""


def add_coordinator(parser: Parser, *, found: bool = True, late: bool = False) -> None:
    """Add the flags that name the coordinators and the credentials for them.

    `found`: without the flag, a run of this user on this machine is asked. `late`: which one, the command
    finds out when it asks (`coordinator_for`): it may have nothing to ask."""
    run = "else the run of this user on this machine, " if found else ""
    parser.add_argument(
        "--coordinator",
        type=coordinator_for if found and not late else str,
        default="" if found else coordinator(),
        metavar="HOST:PORT",
        help="addresses of the coordinators, comma separated (default: the variable HOLDFAST_COORDINATOR, "
        f"{run}else 127.0.0.1:7070)",
    )
    add_access(parser)


def _get_flags(parser: Parser) -> None:
    single = tuple(name.removesuffix("s") for name in TABLES)
    parser.add_argument(
        "what", type=one_of(*TABLES, former=single), metavar="|".join(TABLES),
        help="the table to show; job, node, rank, checkpoint mean the same",
    )  # fmt: skip
    parser.add_argument(
        "names", nargs="*", metavar="NAME",
        help="only these: names of jobs or nodes, ranks or their members, ids of checkpoints",
    )  # fmt: skip
    add_output(parser, "name: a line for each, as job/NAME", names=True)
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
    table = TABLES[values.what if values.what in TABLES else f"{values.what}s"]
    if values.names:
        keep_named(status, table, values.names)
    if text := shown(values.output, table, status):
        if for_programs(values.output):
            print(text)
        else:
            show(text)
    return OK


def keep_named(status: pb.StatusReply, table: Table, names: Sequence[str]) -> None:
    """Drop from a table what has none of these names. Raises CliError when a name is not there."""
    rows = getattr(status, table.field)
    for name in names:
        if not any(name in _names(row, table) for row in rows):
            known = [each for row in rows for each in _names(row, table)]
            raise CliError(
                f"no {table.field.removesuffix('s')} named {name:.80}{nearest(name, known)} "
                f"(see `holdfast get {table.field}`)"
            )
    kept = [row for row in rows if _names(row, table) & set(names)]
    del rows[:]
    rows.extend(kept)


def _names(row: Any, table: Table) -> set[str]:
    """What a row of a table may be called."""
    return {str(getattr(row, field)) for field in table.names}


def find_job(status: pb.StatusReply, job: str) -> pb.JobRow:
    """The row of this job. Raises CliError, with the nearest known name, when there is none."""
    known = {row.job: row for row in status.jobs}
    if job not in known:
        raise CliError(f"no job named {job:.80}{nearest(job, known)} (see `holdfast get jobs`)")
    return known[job]


def _only(status: pb.StatusReply, job: str) -> None:
    """Drop from the answer what is not of this job. Raises CliError when there is no such job."""
    find_job(status, job)
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
        write, wide = (part if values.watch else data), values.output == WIDE
        last = LastPicture(whole=wide)
        while True:
            try:
                reply = await admin.status()
            except UnreachableError as error:
                if not values.watch or for_programs(values.output):
                    raise
                last.stays(error)
                await asyncio.sleep(1)
                continue
            if for_programs(values.output):
                print(write(values.output, as_data(reply)), flush=True)
            elif values.watch:
                last.show(overview(reply, wide=wide) + "\n")
            else:
                show(overview(reply, wide=wide))
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
