"""The entry point: one parser tree of all commands; errors become one line and an exit code."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from controlplane.cli.errors import INTERRUPTED, OK, USAGE, CliError
from controlplane.cli.flags.parser import Command, Entry, Parser
from holdfast.neutral import Neutral
from holdfast.version import __version__

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


SECTIONS = {
    "run training": {
        "demo": Entry("demo.command", "train a small model, kill a rank, recover, compare the weights"),
        "run": Entry("run", "run a training script on this machine, with torchrun's flags"),
        "submit": Entry("orders.submit", "give a job to a running coordinator"),
        "stop": Entry("questions.queries", "end a job; its checkpoints stay"),
        "pause": Entry("orders.pause", "stop a job at the end of a step; its processes keep their state"),
        "resume": Entry("orders.pause", "let a paused job go on"),
    },
    "look": {
        "status": Entry("questions.queries", "show jobs, nodes and ranks"),
        "top": Entry("questions.top", "show speed and problems of every job, again each second"),
        "get": Entry("questions.queries", "show one table: jobs, nodes, ranks or checkpoints"),
        "describe": Entry("questions.describe", "show everything about one job, node or checkpoint"),
        "why": Entry("questions.why", "explain one failure: evidence, decision, duration, lost steps"),
        "events": Entry("questions.events", "show events and decisions with their reasons, line by line"),
        "doctor": Entry(
            "doctor.command", "find out from recorded times what slows a job, and whose doing it is"
        ),
        "replay": Entry("questions.replay", "repeat the decisions of a coordinator from its recording"),
    },
    "checkpoints and nodes": {
        "checkpoint": Entry(
            "checkpoint.command", "save now; list, verify, compare, export, delete checkpoints"
        ),
        "drain": Entry("orders.drain", "move all ranks off a node, at the end of a step"),
        "cordon": Entry("orders.drain", "give a node no new ranks"),
        "uncordon": Entry("orders.drain", "let a node take ranks again"),
        "quarantine": Entry("orders.quarantine", "list nodes that fail often; release one"),
    },
    "plan": {
        "plan": Entry("plan", "rank the parallel layouts of a model on a cluster"),
        "simulate": Entry("simulate", "estimate what failures cost: goodput, spares, checkpoint intervals"),
    },
    "install": {
        "coordinator": Entry("daemons", "run a coordinator, the process that decides"),
        "agent": Entry("daemons", "run the agent of one node"),
        "exec": Entry("exec", "run the launcher in a training container, beside its agent"),
        "kubernetes": Entry("kubernetes.command", "print the Kubernetes manifests of a training job"),
        "completion": Entry("completion", "print the completion script for bash or zsh"),
    },
}
COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}
"""The words of `holdfast`, in the order of its help."""

EXIT_CODES = """exit codes:
  0    success; for `run` and `submit --wait`: the job finished
  1    the job failed, or what the command asked for does not exist
  2    a wrong flag, value or setting
  3    no coordinator (or no etcd) answers
  130  interrupted with Ctrl-C (143: with SIGTERM)"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `holdfast` with these words and return its exit code. As a program (no words given) it prints
    neutral text: control characters in names and messages do not reach the terminal."""
    if argv is None:
        sys.stdout, sys.stderr = Neutral(sys.stdout), Neutral(sys.stderr)
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        values = tree().parse_args(words)
        code: int = values.run(values)
    except SystemExit as ended:  # argparse leaves like this after --help
        return ended.code if isinstance(ended.code, int) else OK
    except CliError as error:
        prefix = f"holdfast {words[0]}" if words and words[0] in COMMANDS else "holdfast"
        print(f"{prefix}: {error}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output is gone; the flush at exit must not complain about it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    return code


class _Root(Parser):
    """The parser of `holdfast` itself: its help shows the commands in sections."""

    def format_help(self) -> str:
        """Return the overview of all commands."""
        width = max(map(len, COMMANDS))
        sections = [
            "\n".join(
                [f"{title}:", *(f"  {name.ljust(width)}  {each.about}" for name, each in entries.items())]
            )
            for title, entries in SECTIONS.items()
        ]
        return "\n\n".join([str(self.usage), str(self.description), *sections, EXIT_CODES]) + "\n"


def tree() -> Parser:
    """Return the parser of all commands, each of them not loaded yet."""
    root = _Root(prog="holdfast")
    root.add_argument("-V", "--version", action="version", version=f"holdfast {__version__}")
    root.become(
        Command(
            "Holdfast keeps PyTorch training going while ranks, nodes and its own processes fail.",
            _no_command,
            usage="usage: holdfast COMMAND [flags]   (`holdfast COMMAND --help` explains a command)\n"
            "       holdfast --version",
            verbs=COMMANDS,
        )
    )
    return root


def _no_command(_: argparse.Namespace) -> int:
    print(tree().format_help(), end="")
    return USAGE
