"""`holdfast run`: define its flags, and check everything before anything is started."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from controlplane.cli.errors import UsageError
from controlplane.cli.flags.job import add_job_flags, check_command, job_name, read_job, unused_flags
from controlplane.cli.flags.parser import CommandSpec, Parser, one_of
from controlplane.cli.flags.settings import add_settings, given
from controlplane.cli.flags.torchrun import add_output_flags, shown_ranks
from controlplane.cli.local.node_spaces import read_spaces
from controlplane.settings import (
    LOG_FORMATS,
    AgentSettings,
    CoordinatorSettings,
    SettingsError,
    check_agent,
    check_coordinator,
)

if TYPE_CHECKING:
    from controlplane.cli.local.cluster import ClusterPlan
    from controlplane.cli.local.lives import Beginning

USAGE = "holdfast run [flags] SCRIPT [the script's arguments]"
ABOUT = (
    "Run a training script on this machine, with torchrun's flags. Holdfast starts all it needs (a private "
    "etcd, a coordinator, one agent for each node), replaces ranks that die, and removes everything at the "
    "end."
)
SHORT = (
    *("--nnodes", "--nproc-per-node", "--rdzv-id", "--max-restarts", "--module", "--spares", "--on-nan"),
    *("--snapshot-every", "--checkpoint-every", "--storage", "--keep-last"),
    *("--fresh", "--log-dir", "--state-dir"),
)
EPILOG = "Run the same command again to continue a job that has --storage."


def add_flags(parser: Parser) -> None:
    """Add all flags of `holdfast run`."""
    parser.add_script("SCRIPT", "the training script; all that follows is passed to it")
    add_job_flags(parser)
    add_output_flags(parser)
    here = parser.add_argument_group("this machine")
    here.add_argument(
        "--state-dir",
        default="",
        metavar="FOLDER",
        help="folder for what a killed run needs to continue (default: below ~/.local/state/holdfast)",
    )
    here.add_argument(
        "--fresh", action="store_true", help="start from step 0; existing checkpoints are kept but not used"
    )
    here.add_argument(
        "--adopt",
        action="store_true",
        help="continue from the checkpoints on --storage even when --state-dir has no record of them",
    )
    here.add_argument(
        "--log-dir",
        default="",
        metavar="FOLDER",
        help="folder for the output of the ranks, one file per process",
    )
    here.add_argument(
        "--log-format", type=one_of(*LOG_FORMATS), default=argparse.SUPPRESS, metavar="text|json",
        help="format of the daemons' log lines: for people, or for programs (default: text)",
    )  # fmt: skip
    here.add_argument(
        "--shm-dir",
        default="/dev/shm",
        metavar="FOLDER",
        help="folder in memory for snapshots (default: /dev/shm)",
    )
    here.add_argument(
        "--etcd", default="", metavar="HOST:PORT", help="your own etcd (default: a private one is started)"
    )
    here.add_argument("--network-spaces", type=read_spaces, default=("", ()), help=argparse.SUPPRESS)
    here.add_argument(
        "--ledger",
        default="",
        metavar="FOLDER",
        help="folder for records of the samples that each step consumed",
    )
    timing = parser.add_argument_group("timing of the daemons")
    for kind in (CoordinatorSettings, AgentSettings):
        add_settings(timing, kind, only_unit="s")
    add_settings(timing, AgentSettings, only_unit="times")
    pace = parser.add_argument_group("limits of transfer rates")
    add_settings(pace, AgentSettings, only_unit="bytes/s")


def run(values: argparse.Namespace) -> int:
    """Run a job on this machine. The exit code tells how it ended."""
    command = values.command
    check_command(values, command)
    plan = _plan(values)
    name, stable = job_name(values, command)
    vain = unused_flags(values)
    if vain:
        print("".join(f"holdfast: {line}\n" for line in vain.splitlines()), end="", file=sys.stderr)
    spec = read_job(values, command, name)
    _check_folders(values)
    if not plan.log_dir and (values.redirects or values.tee or len(shown_ranks(values)) < plan.slots):
        plan = dataclasses.replace(plan, log_dir=_kept_dir())
    _probe(spec.storage, spec.mirror)
    from controlplane.cli.local.layout import make_layout
    from controlplane.cli.local.run import run_locally

    layout = make_layout(name, values.state_dir, once=not stable, shm_dir=values.shm_dir)
    return run_locally(layout, plan, spec, _beginning(values))


def _beginning(values: argparse.Namespace) -> Beginning:
    """How the run treats existing checkpoints. Raises UsageError."""
    from controlplane.cli.local.lives import Beginning

    if values.fresh and values.adopt:
        raise UsageError(
            "--fresh starts from step 0, --adopt continues from existing checkpoints: give one of them"
        )
    if values.adopt and not values.storage:
        raise UsageError("--adopt needs --storage: where are the checkpoints?")
    return Beginning(values.fresh, values.adopt)


def _plan(values: argparse.Namespace) -> ClusterPlan:
    from controlplane.cli.local.cluster import LOOPBACK, ClusterPlan

    coordinator, agent = (
        {name: value for name, value in given(kind, values).items() if name != "ledger"}
        for kind in (CoordinatorSettings, AgentSettings)
    )
    coordinator.pop("etcd", None)
    try:
        check_coordinator(CoordinatorSettings(**coordinator))
        check_agent(AgentSettings(**agent))
    except SettingsError as error:
        raise UsageError(str(error)) from error
    if values.ledger:
        agent["ledger"] = values.ledger
    shown = shown_ranks(values)
    if not shown:
        agent["show_output"] = False
    elif len(shown) < values.nproc_per_node:
        agent["show_local_ranks"] = ",".join(map(str, shown))
    host, spaces = values.network_spaces
    if spaces and len(spaces) != values.nnodes[1]:
        raise UsageError(f"--network-spaces has {len(spaces)} nodes, and --nnodes {values.nnodes[1]}")
    return ClusterPlan(
        nodes=values.nnodes[1],
        slots=values.nproc_per_node,
        etcd=values.etcd,
        coordinator=coordinator,
        agent=agent,
        log_dir=values.log_dir,
        host=host or LOOPBACK,
        spaces=spaces,
    )


def _kept_dir() -> str:
    """A new folder for the ranks' output, as torchrun makes one: else it would be gone after the run."""
    folder = tempfile.mkdtemp(prefix="holdfast_")
    print(f"holdfast: the ranks' output is in {folder}; name another folder with --log-dir", file=sys.stderr)
    return folder


def _check_folders(values: argparse.Namespace) -> None:
    """Raise UsageError when a folder that a flag names cannot be used."""
    if not Path(values.shm_dir).is_dir():
        raise UsageError(f"--shm-dir {values.shm_dir} is not a folder: name one in memory, like /dev/shm")
    for flag, folder in (("--log-dir", values.log_dir), ("--ledger", values.ledger)):
        if not folder:
            continue
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{flag} {folder} cannot be created: {error.strerror}; give another") from error
        if not os.access(folder, os.W_OK | os.X_OK):
            raise UsageError(f"{flag} {folder} is not writable: let this user write there, or give another")


def _probe(url: str, mirror: str) -> None:
    """Raise UsageError when a storage cannot be used, before anything is started."""
    if not url:
        return
    from holdfast.checkpoint.errors import CheckpointError
    from holdfast.checkpoint.storage.probing import probe

    try:
        found = probe(url, mirror)
    except CheckpointError as error:
        raise UsageError(str(error)) from error
    for limit in found.limits:
        print(f"holdfast: storage {url}: {limit}", file=sys.stderr)


COMMANDS = {"run": CommandSpec(ABOUT, run, add_flags, USAGE, EPILOG, short=SHORT)}
