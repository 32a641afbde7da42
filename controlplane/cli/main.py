"""The entry point: finds the command, runs it, turns errors into one line and an exit code."""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.cli.errors import INTERRUPTED, OK, USAGE, CliError, nearest
from holdfast.neutral import Neutral

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Command:
    """One word of `holdfast`: which module runs it, and what it does."""

    module: str
    about: str


COMMANDS = {
    "demo": Command("demo.command", "train, be killed, recover, and compare with an undisturbed run"),
    "run": Command("run", "run a training script on this machine, with torchrun's flags"),
    "submit": Command("orders.submit", "give a job to a running coordinator"),
    "stop": Command("questions.queries", "end a job"),
    "pause": Command("orders.pause", "have a job stop at a step boundary and hold its state"),
    "resume": Command("orders.pause", "have a paused job go on"),
    "status": Command("questions.queries", "what a coordinator sees: jobs, nodes, ranks, checkpoints"),
    "get": Command(
        "questions.queries", "one table: jobs, nodes, ranks or checkpoints; -o table, wide, json or yaml"
    ),
    "why": Command(
        "questions.why", "one incident: what happened, on what evidence, what was done, what it cost"
    ),
    "top": Command("questions.top", "what trains now, how fast, and what is in its way"),
    "describe": Command("questions.describe", "everything known of one job, node or checkpoint"),
    "events": Command("questions.events", "what happened and why, line by line"),
    "checkpoint": Command(
        "checkpoint.command", "now: save one; on a storage: list, show, verify, diff, gc, adopt, export"
    ),
    "drain": Command("orders.drain", "free a node of ranks, at a step boundary"),
    "cordon": Command("orders.drain", "have a node take no new ranks"),
    "uncordon": Command("orders.drain", "have a node take ranks again"),
    "quarantine": Command(
        "orders.quarantine", "which nodes are the last choice for seats and why; release one"
    ),
    "replay": Command("questions.replay", "tell the core again what a coordinator was told, step by step"),
    "simulate": Command("simulate", "what failures would cost: goodput, spares, intervals, elastic or fixed"),
    "plan": Command("plan", "rank the parallel layouts that a cluster can run a model with"),
    "completion": Command("completion", "a script for bash or zsh that completes commands and flags"),
    "coordinator": Command("daemons", "the coordinator process"),
    "agent": Command("daemons", "the agent process of one node"),
    "exec": Command("exec", "the launcher in a trainer's container, beside an agent in another"),
    "kubernetes": Command("kubernetes.command", "manifests of a training job on Kubernetes"),
}

EXIT_CODES = """exit codes:
  0    all well; with `run` and `submit --wait`: the job finished
  1    the job failed, or what was asked for is not there
  2    a flag, a value or a setting that cannot be
  3    no coordinator (or no etcd) answers
  130  interrupted with Ctrl-C (143: with SIGTERM)"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `holdfast` with these words and return its exit code. As a program (no words given) it prints
    neutral text: what others have said reaches the terminal as text alone."""
    if argv is None:
        sys.stdout, sys.stderr = Neutral(sys.stdout), Neutral(sys.stderr)
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return _run(words)
    except CliError as error:
        prefix = f"holdfast {words[0]}" if words and words[0] in COMMANDS else "holdfast"
        print(f"{prefix}: {error}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output is gone; the flush at exit must not complain about it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(overview())
        return OK if words else USAGE
    if words[0] in ("-V", "--version", "version"):
        from holdfast.version import __version__

        print(f"holdfast {__version__}")
        return OK
    command = COMMANDS.get(words[0])
    if command is None:
        raise _unknown(words[0])
    module = importlib.import_module(f"controlplane.cli.{command.module}")
    try:
        code: int = module.COMMANDS[words[0]](words[1:])
    except SystemExit as ended:  # argparse leaves like this after --help
        return ended.code if isinstance(ended.code, int) else OK
    return code


def _unknown(word: str) -> CliError:
    if word.startswith("-"):
        hint = nearest(word, ["--help", "--version"])
        error = CliError(f"unknown flag {word}{hint} (flags of a command come after its name)")
    else:
        error = CliError(f"unknown command {word}{nearest(word, COMMANDS)} (see `holdfast --help`)")
    error.code = USAGE
    return error


def overview() -> str:
    """What `holdfast --help` says."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name.ljust(width)}  {command.about}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: holdfast COMMAND [flags]   (`holdfast COMMAND --help` tells a command's flags)",
            "",
            "Keeps PyTorch training going while ranks, nodes and Holdfast's own daemons fail.",
            "",
            *lines,
            "",
            "  --version",
            "",
            EXIT_CODES,
        ]
    )
