"""Define where a local cluster keeps its files, lock them for one run, and clear up after a killed run."""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import re
import signal
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controlplane.cli.errors import CliError
from controlplane.cli.local.processes import descendants, send
from holdfast import removal
from holdfast.folders import MEMORY_FILES, RUN_FILES
from holdfast.pids import born

NODE_NAMES = "n{}"
ONCE = "once"
"""The folder for states that are removed when their run ends."""
STATE_FILES = re.compile(
    r"etcd|logs|lock|stacks|journal\.(jsonl|reigns)|(cluster|job)\.(json|part)|(coordinator|n[0-9]+)\.json[.\w]*"
)
"""The files of a state folder. A folder from a version without marks is ours when it has nothing else."""
log = logging.getLogger(__name__)


def state_root() -> Path | None:
    """The folder of all states, unless a flag names another. None: this user has no home."""
    if base := os.environ.get("XDG_STATE_HOME"):
        return Path(base) / "holdfast"
    try:
        return Path.home() / ".local" / "state" / "holdfast"
    except RuntimeError:  # no HOME, and a user id without an account
        return None


@dataclass(frozen=True, slots=True)
class LocalPaths:
    """The paths of one local cluster."""

    job: str
    state: Path
    run_root: Path
    shm_dir: Path
    once: bool  # no command will continue this job: its state is removed when it ends

    @property
    def cluster(self) -> str:
        """The cluster's name: the job's, and a digest of the state's path, so that no two clusters share
        sockets."""
        return f"{self.job[:56]}-{hashlib.blake2b(str(self.state).encode(), digest_size=3).hexdigest()}"

    @property
    def run_dir(self) -> Path:
        """The folder of sockets, pid files and logs of all its nodes."""
        return self.run_root / self.cluster

    @property
    def card(self) -> Path:
        """The file that lists the processes of the running cluster, and where it listens."""
        return self.state / "cluster.json"

    def node_dir(self, node: str) -> Path:
        """The run folder of one node."""
        return self.run_dir / node

    def shm(self, node: str) -> Path:
        """The folder in shared memory of one node."""
        return self.shm_dir / f"holdfast-{os.getuid()}-{self.cluster}-{node}"

    def logs(self) -> Path:
        """The folder of the daemons' own logs."""
        return self.state / "logs"

    def read_card(self) -> dict[str, Any]:
        """The content of the card; {} when there is none, or an incomplete one."""
        try:
            card = json.loads(self.card.read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return card if isinstance(card, dict) else {}

    def write_card(self, card: dict[str, Any]) -> None:
        """Replace the card, as a whole."""
        partial = self.card.with_suffix(".part")
        partial.write_text(json.dumps(card, indent=2))
        partial.replace(self.card)


def make_layout(job: str, state_dir: str, *, once: bool = False, shm_dir: str = "/dev/shm") -> LocalPaths:
    """The layout of a job's cluster. Creates its state folder; raises CliError when that is impossible."""
    state = Path(state_dir).absolute() if state_dir else _below_root() / (ONCE if once else ".") / job
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        removal.claim(state, STATE_FILES if (state / "lock").exists() else None)
        (state / "logs").mkdir(exist_ok=True, mode=0o700)
    except removal.NotOursError as error:
        raise CliError(f"state folder: {error}; give another with --state-dir, or a new one") from error
    except OSError as error:
        raise CliError(
            f"state folder {state} cannot be made: {error.strerror}; give another with --state-dir"
        ) from error
    made = layout_at(job, state, once=once and not state_dir, shm_dir=Path(shm_dir).absolute())
    _check_run_root(made.run_root)
    return made


def _check_run_root(folder: Path) -> None:
    """Raise CliError when sockets could not be made in this folder. Agents make it, and check whose it is."""
    place = folder if folder.exists() else folder.parent
    try:
        tempfile.TemporaryFile(dir=place).close()
    except OSError as error:
        raise CliError(
            f"no sockets can be made in {folder}: {error.strerror}; let this user write in {place} (in a "
            "container, mount a volume there)"
        ) from error


def _below_root() -> Path:
    root = state_root()
    if root is None:
        raise CliError(
            f"no folder for the state of this run: user {os.getuid()} has no home; set HOME, or give "
            "--state-dir"
        )
    return root


def layout_at(job: str, state: Path, *, once: bool = False, shm_dir: Path = Path("/dev/shm")) -> LocalPaths:
    """The layout of a job whose state is in this folder. Touches nothing."""
    return LocalPaths(job, state, Path(f"/tmp/holdfast-{os.getuid()}"), shm_dir, once)


def prune() -> None:
    """Remove the states of killed runs whose jobs no command will continue."""
    root = state_root()
    for state in [] if root is None else (root / ONCE).glob("*/"):
        try:
            with (state / "lock").open("a+") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                removal.claim(state, STATE_FILES)  # a version without marks may have made it
                removal.tree(state)
        except (BlockingIOError, FileNotFoundError):
            continue  # it runs, or is being created or removed at this moment
        except OSError as error:  # it has files of others in it, or is still written to
            log.debug("%s was not removed: %s", state, error)


class Lock:
    """Allows one run per state folder. Held until the process ends, however it ends."""

    def __init__(self, layout: LocalPaths) -> None:
        """Raise CliError when another run holds it, naming that run and a solution."""
        self._file = open(layout.state / "lock", "a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = layout.read_card().get("supervisor", "?")
            self._file.close()
            raise CliError(
                f"job {layout.job} is running already (process {holder}, state in {layout.state}): wait "
                "for it, end it with Ctrl-C there, or name another with --rdzv-id"
            ) from error

    def release(self) -> None:
        """Let the next run in."""
        self._file.close()


def sweep(layout: LocalPaths) -> list[str]:
    """Remove what a killed run left: processes, sockets, shared memory. Returns what was found, for
    people."""
    found = []
    for name, (pid, birth) in layout.read_card().get("processes", {}).items():
        if birth and born(pid) == birth:
            found.append(f"{name} (process {pid})")
            _end(pid)
    for path in sorted(layout.run_dir.glob("*/launcher.pid")):
        pid = _launcher(path)
        if pid:
            found.append(f"the launcher of {path.parent.name} (process {pid})")
            _end(pid)
    remove_traces(layout)
    removal.file(layout.card)
    return found


def _launcher(path: Path) -> int:
    """The pid in this file if that launcher still has it, else 0.

    Pids are used again, and the process that has this one now may be another's. A launcher's command line has
    its folder."""
    try:
        pid = int(path.read_text().split()[0])
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (ValueError, IndexError, OSError):
        return 0
    return pid if os.fsencode(path.parent) in words else 0


def _end(pid: int) -> None:
    for member in [pid, *descendants(pid)]:
        send(member, signal.SIGKILL)


def remove_traces(layout: LocalPaths) -> None:
    """Remove run folders and shared memory of every node of this cluster. Files of others stay."""
    for folder in layout.run_dir.glob("*/"):
        _remove(folder, RUN_FILES)
    if layout.run_dir.is_dir():
        _remove(layout.run_dir, None)
    prefix = layout.shm("").name
    for folder in layout.shm_dir.glob(f"{prefix}*/"):
        _remove(folder, MEMORY_FILES)


def _remove(folder: Path, known: re.Pattern[str] | None) -> None:
    """Remove a folder that has our mark, or whose daemon was killed before it could set the mark."""
    try:
        if known is not None and not removal.claimed(folder):
            removal.claim(folder, known)
        removal.tree(folder)
    except FileNotFoundError:  # its own process has removed it meanwhile
        return
    except OSError as error:
        log.warning("%s was not removed: %s", folder, error)
