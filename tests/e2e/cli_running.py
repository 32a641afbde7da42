"""`holdfast run` as a process under test, and a script that obeys the test."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controlplane.cli.local.layout import layout_at
from controlplane.cli.local.processes import descendants, is_running
from controlplane.cli.main import main
from tests.leashed import leashed
from tests.soak.books import Rotated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

DEADLINE_S = 240.0

OBEDIENT = """
import os, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
name = f"{os.environ['RANK']}-{os.environ['TORCHELASTIC_RESTART_COUNT']}"
(folder / f"{name}.part").write_text(str(os.getpid()))
(folder / f"{name}.part").rename(folder / f"{name}.pid")
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], flush=True)
while not (folder / "done").exists():
    time.sleep(0.02)
"""


ASKED_S = 1.0
"""The pause between two answers of a command: each is a process, and costs half a second of CPU time."""
ANSWERED_S = 0.2
"""The same without a process (`answer`)."""


def until(
    what: Callable[[], Any],
    about: str | Callable[[], str],
    timeout_s: float = DEADLINE_S,
    pause_s: float = 0.02,
) -> Any:
    """Wait for a true answer, and return it. Fails the test when none comes in time; `about` is called only
    then, so that its message shows the latest state."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        found = what()
        if found:
            return found
        time.sleep(pause_s)
    raise AssertionError(f"not within {timeout_s:.0f} s: {about if isinstance(about, str) else about()}")


def answer(*words: str) -> subprocess.CompletedProcess[str]:
    """What a command of `holdfast` answers, without a process of its own: for tests that ask until something
    is so, and would else take half a CPU from what they wait for. Not where an event loop runs."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(words)
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


class JournalLines:
    """A journal, each line of which is parsed once, however often it is asked for. `new`: only what comes."""

    def __init__(self, path: Path, *, new: bool = False) -> None:
        self._tail = Rotated(path)
        self._lines: list[dict[str, Any]] = []
        if new:
            self._tail.lines()

    def bodies(self, kind: str) -> list[dict[str, Any]]:
        """The bodies of the lines of one type so far."""
        self._lines += map(json.loads, self._tail.lines())
        return [line["body"] for line in self._lines if line["type"] == kind]


def ended(process: subprocess.Popen[str] | None, output: Callable[[], str], timeout_s: float) -> int:
    """Wait for the end of a process, and return its exit code. Fails the test when it does not end."""
    assert process is not None
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired as error:
        raise AssertionError(f"it does not end; it said:\n{output()}") from error


class Run:
    """One `holdfast run`, its folders, and everything below it."""

    def __init__(
        self, folder: Path, *words: str, job: str = "", env: Mapping[str, str] | None = None
    ) -> None:
        self.folder, self.words, self.env = folder, words, dict(env or {})
        self.state = folder / "state"
        self.job = job or f"t{folder.name[3:]}".replace("_", "x")
        self.layout = layout_at(self.job, self.state)
        self.process: subprocess.Popen[str] | None = None
        self._journal = JournalLines(self.layout.state / "journal.jsonl")

    def start(self) -> Run:
        flags = ["--state-dir", str(self.state), "--rdzv-id", self.job, "--lease-ttl-s", "2"]
        with (self.folder / "output").open("a") as output:
            self.process = subprocess.Popen(
                leashed([sys.executable, "-P", "-m", "controlplane", "run", *flags, *self.words]),
                stdout=output,
                stderr=output,
                text=True,
                start_new_session=True,
                env=os.environ | self.env,
            )
        return self

    @property
    def output(self) -> str:
        return (self.folder / "output").read_text()

    def end(self, timeout_s: float = DEADLINE_S) -> int:
        """Wait for its end, and return the exit code. Fails the test when it does not end."""
        return ended(self.process, lambda: self.output, timeout_s)

    def pid_of(self, name: str) -> int:
        """The process id of a daemon; 0 when it does not run."""
        return int(self.layout.read_card().get("processes", {}).get(name, [0])[0])

    def rank_pid(self, rank: int, restart: int = 0) -> int:
        """The process id of the script at this rank and attempt, once it runs."""
        path = self.folder / f"{rank}-{restart}.pid"
        return int(until(lambda: path.exists() and path.read_text(), lambda: f"{path.name}; {self.output}"))

    def journal(self, kind: str) -> list[dict[str, Any]]:
        """The bodies of the journal's lines of one type so far."""
        return self._journal.bodies(kind)

    def traces(self) -> list[str]:
        """The sockets and shared memory that it has left on this machine."""
        left = [self.layout.run_dir, *self.layout.shm_dir.glob(self.layout.shm("").name + "*")]
        return [str(path) for path in left if path.exists()]

    def stop(self) -> None:
        """End it, whatever it is doing, and remove its traces."""
        if self.process is not None and self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                for pid in [self.process.pid, *descendants(self.process.pid)]:
                    os.kill(pid, signal.SIGKILL)
                self.process.wait()
        shutil.rmtree(self.layout.run_dir, ignore_errors=True)
        for trace in self.traces():
            shutil.rmtree(trace, ignore_errors=True)

    def everything_below(self) -> list[int]:
        assert self.process is not None
        return [pid for pid in descendants(self.process.pid) if is_running(pid)]


def preloading(script: str) -> dict[str, str]:
    """The setting by which agents do not import torch for a script that has no use for it: seconds of CPU."""
    return {} if "torch" in script or "holdfast" in script else {"HOLDFAST_PRELOAD": "json"}


@contextmanager
def running(
    *words: str,
    script: str = OBEDIENT,
    storage: bool = False,
    files: Mapping[str, str] | None = None,
    arguments: Sequence[str] | None = None,
) -> Iterator[Run]:
    """Start a run in a folder of its own, with these files in it. Both are ended and removed afterwards,
    whatever happened. `arguments`: of the script; None: the folder."""
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="hf-"))
    if storage:
        (folder / "ledger").mkdir()
        words = ("--storage", str(folder / "storage"), "--ledger", str(folder / "ledger"), *words)
    for name, text in {"script.py": script, **(files or {})}.items():
        (folder / name).write_text(text)
    given = [str(folder)] if arguments is None else arguments
    run = Run(folder, *words, str(folder / "script.py"), *given, env=preloading(script))
    try:
        yield run.start()
    finally:
        run.stop()
        shutil.rmtree(folder, ignore_errors=True)
