"""`holdfast torchrun`: take the place of torchrun, in the pod of a TrainJob or on one machine.

Kubeflow Trainer runs `torchrun train.py` in every pod of a TrainJob, and its controller says by PET_
variables which node this is. A runtime of the chart puts a program of that name first on PATH, which runs
this. It becomes the launcher of its node (`holdfast exec`) and ends as the job ends. Node 0 first has the job
submitted, by the container beside it (orders/order_file.py). Elsewhere this is `holdfast run`."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from controlplane.cli import run
from controlplane.cli.errors import UsageError
from controlplane.cli.flags.job import add_job_flags, check_command, read_job, unused_flags
from controlplane.cli.flags.parser import CommandSpec, Parser
from controlplane.cli.flags.pet import IN_A_POD, REFUSED, refuse, variables
from controlplane.cli.orders import order_file
from controlplane.settings import NAME
from holdfast.launch.errand import JOB_FAILED

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

USAGE = "holdfast torchrun [flags] SCRIPT [the script's arguments]"
ABOUT = (
    "Take torchrun's place. In the pod of a TrainJob of Kubeflow Trainer: submit the job, and run the ranks "
    "of this node. Elsewhere: as `holdfast run`. Every flag can also be given as a variable, PET_NNODES=4 "
    "for --nnodes 4; flags of torchrun that cannot be kept are refused."
)
ORDERS = "torchrun"
"""The folder of the order, below the folder that agent and trainer share."""


@dataclass(frozen=True, slots=True)
class TrainPod:
    """What the runtime says of the pod of a TrainJob, in variables.

    - `job`: the job's name, made of the TrainJob's namespace and name.
    - `run_dir`: the folder that the pod's containers share.
    - `slots`: ranks that a node has room for; 0: not known.
    - `spare_nodes`: nodes of the TrainJob that wait for a failure.
    - `nodes_min`: fewest nodes to train on; 0: no fewer than train.
    - `grace_s`: how long the ranks have to leave after SIGTERM, as text."""

    job: str
    run_dir: Path
    slots: int
    spare_nodes: int
    nodes_min: int
    grace_s: str

    @classmethod
    def read(cls, found: Mapping[str, str]) -> TrainPod | None:
        """The pod; None outside of one. Raises UsageError."""
        job = found.get("HOLDFAST_JOB", "")
        if not job:
            return None
        if not NAME.fullmatch(job):
            raise UsageError(
                f"the job would be named {job!r}, after the TrainJob's namespace and name: a name has 63 "
                "characters at most, so give the TrainJob a shorter one"
            )
        return cls(
            job,
            run_dir=Path(found.get("HOLDFAST_RUN_DIR", "/hf")),
            slots=_count(found, "HOLDFAST_SLOTS"),
            spare_nodes=_count(found, "HOLDFAST_SPARE_NODES"),
            nodes_min=_count(found, "HOLDFAST_NODES_MIN"),
            grace_s=found.get("HOLDFAST_GRACE_S", "20"),
        )


def _count(found: Mapping[str, str], name: str) -> int:
    text = found.get(name, "") or "0"
    if not text.isdecimal():
        raise UsageError(f"{name}={text!r} is not a count: give a whole number, 0 or more")
    return int(text)


def torchrun(values: argparse.Namespace) -> int:
    """Run the ranks of this node as torchrun would, and return the exit code of the job."""
    parser = Parser(prog="torchrun")
    parser.become(COMMANDS["torchrun"])
    words = [*variables(parser, os.environ), *values.words]
    values = parser.parse_args([*words, "--", *values.command])
    pod = TrainPod.read(os.environ)
    return _here(values) if pod is None else _in_a_pod(values, words, pod)


def _flags(parser: Parser) -> None:
    if os.environ.get("HOLDFAST_JOB"):
        parser.add_script("SCRIPT", "the training script; all that follows is passed to it")
        add_job_flags(parser)
        refuse(parser, IN_A_POD)
    else:
        run.COMMANDS["run"].add_flags(parser)
    refuse(parser, REFUSED)


def _here(values: argparse.Namespace) -> int:
    if values.nnodes[1] > 1:
        raise UsageError(
            f"--nnodes {values.nnodes[1]}: here is one machine, and no agent of a cluster. Give --nnodes 1; "
            "`holdfast run --nnodes N` tries N nodes on this machine, `holdfast submit` gives the job to a "
            "cluster"
        )
    return run.run(values)


def _in_a_pod(values: argparse.Namespace, words: Sequence[str], pod: TrainPod) -> NoReturn:
    check_command(values, values.command)
    sized = _sized(values, pod)
    rank = values.node_rank or ""
    if not rank.isdecimal():
        raise UsageError(
            f"--node-rank {rank!r}: PET_NODE_RANK is not set. Kubeflow's controller sets it where the "
            "TrainJob has a spec.trainer, and the runtime's mlPolicy is torch"
        )
    vain = unused_flags(values)
    read_job(values, values.command, pod.job)
    if int(rank) == 0:
        print("".join(f"holdfast: {line}\n" for line in vain.splitlines()), end="", file=sys.stderr)
        if values.rdzv_id not in ("", pod.job):
            print(f"holdfast: --rdzv-id: the job is named {pod.job}, as its TrainJob", file=sys.stderr)
        _have_submitted([*words, *sized, f"--cwd={os.getcwd()}", "--", *values.command], pod)
    _become_launcher(values, pod)


def _sized(values: argparse.Namespace, pod: TrainPod) -> list[str]:
    """The flags that say how many nodes and ranks the job has. Raises UsageError."""
    low, all_nodes = values.nnodes
    high = all_nodes - pod.spare_nodes
    if high < 1:
        raise UsageError(
            f"HOLDFAST_SPARE_NODES={pod.spare_nodes} of {all_nodes} nodes leaves none that trains: give "
            "fewer spare nodes, or a larger numNodes"
        )
    low = min(low, high) if low < all_nodes else pod.nodes_min or high
    if low > high:
        raise UsageError(f"HOLDFAST_NODES_MIN={low} is more than the {high} nodes that train")
    if pod.slots and values.nproc_per_node > pod.slots:
        raise UsageError(
            f"--nproc-per-node {values.nproc_per_node}: the runtime's agents have {pod.slots} slots; set "
            f"numProcPerNode of the TrainJob to {pod.slots}, or ranksPerNode of the runtime to "
            f"{values.nproc_per_node}"
        )
    return [f"--nnodes={low}:{high}", f"--nproc-per-node={values.nproc_per_node}", f"--rdzv-id={pod.job}"]


def _have_submitted(words: Sequence[str], pod: TrainPod) -> None:
    """Have the container beside this one submit the job. Ends the process where it is refused."""
    folder = pod.run_dir / ORDERS
    try:
        refusal = order_file.await_answer(folder, order_file.place(folder, words))
    except (OSError, order_file.BadOrderError) as error:
        raise UsageError(f"the job cannot be passed on in {folder}: {error}") from error
    if refusal:
        print(f"holdfast torchrun: job {pod.job} was not submitted: {refusal}", file=sys.stderr)
        raise SystemExit(JOB_FAILED)
    print(f"holdfast: job {pod.job} is submitted", file=sys.stderr)


def _become_launcher(values: argparse.Namespace, pod: TrainPod) -> NoReturn:
    command = list(values.command) if values.no_python else [sys.executable, *_script(values)]
    words = ["exec", f"--job={pod.job}", f"--grace-s={pod.grace_s}", "--", *command]
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-P", "-m", "controlplane", *words])


def _script(values: argparse.Namespace) -> list[str]:
    return ["-m", *values.command] if values.module else list(values.command)


COMMANDS = {"torchrun": CommandSpec(ABOUT, torchrun, _flags, USAGE)}
