"""`holdfast rehearse`: kill ranks of a user's own script, and compare it with a run without failures."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from controlplane.cli import run
from controlplane.cli.demo.command import interruptible, passing_folder
from controlplane.cli.demo.kills import impossible, read_kill
from controlplane.cli.errors import UsageError
from controlplane.cli.flags.checkpoint import AUTO
from controlplane.cli.flags.job import check_command
from controlplane.cli.flags.parser import CommandSpec, Parser, seconds, whole
from controlplane.cli.rehearsal.plan import EVERY, STEPS, RehearsalPlan, rounded, usual_kills

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

OWN = ("--until-step", "--kill", "--seed", "--json", "--keep", "--timeout-s")
"""Flags that are not those of `holdfast run`."""
GIVEN = (
    *("--storage", "--mirror", "--commit-when", "--state-dir", "--rdzv-id", "--checkpoint-every"),
    *("--keep-last", "--keep-every", "--fresh", "--adopt", "--etcd", "--ledger"),
)
"""Flags of `holdfast run` that each training of a rehearsal gets from here."""
SHORT = (*OWN, "--nnodes", "--nproc-per-node", "--spares", "--module", "--snapshot-every")
USAGE = "holdfast rehearse [flags, also those of `holdfast run`] SCRIPT [the script's arguments]"
EPILOG = """It trains twice: with kills, and undisturbed. Both end as soon as they have the checkpoint that is
compared: the script is cut off there. If they differ, it trains undisturbed once more, to see whether the
script comes out the same at all. {training} in an argument of the script becomes the name of each training
(disturbed, undisturbed, again), for a script that goes on from files of its own.

Exit code 0 means: the tracked state is the same, byte for byte. 1: it is not, or a training failed."""


def rehearse(values: argparse.Namespace) -> int:
    """Rehearse. Exit code 0 when the state is the same, byte for byte."""
    plan = planned(values)
    from controlplane.cli.rehearsal.rehearse import rehearsed

    with passing_folder("holdfast-rehearsal-", keep=plan.keep) as folder:
        return asyncio.run(interruptible(rehearsed(plan, folder)))


def _flags(parser: Parser) -> None:
    ours = parser.add_argument_group("the rehearsal")
    ours.add_argument(
        "--until-step",
        type=whole(2, "a process is killed after the first step"),
        default=STEPS,
        metavar="N",
        help="compare the state of this step, or of the next multiple of --snapshot-every",
    )
    ours.add_argument(
        "--kill",
        type=read_kill,
        action="append",
        metavar="WHOM@step=N",
        help="what to kill at which step: rank=N, agent=N, node=N, coordinator, etcd, all, or stop=rank:N "
        "(SIGSTOP); repeatable (default: three ranks, one after the other, rank 0 among them)",
    )
    ours.add_argument("--seed", type=int, default=0, help="seed of the moments within a step")
    ours.add_argument(
        "--json", action="store_true", help="print the result as one JSON object, on the last line"
    )
    ours.add_argument("--keep", action="store_true", help="keep logs, checkpoints and journals")
    ours.add_argument(
        "--timeout-s", type=seconds(1.0), default=1800.0, metavar="SECONDS", help="give up after this time"
    )
    run.add_flags(parser)


def planned(values: argparse.Namespace) -> RehearsalPlan:
    """What the flags ask for. Raises UsageError."""
    check_command(values, values.command)
    names = [word.partition("=")[0] for word in values.words]
    if given := next((name for name in names if name in GIVEN), ""):
        raise UsageError(f"{given}: each training of a rehearsal gets its own; leave it out")
    nodes = values.nnodes[1]
    world = nodes * values.nproc_per_node
    every = EVERY if values.snapshot_every in (None, AUTO) else values.snapshot_every
    until = rounded(values.until_step, every)
    kills = tuple(sorted(values.kill or usual_kills(until, world), key=lambda kill: kill.step))
    for kill in kills:
        if wrong := impossible(kill, until, nodes, world):
            raise UsageError(f"--kill: {wrong}")
    return RehearsalPlan(
        words=(*_words_of_run(values.words), *values.command),
        world_size=world,
        every=every,
        until=until,
        kills=kills,
        as_json=values.json,
        keep=values.keep,
        seed=values.seed,
        timeout_s=values.timeout_s,
    )


def _words_of_run(words: Sequence[str]) -> list[str]:
    """The flags without those of the rehearsal."""
    found, skip = [], False
    for word in words:
        name, equals, _ = word.partition("=")
        if skip:
            skip = False
        elif name in OWN:
            skip = not equals and name not in ("--json", "--keep")
        else:
            found.append(word)
    return found


COMMANDS = {
    "rehearse": CommandSpec(
        "Train with your own script on this machine, kill ranks of it, train again without failures, and "
        "compare the tracked state: does the training come out the same?",
        rehearse,
        _flags,
        USAGE,
        EPILOG,
        short=SHORT,
    )
}
