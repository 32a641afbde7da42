"""The command itself: one row of a table per kind of file, with who reads it and who judges it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controlplane.cli.doctor import iterations, iterations_file, timeline_file, timelines
from controlplane.cli.errors import OK, UsageError
from controlplane.cli.flags.parser import CommandSpec, Parser
from controlplane.cli.questions.outputs import add_output, data

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Examination:
    """One kind of recorded data. `read` and `diagnose` raise UsageError.

    `also`: further flags that this kind takes, and no other one."""

    about: str
    read: Callable[[Path, argparse.Namespace], Any]
    diagnose: Callable[[Path, Any], Any]
    data: Callable[[Any], dict[str, Any]]
    text: Callable[[Any], str]
    also: tuple[str, ...] = ()
    metavar: str = "FILE"


EXAMINATIONS = {
    "timeline": Examination(
        "the operations of all workers in some steps, CSV or Parquet: "
        + ", ".join(timeline_file.COLUMNS)
        + " (times in s; a tensor group is one worker)",
        timeline_file.read,
        timelines.diagnose,
        timelines.data,
        timelines.text,
        also=("layout",),
    ),
    "iterations": Examination(
        "how long each iteration of each worker took, CSV: worker, time, and seconds or batch_time_norm",
        iterations_file.read,
        iterations.diagnose,
        iterations.data,
        iterations.text,
        also=("column",),
    ),
}
"""Every kind of recorded data, by the option that takes its file."""

ABOUT = (
    "Say what slows a job, who is to blame, what it costs and what to do, from a file that the job (any job) "
    "has recorded. Give one file. Exit code 0 whatever is found, 2 for a file that cannot be read."
)
EPILOG = """examples:
  holdfast doctor --timeline steps.parquet --layout layout.yaml
  holdfast doctor --timeline steps.csv --json
  holdfast doctor --iterations times.csv --column forward_backward_s"""


def _flags(parser: Parser) -> None:
    add = parser.add_argument
    for option, each in EXAMINATIONS.items():
        add(f"--{option}", default="", metavar=each.metavar, help=each.about)
    add(
        "--layout",
        default="",
        metavar="FILE",
        help="with --timeline: check it against dp_size, pp_size ... (YAML)",
    )
    add("--column", default="", metavar="NAME", help="with --iterations: the column that holds durations")
    add_output(parser, json_flag=True)


def run(values: argparse.Namespace) -> int:
    """Read, judge, show."""
    option = _chosen(values)
    path, each = Path(getattr(values, option)), EXAMINATIONS[option]
    found = each.diagnose(path, each.read(path, values))
    print(data(values.output, each.data(found)) or each.text(found))
    return OK


def _chosen(values: argparse.Namespace) -> str:
    """The one kind of file that is given. Raises UsageError."""
    given = [option for option in EXAMINATIONS if getattr(values, option)]
    if len(given) != 1:
        words = " and ".join(f"--{option}" for option in given) or "no file"
        raise UsageError(f"{words} given: give one of {', '.join(f'--{option}' for option in EXAMINATIONS)}")
    for option, each in EXAMINATIONS.items():
        for flag in each.also:
            if option != given[0] and getattr(values, flag):
                raise UsageError(f"--{flag} is for --{option}: drop it")
    return given[0]


USAGE = "holdfast doctor --timeline|--iterations FILE [flags]"
COMMANDS = {"doctor": CommandSpec(ABOUT, run, _flags, USAGE, EPILOG)}
