"""Define the flags that describe a job, torchrun's and Holdfast's own, and make a JobSpec from them."""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

from controlplane.cli.errors import UsageError, nearest
from controlplane.cli.flags.checkpoint import add_checkpoint_flags, checkpoint_fields, storage_url
from controlplane.cli.flags.layout import add_layout_flags, check_layout, layout_fields
from controlplane.cli.flags.parser import whole
from controlplane.cli.flags.torchrun import add_worker_flags, asked_otherwise, role_variables
from controlplane.core.records.model import JobSpec
from controlplane.core.records.words import ON_NAN
from controlplane.settings import NAME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controlplane.cli.flags.parser import Parser

NOT_OURS = ("rdzv_backend", "rdzv_endpoint", "rdzv_conf", "node_rank", "master_addr", "master_port")
"""torchrun's flags without effect here: nodes find each other through the coordinator."""


def add_job_flags(parser: Parser) -> None:
    """Add torchrun's flags and Holdfast's own."""
    _add_torchrun_flags(parser)
    add_worker_flags(parser)
    _add_own_flags(parser)
    add_layout_flags(parser)
    add_checkpoint_flags(parser)


def _add_torchrun_flags(parser: Parser) -> None:
    job = parser.add_argument_group("the job (torchrun's flags)")
    job.add_argument(
        "--nnodes",
        type=node_range,
        default=(1, 1),
        metavar="N|MIN:MAX",
        help="number of nodes; MIN:MAX: train with fewer while some are missing (default: 1)",
    )
    job.add_argument(
        "--nproc-per-node",
        type=per_node,
        default=1,
        metavar="N|auto|cpu|gpu",
        help="ranks per node; auto: one per GPU, or per core where there is none",
    )
    job.add_argument(
        "--max-restarts",
        type=whole(0, "a count"),
        default=3,
        metavar="N",
        help="how often the same exception at the same step is tried again; for a script without the SDK: "
        "restarts in all",
    )
    job.add_argument(
        "--rdzv-id", default="", metavar="NAME", help="name of the job; the same name continues the same job"
    )
    job.add_argument("-m", "--module", action="store_true", help="SCRIPT is a module, as in python -m")
    job.add_argument("--no-python", action="store_true", help="SCRIPT is a program, not a Python file")
    job.add_argument(
        "--standalone",
        action="store_true",
        help="accepted for torchrun's sake; `holdfast run` always is standalone",
    )
    for name in NOT_OURS:
        job.add_argument(
            "--" + name.replace("_", "-"),
            default=None,
            metavar="X",
            help="accepted for torchrun's sake, without effect",
        )


def _add_own_flags(parser: Parser) -> None:
    ours = parser.add_argument_group("failures")
    ours.add_argument(
        "--spares",
        type=whole(0, "a count of warm processes per node"),
        default=0,
        metavar="N",
        help="warm spare processes per node; one takes over when a rank dies",
    )
    ours.add_argument(
        "--on-nan",
        choices=ON_NAN,
        default="rollback",
        help="when the loss is NaN or Inf: go back to an older state, stop the job, or ignore it "
        "(default: rollback)",
    )
    ours.add_argument(
        "--check-replicas-every",
        type=whole(0, "a count of steps"),
        default=0,
        metavar="N",
        help="every N steps, compare the whole state of ranks that hold the same, so that memory that was "
        "damaged is found; 0: never (default: 0)",
    )
    ours.add_argument(
        "--on-corrupt-state",
        choices=("report", "act"),
        default="report",
        help="when a replica differs: report it, and mark what is saved meanwhile as suspect; or act: go "
        "back to the newest state before it, and replace the rank that differs from the majority "
        "(default: report)",
    )
    ours.add_argument(
        "--nan-skip-window",
        type=whole(0, "a count of batches"),
        default=0,
        metavar="N",
        help="with rollback: how many batches to skip, ending with that of the bad loss (default: 0)",
    )


def node_range(text: str) -> tuple[int, int]:
    """Parse `N` or `MIN:MAX` to (min, max)."""
    match = re.fullmatch(r"(-?\d+)(?::(-?\d+))?", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number of nodes nor MIN:MAX")
    number = whole(1, "a job needs at least one node")
    low = number(match[1])
    high = number(match[2]) if match[2] is not None else low
    if high < low:
        raise argparse.ArgumentTypeError(
            f"{text} has a maximum below its minimum: give MIN:MAX, for example {high}:{low}"
        )
    return low, high


def per_node(text: str) -> int:
    """Parse `N`, `auto`, `cpu` or `gpu` to a number of ranks."""
    words = {"auto": _auto, "cpu": _cores, "gpu": _gpus}
    if text in words:
        return words[text]()
    try:
        return whole(1, "a node without ranks trains nothing")(text)
    except argparse.ArgumentTypeError as error:
        if text.lstrip("-").isdigit():
            raise
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a number nor one of {', '.join(words)}{nearest(text, words)}"
        ) from error


def _cores() -> int:
    return os.cpu_count() or 1


def _gpus() -> int:
    count = _gpu_count()
    if count == 0:
        raise argparse.ArgumentTypeError("gpu: no GPU found on this machine; give a number, auto or cpu")
    return count


def _auto() -> int:
    return _gpu_count() or _cores()


def _gpu_count() -> int:
    return len([path for path in Path("/dev").glob("nvidia*") if path.name[6:].isdigit()])


def unused_flags(values: argparse.Namespace) -> str:
    """Lines about those given flags of torchrun that have no effect here; "" for none. Raises UsageError for
    one that cannot be left out."""
    lines = asked_otherwise(values)
    vain = ["--" + name.replace("_", "-") for name in NOT_OURS if getattr(values, name) is not None]
    if vain:
        lines.append(f"{', '.join(vain)}: without effect here, nodes find each other through the coordinator")
    return "\n".join(lines)


def read_job(values: argparse.Namespace, command: Sequence[str], job: str) -> JobSpec:
    """The job that flags and command describe. Raises UsageError when no cluster could run it."""
    low, high = values.nnodes
    spec = JobSpec(
        job=job,
        argv=tuple(command),
        cwd=os.getcwd(),
        env=role_variables(values),
        nnodes_min=low,
        nnodes_max=high,
        nproc_per_node=values.nproc_per_node,
        spares_per_node=values.spares,
        on_nan=values.on_nan,
        nan_skip_window=values.nan_skip_window,
        check_replicas_every=values.check_replicas_every,
        on_corrupt_state="" if values.on_corrupt_state == "report" else values.on_corrupt_state,
        max_restarts=values.max_restarts,
        module=values.module,
        no_python=values.no_python,
        **layout_fields(values),
        **checkpoint_fields(values),
    )
    check_layout(spec)
    return spec


def check_command(values: argparse.Namespace, command: Sequence[str]) -> None:
    """Raise UsageError when there is nothing to run, before anything is started."""
    if not command:
        raise UsageError(f"no script given: {values.prog} [flags] train.py [its arguments]")
    if values.module and values.no_python:
        raise UsageError("--module and --no-python exclude each other: drop one")
    if values.module:
        _check_module(command[0])
    elif values.no_python:
        if shutil.which(command[0]) is None:
            raise UsageError(f"program {command[0]} not found: neither a file that may run nor on PATH")
    else:
        _check_script(Path(command[0]))


def _check_module(name: str) -> None:
    if PathFinder.find_spec(name.partition(".")[0], [os.getcwd(), *sys.path]) is None:
        raise UsageError(f"module {name} not found from {os.getcwd()}: is it installed, or on PYTHONPATH?")


def _check_script(path: Path) -> None:
    if path.is_file():
        return
    if path.is_dir():
        raise UsageError(f"script {path} is a folder: name the file to run")
    folder = path.parent
    others = [entry.name for entry in folder.glob("*.py")] if folder.is_dir() else []
    raise UsageError(f"script {path} not found in {os.getcwd()}{nearest(path.name, others)}")


def job_name(values: argparse.Namespace, command: Sequence[str]) -> tuple[str, bool]:
    """The job's name, and whether the same command gives the same name again.

    --rdzv-id names the job; else script and storage do. Without either nothing could be continued, so the
    name is random."""
    if values.rdzv_id:
        return clean_name(values.rdzv_id), True
    stem = clean_name(Path(command[0]).stem)[:40]
    if values.storage:
        identity = "\0".join([os.path.abspath(command[0]), storage_url(values.storage)])
        return f"{stem}-{_short(identity)}", True
    return f"{stem}-{os.urandom(3).hex()}", False


def clean_name(text: str) -> str:
    """Return `text` if it is a valid job name; otherwise its valid characters and a digest of the whole
    text."""
    if NAME.fullmatch(text):
        return text
    kept = re.sub(r"[^A-Za-z0-9._-]", "-", text).lstrip("._-")[:50] or "job"
    return f"{kept}-{_short(text)}"


def _short(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=3).hexdigest()
