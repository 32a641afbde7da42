"""`holdfast quarantine`: list the nodes with a history of failures, and release one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from controlplane.cli.client import AdminClient
from controlplane.cli.errors import OK
from controlplane.cli.flags.credentials import access_of
from controlplane.cli.flags.parser import CommandSpec, Parser
from controlplane.cli.orders.drain import REASON
from controlplane.cli.questions.documents import shown
from controlplane.cli.questions.outputs import TABLE, WIDE, add_output
from controlplane.cli.questions.queries import add_coordinator
from controlplane.cli.questions.tables import NODES, plain

if TYPE_CHECKING:
    import argparse

    from controlplane.wire import control_pb2 as pb

_HEADINGS = ("NODE", "STATE", "ELIGIBILITY", "SCORE", "REASON")


def _flags(parser: Parser) -> None:
    add_output(parser)
    parser.add_argument("--release", default="", metavar="NODE", help="forget the failures of this node")
    parser.add_argument("--reason", default="released by hand", help=REASON)
    add_coordinator(parser)


def quarantine(values: argparse.Namespace) -> int:
    """Show the nodes with a history of failures, or release one. Exit code 1 when there is no such node."""
    return asyncio.run(_quarantine(values))


async def _quarantine(values: argparse.Namespace) -> int:
    async with AdminClient(values.coordinator, access=access_of(values)) as admin:
        if values.release:
            await admin.release(values.release, values.reason)
            print(f"node {values.release} is released: its failures are forgotten")
            return OK
        reply = await admin.status()
    found = [row for row in reply.nodes if row.score > 0 or row.standing not in ("", "ok")]
    del reply.nodes[:]
    reply.nodes.extend(found)
    print(_text(values.output, reply))
    return OK


def _text(form: str, reply: pb.StatusReply) -> str:
    if form != TABLE and (reply.nodes or form != WIDE):
        return shown(form, NODES, reply)
    rows = [
        [row.node, row.state, row.standing or "ok", f"{row.score:.1f}", row.reason or "-"]
        for row in reply.nodes
    ]
    return plain(_HEADINGS, rows) if rows else "no node has a history of failures"


COMMANDS = {
    "quarantine": CommandSpec(
        "List the nodes that have failed before, with the reasons. A node that failed too often is "
        "quarantined: it gets ranks only when no other node is free. --release ends that.",
        quarantine,
        _flags,
    )
}
