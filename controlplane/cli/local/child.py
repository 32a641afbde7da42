"""Keep one daemon of a local cluster alive: start it again when it dies, within bounds.

A daemon has started when it has written its address file. It is restarted without limit after that; but when
it dies STARTS_MAX times in a row before it was ready, it is given up, with the last lines of its log. An
agent that is refused for good is given up at once."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from controlplane.cli.errors import CliError
from controlplane.cli.local.processes import send, wait_for_end
from controlplane.exit_codes import REFUSED
from controlplane.parent_death import with_parent_death_signal
from holdfast import removal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

STARTS_MAX = 3
"""How often in a row a daemon may die before it is ready."""
_BACKOFF_S = (0.0, 0.25, 1.0, 2.0)
"""The pause before each further start."""
_LOOK_S = 0.02


class ChildFailed(CliError):
    """A daemon does not start, or is refused. The message has its last log lines."""


@dataclass(slots=True)
class Child:
    """One daemon. `argv` is called at each start, because the first start may learn a port that the next must
    use."""

    name: str
    argv: Callable[[], Sequence[str]]
    address_file: Path  # written by the daemon once it serves
    log: Path
    show_output: bool = False  # its standard output goes to ours instead of the log
    on_change: Callable[[], None] = lambda: None
    process: subprocess.Popen[bytes] | None = None
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    starts: int = 0
    _log_from: int = 0  # the offset in the log where the last start begins
    _stopping: bool = False

    @property
    def pid(self) -> int:
        """The id of its process; 0 when it does not run."""
        return 0 if self.process is None else self.process.pid

    async def keep(self) -> None:
        """Keep it running until `stop`. Raises ChildFailed when it dies too often before it is ready, or
        is refused for good."""
        failures = 0
        while not self._stopping:
            await asyncio.sleep(_BACKOFF_S[min(failures, len(_BACKOFF_S) - 1)])
            if self._stopping:
                return
            self._start()
            watcher = asyncio.create_task(self._watch_ready())
            code = await self._wait()
            watcher.cancel()
            failures = 1 if self.ready.is_set() else failures + 1
            self.ready.clear()
            self.process = None
            if self._stopping:
                return
            self._note(f"ended {_ending(code)}")
            if code == REFUSED:
                raise ChildFailed(f"{self.name} is refused for good. {self._log_shown()}")
            if failures >= STARTS_MAX:
                raise ChildFailed(self._obituary(code))

    async def served(self, keep_task: asyncio.Task[None], timeout_s: float) -> None:
        """Return once it serves for the first time.

        `keep_task`: the task of its `keep`. Raises ChildFailed when it dies too often before, or takes too
        long."""
        ready = asyncio.create_task(self.ready.wait())
        try:
            await asyncio.wait([keep_task, ready], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
        if keep_task.done():
            keep_task.result()
        elif not self.ready.is_set():
            raise ChildFailed(f"{self.name} was not ready within {timeout_s:g} s. {self._log_shown()}")

    async def stop(self, grace_s: float) -> None:
        """Ask it to end, and kill it after `grace_s`."""
        self._stopping = True
        process = self.process
        if process is None:
            return
        send(process.pid, signal.SIGTERM)
        send(process.pid, signal.SIGCONT)
        deadline = time.monotonic() + grace_s
        while process.poll() is None and time.monotonic() < deadline:  # noqa: ASYNC110 -- bounded by a deadline
            await asyncio.sleep(_LOOK_S)
        if process.poll() is None:
            self._note(f"did not end within {grace_s:.0f} s: killed")
            process.kill()
            process.wait()

    def _start(self) -> None:
        removal.file(self.address_file)
        with self.log.open("ab") as log:
            self._log_from = log.tell()
            self.process = subprocess.Popen(
                with_parent_death_signal(list(self.argv()), signal.SIGTERM),
                stdin=subprocess.DEVNULL,
                stdout=None if self.show_output else log,
                stderr=log,
                start_new_session=True,
            )
        self.starts += 1
        self.on_change()

    async def _watch_ready(self) -> None:
        while not self.address_file.exists():  # noqa: ASYNC110 -- a file has no event
            await asyncio.sleep(_LOOK_S)
        self.ready.set()

    async def _wait(self) -> int:
        """Wait for its end, and return its exit status."""
        assert self.process is not None
        await wait_for_end(self.process.pid)
        return self.process.wait()

    def _note(self, text: str) -> None:
        with suppress(FileNotFoundError), self.log.open("a") as log:  # somebody may have removed the folder
            log.write(f"holdfast run: {self.name} {text}\n")

    def _obituary(self, code: int) -> str:
        return f"{self.name} does not start: it ended {_ending(code)} {STARTS_MAX} times. {self._log_shown()}"

    def _log_shown(self) -> str:
        """The last lines that it logged since its last start."""
        lines = last_lines(self.log, since=self._log_from)
        excerpt = "".join(f"\n    {line}" for line in lines) or "\n    (its log is empty)"
        return f"From {self.log}:{excerpt}"


def _ending(code: int) -> str:
    return f"with code {code}" if code >= 0 else f"by {signal.Signals(-code).name}"


def last_lines(path: Path, count: int = 8, since: int = 0) -> list[str]:
    """The last lines of a text file, from byte `since` on; [] when there is no such file."""
    try:
        with path.open("rb") as file:
            file.seek(max(since, path.stat().st_size - 8192))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return []
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("holdfast run: ")]
    return lines[-count:]
