"""Run a cluster in which each coordinator, and each agent with its ranks, has a version of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controlplane.cli.local.processes import descendants
from tests.e2e.cli_running import DEADLINE_S, until
from tests.leashed import leashed
from tests.skew.before import ROOT
from tests.soak.books import Journal, Steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WAIT_S = DEADLINE_S
SCRIPT = Path(__file__).with_name("train.py")
NEW = ROOT


class Daemon:
    """One coordinator or agent of one version, with a log of its own."""

    def __init__(self, folder: Path, name: str, tree: Path, words: list[str]) -> None:
        self.folder, self.name = folder, name
        self.address_file = folder / f"{name}.json"
        self.address_file.unlink(missing_ok=True)
        with (folder / f"{name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                leashed([*holdfast(), *words, f"--address-file={self.address_file}"]),
                stdout=log,
                stderr=log,
                cwd=folder,
                env=of_version(tree),
            )

    def kill(self) -> None:
        """SIGKILL, as when memory is short. The processes that it started live on."""
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """SIGTERM, then SIGKILL with all that is below it."""
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def holdfast() -> list[str]:
    """The command line of Holdfast, in the version that the environment selects."""
    return [sys.executable, "-P", "-m", "controlplane"]


def of_version(tree: Path) -> dict[str, str]:
    """The environment in which Python finds this version's packages before those that are installed."""
    return {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": ""}


def free_ports(count: int) -> list[int]:
    """Ports on which nobody listens now."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Rolling:
    """Coordinators and agents of two versions, and one job on two nodes with the files that it wrote."""

    def __init__(self, folder: Path, etcd: str, cluster: str) -> None:
        self.folder, self.etcd, self.cluster = folder, etcd, cluster
        self.places = [f"127.0.0.1:{port}" for port in free_ports(2)]
        self.leaders: list[Daemon] = []
        self.agents: dict[str, Daemon] = {}
        self.steps = Steps(folder)
        self._journals: list[Journal] = []
        self._lines: list[dict[str, Any]] = []

    def coordinator(self, tree: Path) -> Daemon:
        """Start one more candidate of this version."""
        name = f"c{len(self.leaders)}"
        place = self.places[len(self.leaders) % len(self.places)]
        journal = self.folder / f"{name}.jsonl"
        words = [
            "coordinator",
            f"--etcd={self.etcd}",
            "--etcd-private",
            f"--cluster={self.cluster}",
            "--metrics=",
        ]
        words += [
            f"--listen={place}",
            f"--journal={journal}",
            "--join-grace-s=0",
            "--lease-ttl-s=2",
            "--private",
        ]
        self.leaders.append(Daemon(self.folder, name, tree, words))
        self._journals.append(Journal(journal))
        self.wait(self.leaders[-1].address_file.exists, f"{name} serves")
        return self.leaders[-1]

    def agent(self, node: str, tree: Path, coordinator: str = "") -> Daemon:
        """Start this node's agent in this version; a launcher that runs stays, with its ranks."""
        words = [
            "agent",
            f"--cluster={self.cluster}",
            f"--node={node}",
            "--address=127.0.0.1",
            "--slots=1",
            "--private",
        ]
        words += [
            f"--coordinator={coordinator or ','.join(self.places)}",
            f"--run-dir={self.folder / 'run'}",
            "--metrics=",
        ]
        words += [f"--shm-dir={self.folder / 'shm'}", "--beat-interval-s=0.5"]
        self.agents[node] = Daemon(self.folder, node, tree, words)
        return self.agents[node]

    def submit(self, tree: Path, *flags: str, script: str = "") -> None:
        """Submit the job to the leader, by this version's command line."""
        words = [
            "submit",
            "--coordinator",
            ",".join(self.places),
            "--cwd",
            str(self.folder),
            "--rdzv-id",
            "job",
        ]
        words += ["--nnodes", "2", "--spares", "1", "--storage", str(self.folder / "storage")]
        words += ["--snapshot-every", "5", "--checkpoint-every", "10", "--full-every", "40", *flags]
        path = self.folder / "train.py"
        path.write_text(script or SCRIPT.read_text())
        words += [str(path), str(self.folder)]
        done = self._ask(tree, *words)
        assert done.returncode == 0, done.stderr + self.said()

    def status(self, tree: Path) -> dict[str, Any]:
        """What this version's `holdfast status` prints about the cluster, as the leader reports it."""
        done = self._ask(tree, "status", "--coordinator", ",".join(self.places), "-o", "json")
        assert done.returncode == 0, done.stderr + self.said()
        return dict(json.loads(done.stdout))

    def _ask(self, tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*holdfast(), *words],
            env=of_version(tree),
            text=True,
            capture_output=True,
            timeout=WAIT_S,
            check=False,
        )

    def wait(self, what: Callable[[], Any], about: str, pause_s: float = 0.02) -> Any:
        """Wait for a true answer, and return it. Fails the test with all logs when none comes in time."""
        return until(what, lambda: f"{about}\n{self.said()}", WAIT_S, pause_s)

    def lines(self) -> list[dict[str, Any]]:
        """All lines of all leaders' journals so far."""
        for journal in self._journals:
            self._lines += journal.news()
        return self._lines

    def bodies(self, kind: str) -> list[dict[str, Any]]:
        """The bodies of the journals' lines of one type so far."""
        return [line["body"] for line in self.lines() if line["type"] == kind]

    def committed(self) -> int:
        """How many checkpoints have been committed so far."""
        self.lines()
        return sum(len(journal.committed) for journal in self._journals)

    def goes_on(self, about: str) -> None:
        """Wait until new steps are completed, new snapshots are taken, and a new checkpoint is committed."""
        at, before = self.steps.look().highest, self.committed()
        self.wait(lambda: self.steps.look().highest > at + 12, f"{about}: steps after {at}")
        self.wait(lambda: self.committed() > before, f"{about}: a checkpoint")
        assert self.steps.problems == []

    def kill_rank(self, rank: int) -> None:
        """SIGKILL a rank, and wait until another process trains in its place."""
        pid, before = self.pid_of(rank), len(self.recovered())
        os.kill(int(pid), signal.SIGKILL)
        self.wait(lambda: len(self.recovered()) > before, f"rank {rank} recovers")
        self.wait(lambda: self.pid_of(rank) != pid, f"rank {rank} is another process")

    def pid_of(self, rank: int) -> str:
        return (self.folder / f"{rank}.pid").read_text()

    def recovered(self) -> list[dict[str, Any]]:
        """The incidents that ended well, of all leaders."""
        told = [body["incident"] for body in self.bodies("IncidentChanged")]
        return [one for one in told if one["outcome"] == "recovered"]

    def finish(self) -> None:
        """Have the job end soon, and check that it ends well."""
        (self.folder / "last.part").write_text(str(self.steps.look().highest + 25))
        (self.folder / "last.part").rename(self.folder / "last")
        ended = self.wait(self.ended, "the job ends")
        assert ended[-1]["phase"] == "finished", self.said()
        assert self.steps.look().problems == []

    def ended(self) -> list[dict[str, Any]]:
        """The job's state at its end, once it is there."""
        states = [body["state"] for body in self.bodies("JobChanged")]
        return [state for state in states if state["phase"] in ("finished", "failed")]

    def peer(self, node: str) -> str:
        """The address of this node's peer service, as its agent told the leader that it joined last."""
        met = [body for body in self.bodies("NodeJoined") if body["node"] == node]
        return str(met[-1]["peer"])

    def dropped(self) -> list[dict[str, Any]]:
        """The messages of agents that coordinators dropped, except those that a standby refused."""
        return [body for body in self.bodies("Dropped") if body["kind"] != "not_leader"]

    def said(self) -> str:
        """The ends of all logs, for a test that fails."""
        logs = [*sorted(self.folder.glob("*.log")), *sorted(self.folder.glob("run/*/*/logs/**/*"))]
        return "\n".join(f"--- {path.name}\n{path.read_text()[-3000:]}" for path in logs if path.is_file())

    def end(self) -> None:
        """End all processes that are left, ranks and launchers too."""
        for daemon in (*self.leaders, *self.agents.values()):
            if daemon.process.poll() is None:
                daemon.end()
        for path in self.folder.glob("run/*/*/launcher.pid"):
            pid = int(path.read_text() or 0)
            for each in [pid, *descendants(pid)] if pid else []:
                with_none_left(each)


def with_none_left(pid: int) -> None:
    """SIGKILL a process, if it is there."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


@contextmanager
def rolling(etcd: str, cluster: str) -> Iterator[Rolling]:
    """A cluster without any daemon yet. It is ended and removed afterwards, whatever happened."""
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="hf-"))
    (folder / "shm").mkdir()
    world = Rolling(folder, etcd, cluster)
    try:
        yield world
    finally:
        world.end()
        shutil.rmtree(folder, ignore_errors=True)
