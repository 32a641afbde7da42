"""`holdfast delete job`: have the cluster forget jobs that have ended."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from controlplane.cli.client import AdminClient
from controlplane.cli.errors import FAILED, OK, CliError, UnreachableError, nearest
from controlplane.cli.flags.credentials import access_of
from controlplane.cli.flags.parser import CommandSpec, Parser, one_of
from controlplane.cli.orders.drain import REASON
from controlplane.cli.questions.queries import add_coordinator

if TYPE_CHECKING:
    import argparse

ABOUT = (
    "Forget jobs that have ended: they are no longer listed, and a job of the same name begins anew. Their "
    "checkpoints stay on storage, and their events in the journal. A job that has not ended is refused: end "
    "it with `holdfast stop`."
)


def _flags(parser: Parser) -> None:
    parser.add_argument(
        "what", type=one_of("job", former=("jobs",)), metavar="job", help="the word job (or jobs)"
    )
    parser.add_argument("names", nargs="+", metavar="NAME", help="names of the jobs")
    parser.add_argument("--reason", default="by hand", help=REASON)
    add_coordinator(parser)


def delete(values: argparse.Namespace) -> int:
    """Forget jobs. Exit code 1 when one of them is not there, or cannot be forgotten yet."""
    return asyncio.run(deleted(values))


async def deleted(values: argparse.Namespace) -> int:
    """The command, within a running loop. What is refused keeps none of the others from being deleted."""
    code = OK
    async with AdminClient(values.coordinator, access=access_of(values)) as admin:
        known = {row.job for row in (await admin.status()).jobs}
        for name in dict.fromkeys(values.names):
            try:
                reply = await admin.delete(name, values.reason)
            except UnreachableError:
                raise
            except CliError as error:
                near = nearest(name, known) if name not in known else ""
                print(f"holdfast delete: {error}{near}", file=sys.stderr)
                code = FAILED
            else:
                print(f"job {name}: {reply.outcome}; {reply.reason}", flush=True)
    return code


COMMANDS = {"delete": CommandSpec(ABOUT, delete, _flags)}
