"""`holdfast submit`: give a job to a running coordinator."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from controlplane.cli.client import AdminClient
from controlplane.cli.errors import OK, CliError, UnreachableError, UsageError
from controlplane.cli.flags.credentials import access_of
from controlplane.cli.flags.job import add_job_flags, job_name, read_job, unused_flags
from controlplane.cli.flags.parser import CommandSpec, Parser
from controlplane.cli.orders import order_file
from controlplane.cli.orders.follow import PAUSE_S, end_message, is_end, until_end
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
        "--order", default="", metavar="FOLDER",
        help="carry out the orders of `holdfast torchrun` in this folder, for the job --rdzv-id, until a "
        "signal comes",
    )  # fmt: skip
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
    """Submit a job; with --wait stay until it ends, with --order until a signal comes."""
    if values.order:
        return asyncio.run(_carry_out(values, Path(values.order)))
    if not values.command:
        raise UsageError(f"no script given: {USAGE}")
    vain = unused_flags(values)
    print(vain, end="\n" if vain else "", file=sys.stderr)
    return asyncio.run(_submit(values, _spec(values)))


def _spec(values: argparse.Namespace) -> JobSpec:
    spec = read_job(values, values.command, job_name(values, values.command)[0])
    env = (*spec.env, *map(_variable, values.env))
    return dataclasses.replace(spec, cwd=values.cwd or spec.cwd, env=env)


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


async def _carry_out(values: argparse.Namespace, folder: Path) -> NoReturn:
    """Submit what is ordered in this folder, and answer; each order once."""
    if values.command or not values.rdzv_id:
        raise UsageError("--order needs --rdzv-id, the only job that may be ordered, and no script")
    done = ""
    while True:
        order = _next(folder, done)
        if order is not None:
            done = order.name
            order_file.answer(folder, order.name, await _submitted(values, order))
        await asyncio.sleep(order_file.PAUSE_S)


def _next(folder: Path, done: str) -> order_file.SubmitOrder | None:
    """An order that has no answer yet. `done`: the name of the one before. Raises CliError."""
    try:
        order = order_file.placed(folder)
        fresh = order and order.name != done and order_file.answered(folder, order.name) is None
    except (OSError, order_file.BadOrderError) as error:
        raise CliError(str(error)) from error
    return order if fresh else None


async def _submitted(values: argparse.Namespace, order: order_file.SubmitOrder) -> str:
    """Submit an order, and return why it was refused, "" if it was not. Waits for a coordinator."""
    try:
        spec = _spec(_ordered(order, values.rdzv_id))
    except UsageError as error:
        return str(error)
    said = ""
    while True:
        try:
            async with AdminClient(values.coordinator, access=access_of(values)) as admin:
                reply = await admin.submit(spec)
        except UnreachableError as error:
            if said != str(error):
                said = str(error)
                print(f"holdfast submit: {said}; tried again", file=sys.stderr, flush=True)
            await asyncio.sleep(PAUSE_S)
        except CliError as error:
            return str(error)
        else:
            print(
                f"job {reply.job} {'continues' if reply.resumed else 'submitted'}, {reply.phase}", flush=True
            )
            return ""


def _ordered(order: order_file.SubmitOrder, job: str) -> argparse.Namespace:
    """The flags of an order. It may not say who submits, nor which other job. Raises UsageError."""
    parser = Parser(prog="torchrun")
    parser.become(CommandSpec(ABOUT, submit, _job_flags))
    values = parser.parse_args(order.words)
    if values.rdzv_id != job:
        raise UsageError(f"the order is for job {values.rdzv_id!r}, and only {job!r} may be ordered here")
    return values


def _job_flags(parser: Parser) -> None:
    parser.add_script("SCRIPT", "the training script; all that follows is passed to it")
    parser.add_argument("--cwd", default="")
    parser.set_defaults(env=[])
    add_job_flags(parser)


def _print_headline(line: dict[str, Any]) -> None:
    if sentence_of(line).level <= EventLevel.HEADLINE and not is_end(line):
        print(stamped(line), flush=True)


COMMANDS = {"submit": CommandSpec(ABOUT, submit, _flags, USAGE)}
