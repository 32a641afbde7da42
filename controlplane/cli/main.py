"""Parse the command line, run the command, and turn errors into one line and an exit code."""

from __future__ import annotations

import errno
import os
import sys
from typing import TYPE_CHECKING

from controlplane.cli.errors import FAILED, INTERRUPTED, OK, USAGE, CliError
from controlplane.cli.flags import kinds
from controlplane.cli.flags.parser import CommandEntry, CommandSpec, Parser
from holdfast.neutral import Neutral
from holdfast.version import __version__

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


SECTIONS = {
    "run training": {
        "demo": CommandEntry(
            "demo.command", "train a small model, kill a rank, recover, compare the weights"
        ),
        "run": CommandEntry("run", "run a training script on this machine, with torchrun's flags"),
        "rehearse": CommandEntry(
            "rehearsal.command", "kill ranks of your own script, and compare it with a run without failures"
        ),
        "submit": CommandEntry("orders.submit", "give a job to a running coordinator"),
        "wait": CommandEntry("orders.wait", "return when a job is in a phase, for scripts"),
        "stop": CommandEntry("questions.queries", "end a job; its checkpoints stay"),
        "delete": CommandEntry("orders.delete", "forget an ended job; its checkpoints stay"),
        "pause": CommandEntry(
            "orders.pause", "stop a job at the end of a step; its processes keep their state"
        ),
        "resume": CommandEntry("orders.pause", "let a paused job go on"),
    },
    "look": {
        "status": CommandEntry("questions.queries", "show jobs, nodes and ranks"),
        "top": CommandEntry("questions.top", "show speed and problems of every job, again each second"),
        "get": CommandEntry("questions.queries", "show one table: jobs, nodes, ranks or checkpoints"),
        "describe": CommandEntry("questions.describe", "show everything about one job, node or checkpoint"),
        "why": CommandEntry("questions.why", "explain one failure: evidence, decision, duration, lost steps"),
        "events": CommandEntry(
            "questions.events", "show events and decisions with their reasons, line by line"
        ),
        "logs": CommandEntry("logs.command", "show what the ranks of a job have written"),
        "stacks": CommandEntry("questions.stacks", "show where the ranks of a running job are now"),
        "doctor": CommandEntry(
            "doctor.command", "find out what slows or stops a job, whose doing it is, and what will fail next"
        ),
        "profile": CommandEntry(
            "questions.profile", "profile some steps of a running job with torch's profiler"
        ),
        "replay": CommandEntry(
            "questions.replay", "repeat the decisions of a coordinator from its recording"
        ),
    },
    "checkpoints and nodes": {
        "checkpoint": CommandEntry(
            "checkpoint.command", "save now; list, verify, compare, export, delete checkpoints"
        ),
        "drain": CommandEntry("orders.drain", "move all ranks off a node, at the end of a step"),
        "cordon": CommandEntry("orders.drain", "give a node no new ranks"),
        "uncordon": CommandEntry("orders.drain", "let a node take ranks again"),
        "quarantine": CommandEntry("orders.quarantine", "list nodes that fail often; release one"),
        "check": CommandEntry("check.command", "measure this node, and compare it with its peers"),
    },
    "plan": {
        "plan": CommandEntry("plan", "rank the parallel layouts of a model on a cluster"),
        "simulate": CommandEntry(
            "simulate", "estimate what failures cost: goodput, spares, checkpoint intervals"
        ),
    },
    "install": {
        "coordinator": CommandEntry("daemons", "run a coordinator, the process that decides"),
        "agent": CommandEntry("daemons", "run the agent of one node"),
        "exec": CommandEntry("exec", "run the launcher in a training container, beside its agent"),
        "torchrun": CommandEntry("torchrun", "take torchrun's place in the pod of a TrainJob"),
        "kubernetes": CommandEntry("kubernetes.command", "print the Kubernetes manifests of a training job"),
        "slurm": CommandEntry("slurm.command", "print the batch script of a training job on Slurm"),
        "completion": CommandEntry("completion", "print the completion script for bash or zsh"),
    },
}
COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}
"""The commands of `holdfast`, in the order of its help."""

CLUSTER_EXTRA = frozenset(
    {"cryptography", "google", "grpc", "h11", "prometheus_client", "rich", "shtab", "uvloop"}
)
"""What the extra `cluster` installs, as modules: a trainer's image has none of it."""

ONE_MACHINE = frozenset({"run", "demo", "rehearse", "torchrun"})
"""The commands that start a whole cluster on this machine: they need an etcd and torch too."""

WHOLE = "local,torch"
"""The extras that bring all that ONE_MACHINE needs."""

_STDERR = 2
_UNWRITTEN = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT)

EXIT_CODES = """exit codes:
  0    success; for `run` and `submit --wait`: the job finished
  1    the job failed, or what the command asked for does not exist
  2    a wrong flag, value or setting
  3    no coordinator (or no etcd) answers
  124  `wait`: its --timeout has passed
  130  interrupted with Ctrl-C (143: with SIGTERM)"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `holdfast` with these words and return its exit code.

    As a program (`argv` is None) it prints neutral text: control characters in names and messages do not
    reach the terminal."""
    if argv is None:
        _open_closed_streams()
        sys.stdout, sys.stderr = Neutral(sys.stdout), Neutral(sys.stderr)
    words, code = list(sys.argv[1:] if argv is None else argv), OK
    try:
        code = _run(words)
        sys.stdout.flush()
    except OSError as error:
        if error.errno not in _UNWRITTEN or error.filename is not None:
            raise
        return _unwritten(words, error, code)
    return code


def _run(words: Sequence[str]) -> int:
    """Run the command of these words. Raises OSError if what it shows cannot be written."""
    try:
        values = tree().parse_args(kinds.in_words(words))
        code: int = values.run(values)
    except SystemExit as ended:  # argparse ends like this after --help
        return ended.code if isinstance(ended.code, int) else OK
    except CliError as error:
        return _failed(words, str(error), error.code)
    except UnicodeEncodeError as error:  # bytes of the command line that are no text
        return _failed(words, f"{error.object!a} is no text: nothing here has such a name", USAGE)
    except ModuleNotFoundError as error:
        if not _of_the_cluster_extra(error):
            raise
        extras = WHOLE if ONE_MACHINE.intersection(words[:1]) else "cluster"
        why = f"it needs more than the SDK ({error.name} is not installed): pip install 'holdfast[{extras}]'"
        return _failed(words, why, FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


def _open_closed_streams() -> None:
    """Give the null device to standard streams that are closed (`>&-`): else the next socket or file gets the
    number of one, and what is printed goes there."""
    while (opened := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        pass
    os.close(opened)
    sys.stdout = sys.stdout or open(os.devnull, "w")
    sys.stderr = sys.stderr or open(os.devnull, "w")


def _unwritten(words: Sequence[str], error: OSError, code: int) -> int:
    """End with this code after standard output could not be written. The flush at exit must not fail because
    of that."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):  # its reader is gone
        return code
    return _failed(words, f"cannot write what it shows: {error.strerror}", FAILED)


def _failed(words: Sequence[str], why: str, code: int) -> int:
    prefix = f"holdfast {words[0]}" if words and words[0] in COMMANDS else "holdfast"
    print(f"{prefix}: {why}", file=sys.stderr)
    return code


def _of_the_cluster_extra(error: ModuleNotFoundError) -> bool:
    return (error.name or "").partition(".")[0] in CLUSTER_EXTRA


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
    """Return the parser of all commands. None of them is loaded yet."""
    root = _Root(prog="holdfast")
    root.add_argument("-V", "--version", action="version", version=f"holdfast {__version__}")
    root.become(
        CommandSpec(
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
