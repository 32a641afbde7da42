"""Check before printing what would fail in the queue hours later: names, times, flags of the daemons."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controlplane.cli import daemons
from controlplane.cli.errors import UsageError
from controlplane.cli.flags.job import read_job
from controlplane.cli.flags.parser import Parser, addresses
from controlplane.cli.flags.settings import given
from controlplane.cli.orders import submit
from controlplane.daemon.etcd.target import EtcdTarget
from controlplane.settings import (
    AgentSettings,
    CoordinatorSettings,
    EtcdSettings,
    SettingsError,
    check_agent,
    check_coordinator,
    check_name,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from controlplane.cli.flags.parser import CommandSpec
    from controlplane.cli.slurm.plan import SlurmPlan

_OURS = frozenset(
    "job-name nodes ntasks-per-node exclusive mem no-kill dependency open-mode chdir requeue no-requeue "
    "signal time".split()
)
"""The flags of sbatch that the script has already, without their hyphens."""
_SHORT = {"J": "job-name", "N": "nodes", "d": "dependency", "D": "chdir", "t": "time", "k": "no-kill"}
_TIME = re.compile(r"(?:(?P<days>\d+)-(?P<hours>\d+(?::\d+){0,2})|(?P<plain>\d+(?::\d+){0,2}))")
_MISREAD = re.compile(r"[\s\"'\\#%]")
"""What sbatch does not read as written in the path of an option."""


def time_limit_s(text: str) -> int | None:
    """Seconds of a time limit as sbatch takes it; None without one. Raises UsageError."""
    if not text or text.upper() in ("UNLIMITED", "INFINITE"):
        return None
    found = _TIME.fullmatch(text)
    if found is None:
        raise UsageError(
            f"--time {text!r} is not a time of Slurm's: give MINUTES, HH:MM:SS or DAYS-HH[:MM[:SS]]"
        )
    parts = [int(part) for part in (found["hours"] or found["plain"]).split(":")]
    if found["days"] or len(parts) == 3:  # HH[:MM[:SS]]
        parts = [*parts, 0, 0][:3]
    else:  # MM[:SS]
        parts = [0, *parts, 0][:3]
    hours, minutes, seconds = parts
    return ((int(found["days"] or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


def checked(plan: SlurmPlan) -> None:
    """Raise UsageError on whatever the daemons, sbatch or bash would refuse or misread."""
    try:
        check_name("job", plan.job)
        check_name("cluster", plan.cluster)
        check_agent(AgentSettings(**_agent(plan)))
        if not plan.coordinator:
            check_coordinator(CoordinatorSettings(**_coordinator(plan)))
        if plan.etcd:
            EtcdTarget.of(EtcdSettings(etcd=plan.etcd))
    except SettingsError as error:
        raise UsageError(str(error)) from error
    if plan.coordinator:
        addresses(plan.coordinator)
    _check_job(plan)
    _check_sbatch(plan.sbatch)
    tls = plan.tls.folder if plan.tls else ""
    for path in (plan.chdir, plan.state, plan.python, tls):
        if _MISREAD.search(path):
            raise UsageError(
                f"{path!r}: sbatch misreads white space, quotes, #, % and \\ in a path: give another"
            )
    if any("\n" in word for word in (*plan.submit_words, *plan.agent_flags, *plan.coordinator_flags)):
        raise UsageError("a word of the command has a line break: put such values into a file")


def _agent(plan: SlurmPlan) -> dict[str, Any]:
    values = _parsed("agent", daemons.COMMANDS["agent"], plan.agent_flags, "--agent-flag")
    return given(AgentSettings, values) | {"cluster": plan.cluster, "jobs": plan.job, "insecure": True}


def _coordinator(plan: SlurmPlan) -> dict[str, Any]:
    values = _parsed(
        "coordinator", daemons.COMMANDS["coordinator"], plan.coordinator_flags, "--coordinator-flag"
    )
    etcd = {"etcd": plan.etcd} if plan.etcd else {}
    return given(CoordinatorSettings, values) | {"cluster": plan.cluster, "insecure": True, **etcd}


def _check_job(plan: SlurmPlan) -> None:
    """Refuse what `holdfast submit` would, and a script that is not there."""
    values = _parsed("submit", submit.COMMANDS["submit"], plan.submit_words, "--flag")
    read_job(values, values.command, plan.job)
    script = Path(plan.chdir, values.command[0])
    if not values.module and not values.no_python and not script.is_file():
        raise UsageError(
            f"script {values.command[0]} not found in {plan.chdir}: name another folder with --chdir, "
            "or `--flag=--module` or `--flag=--no-python` for what is no file of Python"
        )


def _parsed(name: str, command: CommandSpec, words: Sequence[str], flag: str) -> argparse.Namespace:
    parser = Parser(prog=f"holdfast {name}")
    parser.become(command)
    try:
        values: argparse.Namespace = parser.parse_args(words)
    except UsageError as error:
        raise UsageError(f"{flag}: {error}") from error
    return values


def _check_sbatch(flags: Sequence[str]) -> None:
    for flag in flags:
        if not flag.startswith("-") or re.search(r"[\s#]", flag):
            raise UsageError(f"--sbatch {flag!r} is not a flag: give one word, as --sbatch=--constraint=h100")
        name = flag.partition("=")[0].lstrip("-")
        if (name if flag.startswith("--") else _SHORT.get(name[:1])) in _OURS:
            raise UsageError(f"--sbatch {flag}: the script has that flag; `holdfast slurm render` makes it")
