"""`holdfast submit`: give a job to a running coordinator."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from controlplane.cli.client import AdminClient
from controlplane.cli.errors import OK, UsageError
from controlplane.cli.flags.credentials import access_of
from controlplane.cli.flags.job import add_job_flags, job_name, read_job, unused_flags
from controlplane.cli.flags.parser import CommandSpec, Parser
from controlplane.cli.orders.follow import end_message, until_end
from controlplane.cli.questions.queries import add_coordinator
from controlplane.reporting.event_text import EventLevel, sentence_of, stamped

if TYPE_CHECKING:
    import argparse

    from controlplane.core.records.model import JobSpec

USAGE = "holdfast submit [flags] SCRIPT [the script's arguments]"
ABOUT = (
    "Give a training job to a running coordinator. It runs on the nodes whose agents are connected, as soon "
    "as there are enough. The same job again continues it."
)


def _flags(parser: Parser) -> None:
    parser.add_script("SCRIPT", "the training script; all that follows is passed to it")
    add_coordinator(parser, found=False)  # a job of its own is no guest in the run of another
    parser.add_argument(
        "--wait", action="store_true", help="return when the job ends; the exit code says how it ended"
    )
    parser.add_argument(
        "--cwd", default="", metavar="FOLDER", help="working directory of the ranks (default: this one)"
    )
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME[=VALUE]",
        help="an environment variable of the ranks (without VALUE: its value here); repeatable",
    )
    add_job_flags(parser)


def submit(values: argparse.Namespace) -> int:
    """Submit a job; with --wait stay until it ends."""
    if not values.command:
        raise UsageError(f"no script given: {USAGE}")
    print(unused_flags(values), end="\n" if unused_flags(values) else "", file=sys.stderr)
    spec = read_job(values, values.command, job_name(values, values.command)[0])
    spec = dataclasses.replace(spec, cwd=values.cwd or spec.cwd, env=tuple(map(_variable, values.env)))
    return asyncio.run(_submit(values, spec))


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals and name not in os.environ:
        raise UsageError(f"--env {name}: not set here; give --env {name}=VALUE")
    return name, value if equals else os.environ[name]


async def _submit(values: argparse.Namespace, spec: JobSpec) -> int:
    started = time.time()
    async with AdminClient(values.coordinator, access=access_of(values)) as admin:
        reply = await admin.submit(spec)
        print(f"job {reply.job} {'continues' if reply.resumed else 'submitted'}, {reply.phase}", flush=True)
        if not values.wait:
            return OK
        ending = await until_end(admin, reply.job, started - 1.0, _print_headline)
    print(end_message(ending), file=sys.stdout if ending.code == OK else sys.stderr)
    return ending.code


def _print_headline(line: dict[str, Any]) -> None:
    if sentence_of(line).level <= EventLevel.HEADLINE:
        print(stamped(line), flush=True)


COMMANDS = {"submit": CommandSpec(ABOUT, submit, _flags, USAGE)}
