"""`holdfast exec`: run the launcher as main process of a training container, or copy it into any image.

The copy runs with the image's own Python and its standard library only: nothing is installed there. Ranks are
forked from the launcher's zygote, so the launcher must run with the very interpreter that the command names;
it replaces its own process (execv) when it does not."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from controlplane.cli.errors import OK, CliError, UsageError
from controlplane.cli.flags.parser import CommandSpec, Parser, one_of, seconds
from controlplane.settings import LOG_FORMATS, AgentSettings, SettingsError, check_name
from holdfast import removal

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping, Sequence

USAGE = "holdfast exec [flags] -- python train.py [its arguments]"
PACKAGES = ("holdfast", "controlplane")
_MARK = "HOLDFAST_EXEC"
"""The environment variable that names the interpreter already chosen.

It prevents an endless loop with an interpreter that reports another path in sys.executable."""
_SHIM = """#!/bin/sh
# holdfast: the launcher, run by this container's own Python (HOLDFAST_PYTHON names another).
here=$(dirname "$(dirname "$0")")
PYTHONPATH="$here/lib${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONPATH
for python in ${HOLDFAST_PYTHON:-python3 python}; do
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
    exec "$python" -P -m controlplane "$@"
done
echo "holdfast: no Python of 3.11 or newer on PATH in this image: name one in HOLDFAST_PYTHON" >&2
exit 127
"""
_TORCHRUN = """#!/bin/sh
# holdfast: stands for torchrun where this folder comes first on PATH.
exec "$(dirname "$0")/holdfast" torchrun "$@"
"""
_PROGRAMS = {"holdfast": _SHIM, "torchrun": _TORCHRUN}


def exec_(values: argparse.Namespace) -> int:
    """Run the launcher until the job, the agent or a signal ends it; or copy the launcher somewhere."""
    command = values.command
    if values.copy_to:
        return copy(Path(values.copy_to))
    if not command:
        raise UsageError(f"no command given: {USAGE}")
    _check_names(values)
    _take_interpreter(command)
    from holdfast.launch.errand import EndPolicy
    from holdfast.launch.launcher import serve

    folder = Path(values.run_dir) / values.cluster / values.node
    return serve(folder, values.orphan_timeout_s, EndPolicy(values.job, values.grace_s), values.log_format)


def _flags(parser: Parser) -> None:
    parser.add_script("COMMAND", "the command of the ranks, python first")
    env = os.environ
    base = env.get("HOLDFAST_RUN_DIR", f"/tmp/holdfast-{os.getuid()}")
    cluster, node = env.get("HOLDFAST_CLUSTER", AgentSettings().cluster), env.get("HOLDFAST_NODE", "")
    parser.add_argument(
        "--run-dir", default=base, metavar="FOLDER", help="the --run-dir of the agent, a shared folder"
    )
    parser.add_argument("--cluster", default=cluster, metavar="NAME", help="the --cluster of the agent")
    parser.add_argument("--node", default=node, metavar="NAME", help="the --node of the agent")
    parser.add_argument(
        "--job",
        default="",
        metavar="NAME",
        help="exit when this job ends, with 0 (finished) or 41 (failed) (default: wait for the next job)",
    )
    parser.add_argument(
        "--grace-s",
        type=seconds(0.0),
        default=20.0,
        metavar="SECONDS",
        help="after SIGTERM, time for the agent to move the ranks away; then they are killed",
    )
    parser.add_argument(
        "--orphan-timeout-s",
        type=seconds(1.0),
        default=300.0,
        metavar="SECONDS",
        help="how long the ranks go on without an agent",
    )
    parser.add_argument(
        "--log-format", type=one_of(*LOG_FORMATS), default="text", metavar="text|json",
        help="format of the log lines: for people, or for programs",
    )  # fmt: skip
    parser.add_argument(
        "--copy-to",
        default="",
        metavar="FOLDER",
        help="copy the launcher into this folder, for another image, and exit",
    )


def _check_names(values: argparse.Namespace) -> None:
    try:
        check_name("cluster", values.cluster)
        check_name("node", values.node)
    except SettingsError as error:
        raise UsageError(f"{error} (--cluster and --node, as given to the agent)") from error


def _take_interpreter(command: Sequence[str]) -> None:
    """Become the interpreter that the command names: the ranks are forked from the one that runs this."""
    name = Path(command[0]).name
    if not name.startswith("python"):
        return
    wanted = shutil.which(command[0])
    if wanted is None:
        raise UsageError(f"{command[0]} not found on PATH: is it in this image?")
    script = command[1] if len(command) > 1 and not command[1].startswith("-") else ""
    if script and not Path(script).exists():
        raise UsageError(f"script {script} not found in {os.getcwd()}: is it in this image, or mounted here?")
    if os.environ.pop(_MARK, "") != wanted and Path(wanted) != Path(sys.executable):
        os.environ[_MARK] = wanted
        _become(wanted)


def _become(python: str) -> NoReturn:
    os.execv(python, [python, "-P", "-m", "controlplane", *sys.argv[1:]])


def copy(folder: Path) -> int:
    """Put the launcher and the SDK into `folder`: bin/holdfast, bin/torchrun and lib/. Raises CliError."""
    root = Path(__file__).resolve().parents[2]
    programs = {folder / "bin" / name: text for name, text in _PROGRAMS.items()}
    targets = {package: folder / "lib" / package for package in PACKAGES}
    _check_replaceable(programs, targets.values())
    try:
        for package, target in targets.items():
            removal.tree(target)
            target.mkdir(parents=True)
            removal.claim(target)
            shutil.copytree(
                root / package,
                target,
                ignore=_only_sources,
                copy_function=shutil.copyfile,
                dirs_exist_ok=True,
            )
        for program, text in programs.items():
            _put(program, text)
    except OSError as error:
        raise CliError(
            f"cannot copy to {folder}: {error.strerror or error}; give a writable --copy-to"
        ) from error
    print(f"the launcher is in {folder / 'bin' / 'holdfast'}")
    return OK


def _put(program: Path, text: str) -> None:
    program.parent.mkdir(exist_ok=True)
    draft = program.with_name(removal.draft_name())
    draft.write_text(text)
    draft.chmod(0o755)
    draft.replace(program)


def _check_replaceable(programs: Mapping[Path, str], targets: Iterable[Path]) -> None:
    """Raise CliError when a file is in the way that no `exec --copy-to` has made."""
    foreign = [path for path in targets if os.path.lexists(path) and not removal.claimed(path)]
    foreign += [path for path, text in programs.items() if os.path.lexists(path) and not _is_ours(path, text)]
    if foreign:
        there = ", ".join(map(str, foreign))
        raise CliError(
            f"{there}: not put there by `holdfast exec --copy-to` of this version, and not overwritten; "
            "move it away, or give another --copy-to"
        )


def _is_ours(path: Path, text: str) -> bool:
    head = "".join(text.splitlines(keepends=True)[:2]).encode()
    return path.is_file() and not path.is_symlink() and path.read_bytes().startswith(head)


def _only_sources(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if name == "__pycache__" or not _wanted(Path(folder) / name)]


def _wanted(path: Path) -> bool:
    return path.is_dir() or path.suffix in (".py", ".pyi", ".typed")


COMMANDS = {
    "exec": CommandSpec(
        "Run the launcher of a node in the training container, when its agent is in another container. It "
        "starts the ranks with this container's Python.",
        exec_,
        _flags,
        USAGE,
    )
}
