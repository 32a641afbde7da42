"""Name, create and guard the folders of one node: only its user may read them, one agent uses them."""

from __future__ import annotations

import fcntl
import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from controlplane.core.records.words import AHEAD_MAX_S
from controlplane.settings import SettingsError
from holdfast import removal
from holdfast.folders import MEMORY_FILES, RUN_FILES, FolderError, make_own
from holdfast.pids import fields

if TYPE_CHECKING:
    from controlplane.settings import AgentSettings

_SOCKET_PATH_MAX = 107
log = logging.getLogger("holdfast.agent")


@dataclass(frozen=True, slots=True)
class Paths:
    """Where a node's files are; docs/protocols.md lists them all."""

    run: Path
    memory: Path

    @classmethod
    def of(cls, settings: AgentSettings, node: str) -> Paths:
        """The folders for these settings. Raises SettingsError when a socket's path is too long."""
        base = Path(settings.run_dir or f"/tmp/holdfast-{os.getuid()}").absolute()
        run = base / settings.cluster / node
        memory = Path(settings.shm_dir) / f"holdfast-{os.getuid()}-{settings.cluster}-{node}"
        paths = cls(run, memory)
        if len(os.fsencode(paths.launcher)) > _SOCKET_PATH_MAX:
            raise SettingsError(
                f"the socket's path {paths.launcher} is longer than {_SOCKET_PATH_MAX} bytes: "
                "give a shorter --run-dir"
            )
        return paths

    @property
    def rank_socket(self) -> Path:
        """The rank server's socket."""
        return self.run / "gate.sock"

    @property
    def launcher(self) -> Path:
        """The launcher's socket."""
        return self.run / "launcher.sock"

    @property
    def logs(self) -> Path:
        """Folder of the members' output; may be a link to a folder of the user's choice."""
        return self.run / "logs"

    def log(self, member: str) -> Path:
        """The log of a member's standard output and error."""
        return self.logs / f"{member}.log"

    @property
    def log_index(self) -> Path:
        """Folder of the marks in the members' logs: which part was written when, and as which rank."""
        return self.run / "log-marks"

    def trace(self, member: str, request: str) -> Path:
        """The trace of a profile of this member, beside its log."""
        return self.logs / f"{member}.profile-{request}.json.gz"

    def page(self, member: str) -> Path:
        """A member's progress page."""
        return self.memory / f"{member}.board"

    def stacks(self, member: str) -> Path:
        """Where a member writes its stacks on request."""
        return self.memory / f"{member}.stacks"

    def arena(self, member: str) -> Path:
        """The arena with a member's snapshots."""
        return self.memory / f"{member}.arena"

    def record(self, member: str) -> Path:
        """A member's last status, for the next agent."""
        return self.memory / f"{member}.json"

    def spec(self, member: str) -> Path:
        """The job as it was when this member was launched."""
        return self.memory / f"{member}.spec"

    @property
    def copies(self) -> Path:
        """Folder of the snapshots that are kept for other nodes."""
        return self.memory / "copies"

    def create(self) -> None:
        """Create the folders, readable by our user alone. Raises SettingsError when one cannot be created."""
        own_folder(self.run, "--run-dir")
        if not self.logs.is_symlink():  # a link is our user's own: nobody else can write to our folder
            own_folder(self.logs, "--run-dir")
        elif not self.logs.is_dir():
            raise SettingsError(
                f"{self.logs} is a link to a missing folder: make {os.readlink(self.logs)}, or remove it"
            )
        own_folder(self.log_index, "--run-dir")
        own_folder(self.memory, "--shm-dir")
        try:
            removal.claim(self.run, RUN_FILES)
        except removal.NotOursError as error:  # it is used all the same, but never removed
            log.warning("%s", error)
        try:
            removal.claim(self.memory, MEMORY_FILES)
        except OSError as error:
            raise SettingsError(f"{error}; move that away, or give another --shm-dir") from error

    def remove(self) -> None:
        """Remove what nobody needs after an orderly end: socket, snapshots, progress pages. Logs stay."""
        removal.dead_socket(self.rank_socket)
        stays = removal.clear(self.memory, MEMORY_FILES)
        if stays:
            log.warning(
                "%s was not removed: it has files that are not Holdfast's: %s",
                self.memory,
                ", ".join(stays[:5]),
            )


def own_folder(path: Path, flag: str) -> None:
    """Make a folder of mode 0700. Raises SettingsError when it is another user's, or cannot be made."""
    try:
        make_own(path)
    except FolderError as error:
        raise SettingsError(f"{error}; give another {flag}") from error


class FolderLock:
    """The lock of a run folder, held by its one agent.

    The kernel releases it when that process is gone, so a killed agent blocks the next one only while the
    kernel holds a thread of it. Raises SettingsError when another agent holds it.

    `incarnation`: the time (ns) at which this agent started, or what is next after that of the agent before
    it: leaders take an agent with a lower number for an older one, and the node's clock may have been set
    back."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "agent.lock"
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 64, 0).decode(errors="replace").partition(" ")[0].strip()
            os.close(self._descriptor)
            raise SettingsError(
                f"the agent of process {holder} already uses {folder}: {_way(holder)}"
            ) from None
        self.incarnation = _next_incarnation(os.pread(self._descriptor, 64, 0))
        self._write(os.getpid())

    def release(self) -> None:
        """Release the lock, for the next agent."""
        self._write(0)
        os.close(self._descriptor)

    def _write(self, pid: int) -> None:
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{pid} {self.incarnation}\n".encode(), 0)


def _next_incarnation(left: bytes) -> int:
    """The incarnation after the one that the agent before has left here, if a leader can have accepted that
    one."""
    now, former = time.time_ns(), left.split()[1:]
    known = int(former[0]) if former and former[0].isdigit() else 0
    return max(now, known + 1) if known - now <= AHEAD_MAX_S * 1e9 else now


def _way(holder: str) -> str:
    """How to make way for another agent, by how the process that holds the lock stands."""
    state = (fields(int(holder)) or [""])[0] if holder.isdigit() else ""
    if state == "Z":
        return (
            "it was killed, and a thread of it still waits in the kernel, mostly for a storage that does not "
            "answer; once that is over, start this one again"
        )
    if state == "T":
        return f"it is stopped; let it go on (kill -CONT {holder}), or end it (kill -KILL {holder})"
    return "stop it, or give this one another --node or --run-dir"
