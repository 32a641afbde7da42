"""Start the processes of one measurement, and end all of them when it is over, whatever happens."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import log

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

ROOT = Path(__file__).resolve().parent.parent
RANKS = 4


class Field:
    """A temporary folder for logs, and the processes that write there. Use as a context.

    Each process leads a session of its own. At the end each gets SIGINT, and `grace_s` to end what it
    started; then the whole session gets SIGKILL."""

    def __init__(self, name: str, grace_s: float = 0.0) -> None:
        self._grace_s = grace_s
        self._root = Path(tempfile.mkdtemp(prefix=f"hf-bench-{name}-"))
        self.logs = self._root / "logs"
        self.logs.mkdir()
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Field:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            end(process, self._grace_s)
        for pid in {row["pid"] for row in self.rows()}:
            if self.owns(pid):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self._root, ignore_errors=True)

    def start(self, *argv: str, env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start a program. Its output goes to `output`, below the temporary folder."""
        with self.output.open("ab") as output:
            process = subprocess.Popen(
                argv,
                cwd=self._root,
                env=environment(env or {}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    @property
    def output(self) -> Path:
        """The file with everything that the processes printed."""
        return self._root / "output"

    def rows(self) -> list[log.Row]:
        """All lines that the workers have logged so far."""
        return log.read(self.logs)

    def owns(self, pid: int) -> bool:
        """Whether this process lives and is one of our workers: its environment or command names our log
        folder."""
        try:
            environ = Path(f"/proc/{pid}/environ").read_bytes()
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            return False
        return str(self.logs).encode() in environ + command

    def expect(self, what: str, condition: Callable[[], bool], timeout_s: float) -> None:
        """Wait until the condition comes true.

        Raises RuntimeError, with the end of the output, when it does not in time, or when a process fails."""
        if not log.poll(lambda: condition() or self._failed(), timeout_s) or self._failed():
            tail = self.output.read_text(errors="replace")[-3000:]
            raise RuntimeError(f"no {what} within {timeout_s:.0f} s:\n{tail}")

    def _failed(self) -> bool:
        return any((process.poll() or 0) > 0 for process in self._processes)


def environment(extra: dict[str, str]) -> dict[str, str]:
    """The environment of every process under measurement: one thread each, loopback, our packages."""
    base = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": str(ROOT)}
    return {**os.environ, **base, **extra}


def end(process: subprocess.Popen[bytes], grace_s: float) -> None:
    """SIGINT, then after the grace SIGKILL to its whole session (without a grace: at once)."""
    if grace_s and process.poll() is None:
        process.send_signal(signal.SIGINT)
        log.poll(lambda: process.poll() is not None, grace_s)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def steady(field: Field, steps: int) -> bool:
    """Whether every rank lives and has taken this many steps."""
    last = log.newest(field.rows())
    return len(last) == RANKS and all(
        row["step"] >= steps and field.owns(row["pid"]) for row in last.values()
    )
