"""`holdfast slurm render`: print the batch script that runs one's own script. No Slurm is contacted."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controlplane.cli.errors import OK, UsageError
from controlplane.cli.flags.job import clean_name
from controlplane.cli.flags.parser import CommandEntry, CommandSpec, Parser, one_of, whole
from controlplane.cli.slurm.checks import checked, time_limit_s
from controlplane.cli.slurm.plan import ALWAYS, END_S, NEVER, SAVED, SlurmPlan, SlurmTls
from controlplane.cli.slurm.script import text
from controlplane.daemon.etcd.binary import find_binary
from controlplane.daemon.etcd.errors import PrivateEtcdError
from controlplane.daemon.etcd.server import member_flags

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

USAGE = "holdfast slurm render [flags] -- train.py [its arguments]"
_SAVE_MIN_S = 2 * END_S
_NODE_LOCAL = ("/tmp", "/var/tmp", "/dev/shm", "/run")


def slurm(_: argparse.Namespace) -> int:
    """Raise UsageError: the verb is missing."""
    raise UsageError(f"a verb is missing: {USAGE}")


def render(values: argparse.Namespace) -> int:
    """Print the script for sbatch. Raises UsageError on whatever would fail in the queue."""
    if not values.command:
        raise UsageError(f"no script given: {USAGE}")
    _check_sizes(values)
    _check_ends(values)
    plan = _plan(values)
    checked(plan)
    for folder in filter(None, (plan.state, values.storage.removeprefix("file://"))):
        if plan.nodes_all > 1 and any(Path(folder).is_relative_to(each) for each in _NODE_LOCAL):
            print(f"holdfast: {folder}: every node must see the same files there", file=sys.stderr)
    print(text(plan), end="")
    return OK


def _flags(parser: Parser) -> None:
    many: dict[str, Any] = {"action": "append", "default": [], "metavar": "FLAG"}
    _add_size(parser, many)
    job = parser.add_argument_group("the job")
    job.add_argument(
        "--name", default="", metavar="NAME", help="name of the job (default: the name of the script)"
    )
    job.add_argument(
        "--storage",
        default="",
        metavar="URL",
        help="storage of the checkpoints, which every node reaches: an fsspec URL",
    )
    job.add_argument("--mirror", default="", metavar="URL", help="a second storage for every checkpoint")
    job.add_argument("--flag", **many, help="one more flag of `holdfast submit`; repeatable")
    job.add_argument(
        "--env", action="append", default=[], metavar="NAME[=VALUE]",
        help="environment variable of the ranks (without VALUE: as sbatch passes it on); repeatable",
    )  # fmt: skip
    _add_end(parser)
    _add_lead(parser, many)
    _add_tls(parser)
    parser.add_script("SCRIPT", "the training script; all that follows is passed to it")


def _add_size(parser: Parser, many: dict[str, Any]) -> None:
    count, node = whole(0, "a count"), whole(1, "a job needs one")
    size = parser.add_argument_group("the allocation")
    size.add_argument("--nodes", type=node, default=1, metavar="N", help="nodes that train")
    size.add_argument(
        "--nodes-min", type=count, default=0, metavar="N",
        help="fewest nodes to train on after a loss; 0: no fewer than --nodes",
    )  # fmt: skip
    size.add_argument(
        "--spare-nodes", type=count, default=0, metavar="N",
        help="further nodes that wait for a failure",
    )  # fmt: skip
    size.add_argument(
        "--nproc-per-node", type=node, default=None, metavar="N",
        help="ranks per node (default: --gpus-per-node, without GPUs 1)",
    )  # fmt: skip
    size.add_argument("--gpus-per-node", type=count, default=0, metavar="N", help="GPUs of each node")
    size.add_argument(
        "--time", default="", metavar="TIME", help="time limit, as sbatch takes it (default: the partition's)"
    )
    size.add_argument("--partition", default="", metavar="NAME", help="partition of the nodes")
    size.add_argument("--account", default="", metavar="NAME", help="account that is charged")
    size.add_argument("--sbatch", **many, help="one more flag of sbatch; repeatable")
    size.add_argument("--chdir", default="", metavar="FOLDER", help="working directory (default: this one)")
    size.add_argument(
        "--python", default=sys.executable, metavar="FILE",
        help="Python of ranks and daemons, with Holdfast, the same on every node (default: this one)",
    )  # fmt: skip
    size.add_argument(
        "--setup", action="append", default=[], metavar="LINE",
        help="a line of bash for the beginning of the script, like `module load cuda`; repeatable",
    )  # fmt: skip


def _add_end(parser: Parser) -> None:
    end = parser.add_argument_group("at the time limit")
    end.add_argument(
        "--save-s", type=whole(_SAVE_MIN_S, "the job must be saved and ended in it", 65535), default=300,
        metavar="SECONDS", help="how long before it the job is saved and requeued (default: 300)",
    )  # fmt: skip
    words = (SAVED, ALWAYS, NEVER)
    end.add_argument(
        "--requeue", type=one_of(*words), default=SAVED, metavar="|".join(words),
        help="back into the queue: if there is a checkpoint; always, for scripts that keep their own; never",
    )  # fmt: skip


def _add_lead(parser: Parser, many: dict[str, Any]) -> None:
    lead = parser.add_argument_group("coordinator and etcd")
    lead.add_argument(
        "--state-dir", default="", metavar="FOLDER",
        help="shared folder for etcd's data and logs, kept between requeues (default: NAME.holdfast here)",
    )  # fmt: skip
    lead.add_argument("--etcd-binary", default="", metavar="FILE", help="etcd on the nodes (default: found)")
    lead.add_argument(
        "--etcd", default="", metavar="HOST:PORT", help="your own etcd (default: one on the first node)"
    )
    lead.add_argument(
        "--coordinator", default="", metavar="HOST:PORT",
        help="your own coordinators, comma separated (default: one on the first node)",
    )  # fmt: skip
    lead.add_argument(
        "--cluster", default="", metavar="NAME",
        help="name of the Holdfast cluster (default: that of the job; with --coordinator `default`)",
    )  # fmt: skip
    lead.add_argument("--coordinator-flag", **many, help="one more flag of the coordinator; repeatable")
    lead.add_argument("--agent-flag", **many, help="one more flag of the agents; repeatable")


def _add_tls(parser: Parser) -> None:
    tls = parser.add_argument_group("TLS")
    tls.add_argument(
        "--tls-dir", default="", metavar="FOLDER",
        help="folder with ca.crt, and .crt and .key of coordinator, agent and operator (docs/slurm.md)",
    )  # fmt: skip
    tls.add_argument(
        "--tls-name", default="coordinator.holdfast", metavar="NAME",
        help="DNS name in the coordinator's certificate",
    )  # fmt: skip
    tls.add_argument(
        "--tls-peer-name", default="agents.holdfast", metavar="NAME",
        help="DNS name in the agents' certificate",
    )  # fmt: skip
    tls.add_argument("--insecure", action="store_true", help="no TLS and no authentication")


def _check_sizes(values: argparse.Namespace) -> None:
    if values.spare_nodes > values.nodes:
        raise UsageError(
            f"--spare-nodes {values.spare_nodes} is more than --nodes {values.nodes}: --nodes is how many "
            "train, the spare ones come on top; give fewer spare nodes"
        )
    if values.nodes_min > values.nodes:
        raise UsageError(
            f"--nodes-min {values.nodes_min} is more than --nodes {values.nodes}: give at most {values.nodes}"
        )


def _check_ends(values: argparse.Namespace) -> None:
    """Refuse what could not be continued, or not in the time there is."""
    if values.requeue == SAVED and not values.storage:
        raise UsageError(
            "no storage given: a requeued job goes on from its newest checkpoint; give --storage URL, "
            "a place that every node reaches, or --requeue never"
        )
    limit_s = time_limit_s(values.time)
    if values.requeue != NEVER and limit_s is not None and limit_s <= values.save_s:
        raise UsageError(
            f"--time {values.time} is over before training begins: saving starts {values.save_s} s before "
            "the limit (--save-s); give a longer time, or fewer seconds"
        )
    if not values.tls_dir and not values.insecure:
        raise UsageError(
            "no certificates given: give --tls-dir FOLDER (docs/slurm.md), or ask for plaintext with "
            "--insecure"
        )
    if values.tls_dir and values.insecure:
        raise UsageError("--insecure cannot be combined with --tls-dir: drop one")
    if values.coordinator and (values.etcd or values.etcd_binary or values.coordinator_flag):
        raise UsageError(
            "with --coordinator no etcd and no coordinator are started: drop --etcd, --etcd-binary and "
            "--coordinator-flag"
        )


def _plan(values: argparse.Namespace) -> SlurmPlan:
    chdir = os.path.abspath(values.chdir)
    job = values.name or clean_name(Path(values.command[0]).stem)
    state = "" if values.coordinator else os.path.join(chdir, values.state_dir or f"{job}.holdfast")
    tls = SlurmTls(os.path.abspath(values.tls_dir), values.tls_name, values.tls_peer_name)
    gpus, slots = values.gpus_per_node, values.nproc_per_node or values.gpus_per_node or 1
    named = {"--gpus-per-node": gpus, "--partition": values.partition, "--account": values.account}
    return SlurmPlan(
        job=job,
        cluster=values.cluster or ("default" if values.coordinator else job),
        nodes=values.nodes,
        spare_nodes=values.spare_nodes,
        slots=slots,
        chdir=chdir,
        python=os.path.abspath(values.python),
        state=state,
        save_s=values.save_s,
        requeue=values.requeue,
        time=values.time,
        sbatch=(*(f"{flag}={value}" for flag, value in named.items() if value), *values.sbatch),
        setup=tuple(values.setup),
        coordinator=values.coordinator,
        etcd=values.etcd,
        etcd_binary=_etcd(values),
        etcd_flags=tuple(member_flags('"$state/etcd"', '"http://$endpoint"')),
        tls=None if values.insecure else tls,
        agent_flags=tuple(values.agent_flag),
        coordinator_flags=tuple(values.coordinator_flag),
        submit_words=tuple(_submit(values, job, slots)),
    )


def _etcd(values: argparse.Namespace) -> str:
    """The program that the nodes call. "": none is started. Raises UsageError."""
    if values.coordinator or values.etcd:
        return ""
    if values.etcd_binary:
        return str(values.etcd_binary)
    try:
        return find_binary().path
    except PrivateEtcdError as error:
        raise UsageError(
            f"{error}; or say with --etcd-binary where the nodes have it, or name your own with --etcd"
        ) from error


def _submit(values: argparse.Namespace, job: str, slots: int) -> list[str]:
    """The words of `holdfast submit`."""
    found = [
        "--wait",
        f"--rdzv-id={job}",
        f"--nnodes={values.nodes_min or values.nodes}:{values.nodes}",
        f"--nproc-per-node={slots}",
    ]
    for flag, value in (("--storage", values.storage), ("--mirror", values.mirror)):
        found += [f"{flag}={value}"] if value else []
    found += [f"--env={each}" for each in values.env]
    return [*found, *values.flag, "--", *_script(values.command)]


def _script(command: Sequence[str]) -> list[str]:
    """The script and its arguments; a leading `python` is left out: --python names it."""
    first, *rest = command
    python = Path(first).name.startswith("python")
    return rest if python and rest and not rest[0].startswith("-") else [*command]


COMMANDS = {
    "slurm": CommandSpec(
        "Print a batch script for Slurm. No Slurm is contacted.",
        slurm,
        usage=USAGE,
        verbs={"render": CommandEntry("slurm.command", "print the batch script of a training job")},
    ),
    "render": CommandSpec(
        "Print a batch script for sbatch that runs a training job: coordinator and etcd on the first node, "
        "an agent on each, spare nodes that wait. A lost node does not end the job; at the time limit it is "
        "saved and put back into the queue.",
        render,
        _flags,
        USAGE,
    ),
}
