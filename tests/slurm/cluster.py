"""A Slurm of three nodes on this machine: munged, slurmctld and slurmd are the real ones.

Several slurmd share the machine (`-N`, a port and a spool folder each). Nothing isolates their nodes, so
Holdfast's ports are free ones and its folders have the node's name in them. A node is lost when all that ran
on it is gone at once: slurmd, its slurmstepd, and the processes of their tasks."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from tests.e2e.cli_running import until
from tests.leashed import leashed

if TYPE_CHECKING:
    from collections.abc import Callable

NODES = ("n0", "n1", "n2")
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "srun", "scontrol", "munged")
_DEAD_S = 10  # a slurmd is down when it has not answered for so long
_CONF = """
ClusterName=try
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthInfo=socket={folder}/munge.sock,cred_expire=30
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
SlurmctldPort={port}
SlurmdTimeout={dead_s}
ReturnToService=2
KillWait=10
NodeName=n[0-2] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs=2 RealMemory=1000
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> list[str]:
    """Which of Slurm's programs this machine lacks."""
    path = f"{os.environ['PATH']}:/usr/sbin"
    return [name for name in PROGRAMS if shutil.which(name, path=path) is None]


class SlurmCluster:
    """A Slurm whose files are all in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = os.environ | {
            "SLURM_CONF": str(folder / "slurm.conf"),
            "PATH": f"{os.environ['PATH']}:/usr/sbin",
        }
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Return once all nodes are idle."""
        self._configure()
        self._run("munged", "--foreground", "--force", *self._munge_flags())
        until((self.folder / "munge.sock").exists, "munged has no socket", 30)
        self._run("slurmctld", "-D")
        for node in NODES:
            (self.folder / f"spool-{node}").mkdir()
            self._run("slurmd", "-D", "-N", node, name=node)
        until(lambda: self.says("sinfo", "-h", "-o", "%T") == "idle", lambda: self.says("sinfo"), 60)

    def says(self, *words: str) -> str:
        """What a command of Slurm's prints; "" when it fails."""
        done = subprocess.run(
            words, env=self.env, capture_output=True, text=True, check=False, timeout=60, cwd=self.folder
        )
        return done.stdout.strip() if done.returncode == 0 else ""

    def submit(self, script: Path) -> SlurmJob:
        """Give a batch script to sbatch."""
        answer = self.says("sbatch", "--parsable", str(script))
        assert answer, f"sbatch refuses {script}"
        return SlurmJob(self, answer, script.with_suffix(".out"))

    def lose(self, node: str) -> None:
        """Kill all that runs on a node, at once."""
        tasks = [pid for pid in _pids() if self._is_task(pid, node)]
        stepds = {_parent(pid) for pid in tasks} - set(tasks)
        stepds = {pid for pid in stepds if _command(pid).startswith(b"slurmstepd")}
        assert tasks and stepds, f"nothing runs on {node}"
        # Children first: a stopped process that outlived its parent would get SIGHUP and SIGCONT.
        everything = [*sorted(tasks, reverse=True), *stepds, self._daemons[node].pid]
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in everything:
                os.kill(pid, number)

    def revive(self, node: str) -> None:
        """Start a lost node again."""
        self._daemons[node].wait(30)
        self._run("slurmd", "-D", "-N", node, name=node)

    def end(self) -> None:
        """End the daemons, and remove what killed agents have left."""
        self.says("scancel", "--full", "--user=root")
        if self._daemons:
            until(lambda: not self.says("squeue", "-h"), lambda: self.says("squeue"), 60)
        for process in reversed(self._daemons.values()):
            process.terminate()
        for process in self._daemons.values():
            process.wait(30)
        user, name = os.getuid(), self.folder.name  # jobs are named after the folder
        for trace in (
            Path(f"/tmp/holdfast-{user}/{name}"),
            *Path("/dev/shm").glob(f"holdfast-{user}-{name}-*"),
        ):
            shutil.rmtree(trace, ignore_errors=True)

    def left(self) -> list[str]:
        """The commands of processes that belong to no daemon of Slurm's but to this cluster's jobs."""
        mark = f"SLURM_CONF={self.folder}/slurm.conf".encode()
        found = [pid for pid in _pids() if mark in _environ(pid) and b"SLURM_JOB_ID=" in _raw_environ(pid)]
        return [_command(pid).replace(b"\0", b" ").decode(errors="replace") for pid in found]

    def _is_task(self, pid: int, node: str) -> bool:
        marks = {f"SLURM_CONF={self.folder}/slurm.conf".encode(), f"SLURMD_NODENAME={node}".encode()}
        return marks <= _environ(pid)

    def _run(self, program: str, *words: str, name: str = "") -> None:
        with (self.folder / f"{name or program}.said").open("ab") as output:
            self._daemons[name or program] = subprocess.Popen(
                leashed([str(shutil.which(program, path=self.env["PATH"])), *words]),
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def _munge_flags(self) -> list[str]:
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        named = {"key-file": key.name, "socket": "munge.sock", "pid-file": "munged.pid"}
        named |= {"log-file": "munged.log", "seed-file": "munged.seed"}
        return [f"--{flag}={self.folder / name}" for flag, name in named.items()]

    def _configure(self) -> None:
        self.folder.chmod(0o755)
        (self.folder / "state").mkdir()
        ports = _free_ports(1 + len(NODES))
        text = _CONF.format(
            host=socket.gethostname().partition(".")[0],
            user="root",
            folder=self.folder,
            port=ports[0],
            dead_s=_DEAD_S,
            first=ports[1],
            last=ports[-1],
        )
        (self.folder / "slurm.conf").write_text(text)


class SlurmJob:
    """One batch job and its output."""

    def __init__(self, cluster: SlurmCluster, number: str, path: Path) -> None:
        self.cluster, self.number, self._path = cluster, number, path

    @property
    def output(self) -> str:
        """What the script, the agents and the ranks have printed so far."""
        return self._path.read_text() if self._path.exists() else ""

    def fact(self, name: str) -> str:
        """One field of `scontrol show job`."""
        found = re.search(rf"\b{name}=(\S+)", self.cluster.says("scontrol", "show", "job", self.number))
        return found[1] if found else ""

    def until(self, what: Callable[[str], object], timeout_s: float = 300.0) -> str:
        """Wait until this is true of the output, and return that output."""

        def looked() -> str:
            return self.output if what(self.output) else ""

        return str(until(looked, lambda: f"{self.fact('JobState')}; it said:\n{self.output}", timeout_s))

    def ended(self, timeout_s: float = 300.0) -> str:
        """Wait for its end, and return the state that it has then."""
        over = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
        return str(
            until(
                lambda: self.fact("JobState") in over and self.fact("JobState"),
                lambda: f"{self.fact('JobState')}; it said:\n{self.output}",
                timeout_s,
            )
        )


def _free_ports(count: int) -> list[int]:
    """The first of several neighbouring ports that nobody listens on, and its neighbours."""
    for first in range(16000, 19000, count):
        ports = list(range(first, first + count))
        try:
            for port in ports:
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return ports
    raise AssertionError("no free ports")


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:  # it has ended
        return b""


def _raw_environ(pid: int) -> bytes:
    return _read(pid, "environ")


def _environ(pid: int) -> set[bytes]:
    return set(_raw_environ(pid).split(b"\0"))


def _command(pid: int) -> bytes:
    return _read(pid, "cmdline")


def _parent(pid: int) -> int:
    return int(_read(pid, "stat").rpartition(b")")[2].split()[1])
