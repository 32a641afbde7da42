"""A cluster that stands: etcd, a coordinator and two agents, to which tests submit one job after the other.

What a job does and how it ends is the same there as under `holdfast run`, which submits to a cluster of its
own. Most of what a small job costs there are the starts of the daemons, and of each node's interpreter with
torch. So tests that look only at a job share one cluster for each process of pytest. What a test asks of the
daemons themselves, their flags or their end, needs a `holdfast run` of its own (cli_running.py)."""

from __future__ import annotations

import asyncio
import atexit
import functools
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controlplane.daemon.etcd.server import PrivateEtcd
from controlplane.reporting.lines import job_of
from tests.e2e.cli_running import DEADLINE_S, OBEDIENT, JournalLines, ended
from tests.e2e.test_cli_by_hand import PROGRAM, daemon, holdfast
from tests.leashed import leashed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

NODES = ("n0", "n1")
SLOTS = 64
COORDINATOR = ("--listen", "127.0.0.1:0", "--lease-ttl-s", "2", "--lemon-score", "1000000")
"""Its nodes see a hundred kills, and are never quarantined for them."""
_NUMBERS = itertools.count(1)


class Standing:
    """The daemons, and where they write."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="hf-"))
        self.journal = self.folder / "journal.jsonl"
        self._memory = Path(tempfile.mkdtemp(dir="/dev/shm", prefix="hf-"))
        self._etcd = PrivateEtcd(self.folder / "etcd")
        self._stack = ExitStack()
        asyncio.run(self._etcd.start())
        flags = ("--etcd", self._etcd.endpoint, "--etcd-private", "--journal", str(self.journal))
        self.address = self._stack.enter_context(
            daemon(self.folder, "c", "coordinator", *flags, *COORDINATOR)
        )
        places = ("--run-dir", str(self.folder / "run"), "--shm-dir", str(self._memory))
        for node in NODES:
            words = ("--coordinator", self.address, "--node", node, "--slots", str(SLOTS), *places)
            self._stack.enter_context(daemon(self.folder, node, "agent", *words))

    def close(self) -> None:
        """End all of it."""
        self._stack.close()
        asyncio.run(self._etcd.stop())
        for path in (self.folder, self._memory):
            shutil.rmtree(path, ignore_errors=True)


@functools.cache
def standing() -> Standing:
    """The cluster of this process. The first caller must be its main thread: the daemons end with it."""
    made = Standing()
    atexit.register(made.close)
    return made


class Job:
    """One job on the standing cluster, its folder, and the `holdfast submit --wait` that waits for it."""

    def __init__(self, folder: Path, *words: str, env: Mapping[str, str] | None = None) -> None:
        self.folder, self.words, self.env = folder, words, dict(env or {})
        self.cluster = standing()
        self.job = f"job{next(_NUMBERS)}"
        self.process: subprocess.Popen[str] | None = None
        self._journal = JournalLines(self.cluster.journal, new=True)

    def start(self) -> Job:
        given = [word for name, value in self.env.items() for word in ("--env", f"{name}={value}")]
        where = ["--coordinator", self.cluster.address, "--rdzv-id", self.job]
        with (self.folder / "output").open("a") as output:
            self.process = subprocess.Popen(
                leashed([*PROGRAM, "submit", "--wait", *where, *given, *self.words]),
                stdout=output,
                stderr=output,
                text=True,
                start_new_session=True,
            )
        return self

    @property
    def told(self) -> str:
        """What who has submitted it is told."""
        return (self.folder / "output").read_text()

    @property
    def output(self) -> str:
        """The same, and then what its ranks have printed."""
        logs = sorted((self.cluster.folder / "run").glob(f"*/*/logs/{self.job}.*.log"))
        return "\n".join([self.told, *[path.read_text(errors="replace") for path in logs]])

    def end(self, timeout_s: float = DEADLINE_S) -> int:
        """Wait for its end, and return the exit code. Fails the test when it does not end."""
        return ended(self.process, lambda: self.output, timeout_s)

    def journal(self, kind: str) -> list[dict[str, Any]]:
        """The bodies of the journal's lines of one type about this job so far, its notes included."""
        found = self._journal.bodies(kind)
        return [body for body in found if self.job in (job_of(body), body.get("subject"))]

    def stop(self) -> None:
        """End it, if it has not ended."""
        assert self.process is not None
        if self.process.poll() is None:
            holdfast("stop", self.job, "--coordinator", self.cluster.address)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                os.kill(self.process.pid, signal.SIGKILL)
                self.process.wait()


@contextmanager
def submitted(
    *words: str,
    script: str = OBEDIENT,
    storage: bool = False,
    files: Mapping[str, str] | None = None,
    arguments: Sequence[str] | None = None,
) -> Iterator[Job]:
    """Submit a job with a folder of its own, with these files in it; end it afterwards. `arguments`: of the
    script; None: the folder."""
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="hf-"))
    env = {}
    if storage:
        (folder / "ledger").mkdir()
        env["HOLDFAST_LEDGER"] = str(folder / "ledger")
        words = ("--storage", str(folder / "storage"), *words)
    for name, text in {"script.py": script, **(files or {})}.items():
        (folder / name).write_text(text)
    given = [str(folder)] if arguments is None else arguments
    job = Job(folder, *words, str(folder / "script.py"), *given, env=env)
    try:
        yield job.start()
    finally:
        job.stop()
        shutil.rmtree(folder, ignore_errors=True)
