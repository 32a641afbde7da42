"""The command itself: one row of a table per kind of file, with who reads it and who judges it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controlplane.cli.doctor import faults, flight_recorder, iterations, live, logs, timelines, windows
from controlplane.cli.doctor.readers import (
    fault_file,
    flight_files,
    iterations_file,
    log_folder,
    timeline_file,
    windows_file,
)
from controlplane.cli.errors import OK, UsageError
from controlplane.cli.flags.parser import CommandSpec, Parser, whole
from controlplane.cli.questions.colours import show
from controlplane.cli.questions.outputs import add_output, data
from controlplane.cli.questions.queries import add_coordinator

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
    "windows": Examination(
        "how the ranks of a job spent their steps, window by window, as JSON lines (.gz too): judged as the "
        "coordinator would while it runs",
        windows_file.read,
        windows.diagnose,
        windows.data,
        windows.text,
    ),
    "flight-recorder": Examination(
        "dumps of torch's flight recorder (any backend), a folder with one file for each rank: which ranks "
        "hold up the others",
        flight_files.read,
        flight_recorder.diagnose,
        flight_recorder.data,
        flight_recorder.text,
        metavar="DIR",
    ),
    "logs": Examination(
        "the logs of all ranks, one file each (rank0.log, 0.log, rank_3/stderr, attempt_0/3/stderr.log): "
        "which failed first and why, and whether to restart",
        log_folder.read,
        logs.diagnose,
        logs.data,
        logs.text,
        metavar="DIR",
    ),
    "faults": Examination(
        "the faults of a cluster: which nodes fail next, and how good such predictions were. Events as JSON "
        "(node_id, event_time in days, event_type fault_start or fault_end), or CSV: "
        + ", ".join(fault_file.COLUMNS),
        fault_file.read,
        faults.diagnose,
        faults.data,
        faults.text,
        also=("nodes", "train-until", "horizon-days", "seed"),
    ),
}
"""Every kind of recorded data, by the option that takes its file or folder."""

ABOUT = (
    "Say what slows or stops a job, or which of its ranks failed first, who is to blame, what it costs and "
    "what to do: of a job that runs under Holdfast, or from what any job has recorded; and which nodes of a "
    "cluster fail next. Exit code 0 whatever "
    "is found, 2 for what cannot be read."
)
EPILOG = """examples:
  holdfast doctor
  holdfast doctor --node n3
  holdfast doctor myjob
  holdfast doctor myjob --tune
  holdfast doctor myjob --mute 'slow_rank:rank 3 (n1, device 0)' --for-s 7200 --reason "card is on order"
  holdfast doctor --timeline steps.parquet --layout layout.yaml
  holdfast doctor --timeline steps.csv --json
  holdfast doctor --iterations times.csv --column forward_backward_s
  holdfast doctor --windows windows.jsonl.gz --json
  holdfast doctor --flight-recorder dumps
  holdfast doctor --logs logs --json
  holdfast doctor --faults faults.json --nodes 400 --train-until 87 --horizon-days 7 --json"""


def _flags(parser: Parser) -> None:
    add = parser.add_argument
    add("job", nargs="?", default="", help="the running job (default: the health of the whole cluster)")
    add("--node", default="", metavar="NAME", help="without a job: only what is about this node")
    for option, each in EXAMINATIONS.items():
        add(f"--{option}", default="", metavar=each.metavar, help=each.about)
    add(
        "--layout",
        default="",
        metavar="FILE",
        help="with --timeline: check it against dp_size, pp_size ... (YAML)",
    )
    add("--column", default="", metavar="NAME", help="with --iterations: the column that holds durations")
    add(
        "--nodes",
        type=whole(1, "nodes"),
        default=0,
        metavar="N",
        help="with --faults: how many nodes the cluster has, those that never failed included",
    )
    add(
        "--train-until",
        type=whole(1, "days"),
        default=0,
        metavar="DAY",
        help="with --faults: learn from what happened until this day, and predict on each day after it",
    )
    add(
        "--horizon-days",
        type=whole(1, "days", 365),
        default=0,
        metavar="DAYS",
        help=f"with --faults: predict faults within so many days (default: {fault_file.HORIZON_DAYS})",
    )
    add(
        "--seed",
        type=whole(0, "chance"),
        default=0,
        metavar="N",
        help="with --faults: of the resamples of the confidence intervals (default: 0)",
    )
    add(
        "--tune",
        action="store_true",
        help="propose other settings for the job, each with what it would gain, from what was measured of it",
    )
    add("--mute", default="", metavar="ID", help="alert nobody to this finding of the job for a while")
    add(
        "--for-s",
        type=whole(0, "seconds"),
        default=86_400,
        metavar="S",
        help="with --mute: for so long (default: a day); 0: alert again",
    )
    add("--reason", default="by hand", help="with --mute: why, for the journal")
    add_output(parser, json_flag=True)
    add_coordinator(parser, late=True)  # files need none, however many runs there are


def run(values: argparse.Namespace) -> int:
    """Read, judge, show; or ask a coordinator, which has judged."""
    if _is_live(values):
        return live.ask(values)
    option = _chosen(values)
    path, each = Path(getattr(values, _name(option))), EXAMINATIONS[option]
    found = each.diagnose(path, each.read(path, values))
    if written := data(values.output, each.data(found)):
        print(written)
    else:
        show(each.text(found))
    return OK


def _is_live(values: argparse.Namespace) -> bool:
    """Whether a coordinator is to be asked, since no file is given. Raises UsageError when a file and a job
    are."""
    given = [f"--{option}" for option in EXAMINATIONS if getattr(values, _name(option))]
    if values.job and given:
        raise UsageError(f"job {values.job} and {given[0]} given: give one of them")
    if values.node and (values.job or given):
        raise UsageError(f"--node and {values.job or given[0]} given: give one of them")
    if values.mute and not values.job:
        raise UsageError("--mute is for a finding of a running job: name the job")
    if values.tune and not values.job:
        raise UsageError("--tune is for a running job: name the job")
    if values.tune and values.mute:
        raise UsageError("--tune and --mute given: give one of them")
    return not given


def _chosen(values: argparse.Namespace) -> str:
    """The one kind of file that is given. Raises UsageError."""
    given = [option for option in EXAMINATIONS if getattr(values, _name(option))]
    if len(given) != 1:
        words = " and ".join(f"--{option}" for option in given)
        raise UsageError(f"{words} given: give one of {', '.join(f'--{option}' for option in EXAMINATIONS)}")
    for option, each in EXAMINATIONS.items():
        for flag in each.also:
            if option != given[0] and getattr(values, _name(flag)):
                raise UsageError(f"--{flag} is for --{option}: drop it")
    return given[0]


def _name(option: str) -> str:
    """The name under which argparse keeps an option."""
    return option.replace("-", "_")


USAGE = (
    "holdfast doctor [JOB | --node NAME] | --timeline|--iterations|--windows|--faults FILE | "
    "--flight-recorder|--logs DIR [flags]"
)
COMMANDS = {"doctor": CommandSpec(ABOUT, run, _flags, USAGE, EPILOG)}
