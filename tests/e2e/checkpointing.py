"""Run a job with the training script of the soak test, and check what it recorded, the journal and the
storage."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controlplane.cli.local.processes import descendants, is_running
from tests.e2e.cli_running import DEADLINE_S, Run, until
from tests.soak.books import Journal, Steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

SCRIPT = Path(__file__).parents[1] / "soak" / "train.py"


class Trained:
    """One job that may be started many times, each time with other flags. HERE in a flag stands for its
    folder."""

    def __init__(
        self, folder: Path, kind: str, *flags: str, pace_s: float = 0.02, ask_every: int = 0
    ) -> None:
        self.folder = folder
        self.script = [str(SCRIPT), str(folder), kind, str(pace_s), str(ask_every)]
        self.run = Run(folder, *self._placed(flags), *self.script)
        self.journal = Journal(self.run.layout.state / "journal.jsonl")
        self.lines: list[dict[str, Any]] = []
        self._steps = Steps(folder)
        self._forms = 0

    def again(self, *flags: str) -> None:
        """Start the job once more, with these flags."""
        self._forms = len(self.resumes())
        self.run.words = (*self._placed(flags), *self.script)
        self.run.start()

    def _placed(self, flags: Iterable[str]) -> list[str]:
        return [flag.replace("HERE", str(self.folder)) for flag in flags]

    @property
    def step(self) -> int:
        """The furthest step that any rank has completed."""
        return self._steps.look().highest

    def judge(self) -> None:
        """Fail the test when a repeated step gave another state than the first time."""
        assert self._steps.look().problems == []

    def committed(self) -> list[str]:
        """Ids of all checkpoints committed so far, in their order."""
        self.look()
        return self.journal.committed

    def look(self) -> list[dict[str, Any]]:
        """All lines of the journal so far."""
        self.lines += self.journal.news()
        return self.lines

    def bodies(self, kind: str) -> list[dict[str, Any]]:
        """The bodies of the journal's lines of one type so far."""
        return [line["body"] for line in self.look() if line["type"] == kind]

    def changes(self, outcome: str) -> list[dict[str, Any]]:
        """The journal's lines about checkpoints that ended in this way."""
        return [body for body in self.bodies("CheckpointChanged") if body["outcome"] == outcome]

    def wait(
        self, what: Callable[[], Any], about: str, timeout_s: float = DEADLINE_S, pause_s: float = 0.02
    ) -> Any:
        """Wait for a true answer, and return it. Fails the test with the run's output when none comes in
        time."""
        return until(what, lambda: f"{about}; {self.run.output[-6000:]}", timeout_s, pause_s)

    def more(self, count: int = 1) -> str:
        """Wait until this many more checkpoints are committed, and return the id of the newest."""
        before = len(self.committed())
        self.wait(lambda: len(self.committed()) >= before + count, f"{count} more checkpoints")
        return self.committed()[-1]

    def finish(self, ahead: int = 25) -> None:
        """Have the job end a few steps from now, and check that it ends well."""
        (self.folder / "last.part").write_text(str(self.step + ahead))
        (self.folder / "last.part").rename(self.folder / "last")
        assert self.run.end() == 0, self.run.output

    def interrupt(self) -> None:
        """Press Ctrl-C. The same command can continue the job later."""
        assert self.run.process is not None
        self.run.process.send_signal(signal.SIGINT)
        assert self.run.end() == 130, self.run.output

    def kill_rank(self, rank: int) -> None:
        kill([int((self.folder / f"{rank}.pid").read_text())])

    def kill_all(self) -> None:
        """Kill the whole run at once, as when the machine stops. When this returns, all of its processes have
        ended."""
        everyone = self.run.everything_below()
        assert self.run.process is not None
        self.run.process.kill()
        self.run.end()
        self.wait(lambda: not [pid for pid in everyone if is_running(pid)], "its children end with it")

    def lose(self, node: str) -> None:
        """Kill all processes of a node and remove its memory. The node comes back empty."""
        agent = self.run.pid_of(node)
        assert agent, self.run.layout.read_card()
        os.kill(agent, signal.SIGSTOP)
        launcher = int((self.run.layout.run_dir / node / "launcher.pid").read_text())
        kill([launcher, *descendants(launcher)])
        shutil.rmtree(self.run.layout.shm(node))
        kill([agent])

    def recovered(self, count: int) -> dict[str, Any]:
        """Wait until incident number `count` of this leader has recovered, and return it."""

        def over() -> list[dict[str, Any]]:
            told = [body["incident"] for body in self.bodies("IncidentChanged")]
            return [one for one in told if one["id"] == count and one["outcome"] == "recovered"]

        found: dict[str, Any] = self.wait(over, f"incident {count} is over")[0]
        return found

    def resumes(self) -> list[dict[str, Any]]:
        """The restore point of each generation that was ordered to form."""
        return [body["generation"]["resume"] for body in self.bodies("Form")]

    def resumed(self) -> dict[str, Any]:
        """The restore point with which the job continued when it was last started."""
        self.wait(lambda: len(self.resumes()) > self._forms, "it goes on")
        return self.resumes()[self._forms]

    def written(self, name: str) -> list[list[str]]:
        """All lines, split at the first three spaces, that the ranks have written to their files of this
        name."""
        found = []
        for path in sorted(self.folder.glob(f"*.{name}"), key=lambda path: path.stat().st_mtime_ns):
            found += [line.split(" ", 3) for line in path.read_text().splitlines()]
        return found


def kill(pids: Iterable[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def checkpoint(verb: str, *words: str) -> tuple[int, Any]:
    """`holdfast checkpoint VERB ... --json`: its exit code and its answer."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "controlplane", "checkpoint", verb, *words, "--json"],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def verified(url: object) -> list[int]:
    """The steps of all checkpoints on a storage, newest first. Fails the test when one is not valid."""
    code, told = checkpoint("verify", str(url))
    assert code == 0 and all(each["valid"] and not each["errors"] for each in told["checkpoints"]), told
    return [each["step"] for each in told["checkpoints"]]


def spoil(path: Path) -> None:
    """Flip one bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@contextmanager
def trained(kind: str, *flags: str, pace_s: float = 0.02, ask_every: int = 0) -> Iterator[Trained]:
    """Start a job in a folder of its own that also holds its storage. Both are removed afterwards."""
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="hf-"))
    job = Trained(folder, kind, *flags, pace_s=pace_s, ask_every=ask_every)
    try:
        job.run.start()
        yield job
    finally:
        job.run.stop()
        shutil.rmtree(folder, ignore_errors=True)
