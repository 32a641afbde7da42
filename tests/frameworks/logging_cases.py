"""Run the loggers' recipes as jobs: with kills of rank 0 and a restart of the whole job, and with a server
that is down."""

from __future__ import annotations

import os
import signal
import struct
import time
from typing import TYPE_CHECKING, Any

from tests.e2e.cli_running import Run, until
from tests.frameworks import log_readers, log_scripts
from tests.frameworks.log_cases import ABSENT_STEPS
from tests.frameworks.log_readers import Log, Server, served

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.frameworks.log_cases import LogCase
    from tests.frameworks.rows import Row

FLAGS = ("--nproc-per-node", "2", "--spares", "1", "--snapshot-every", "5", "--checkpoint-every", "10")
DELAY_MAX_MS = 100.0
TIMED_STEPS = 200
"""The steps of a job whose server is away for some of them."""


def judge(case: LogCase, row: Row, folder: Path) -> None:
    """Run a case in this folder, and write what was found into its row."""
    with served(case.library, folder) as server:
        job = Run(folder, *_words(folder))
        try:
            if case.down is None:
                _killed(case, row, job)
            else:
                assert server is not None
                _without_server(case, row, job, server)
        except AssertionError as error:
            row.differs.append(str(error)[-4000:])
        finally:
            job.stop()


def _words(folder: Path) -> tuple[str, ...]:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    return (*FLAGS, "--storage", str(folder / "storage"), str(folder / "script.py"), str(folder))


def _killed(case: LogCase, row: Row, job: Run) -> None:
    undisturbed = _undisturbed(job.folder / "undisturbed")
    (job.folder / "script.py").write_text(log_scripts.killed(case.section))
    (job.folder / "stop").touch()
    job.start()
    stopped = [job.folder / f"at-45.{rank}" for rank in (0, 1)]
    until(lambda: all(path.exists() for path in stopped), lambda: job.output)
    read = log_readers.READERS[case.library]
    before = _status(case, read, job.folder)
    end_everything(job)
    (job.folder / "stop").unlink()
    code = job.start().end()
    found = read(job.folder)
    row.runs = {**found.runs, "incidents": len(job.journal("IncidentChanged")), "notes": len(found.notes)}
    row.differs += [f"exit code {code}:\n{job.output[-2000:]}"] if code else []
    row.differs += compared(undisturbed, found, case.library)
    if before:
        row.runs["status_before_the_end"] = before
        if (before, found.runs["status"]) != ("RUNNING", "FINISHED"):
            row.differs.append(f"the run was {before}, and then {found.runs['status']}")


def _status(case: LogCase, read: Callable[[Path], Log], folder: Path) -> str:
    return str(read(folder).runs["status"]) if case.library == "mlflow" else ""


def _undisturbed(folder: Path) -> log_readers.Points:
    """The losses of a run without kills, from the file of JSON lines."""
    folder.mkdir()
    (folder / "script.py").write_text(log_scripts.recipe("A file of JSON lines"))
    job = Run(folder, *_words(folder))
    try:
        assert job.start().end() == 0, job.output
    finally:
        job.stop()
    return log_readers.json_lines(folder).points


def end_everything(job: Run) -> None:
    """SIGKILL for the run and all below it: every rank, agent and coordinator."""
    assert job.process is not None
    pids = [*job.everything_below(), job.process.pid]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    job.process.wait()


def _without_server(case: LogCase, row: Row, job: Run, server: Server) -> None:
    """The server goes away in the middle of the job, and comes back before its end."""
    (job.folder / "script.py").write_text(log_scripts.timed(case.section, TIMED_STEPS))
    job.start()
    until(lambda: _step(job.folder) >= 40, lambda: job.output)
    assert case.down is not None
    server.send(case.down)
    gone = _step(job.folder)
    begun = time.monotonic()
    until(lambda: _step(job.folder) >= gone + ABSENT_STEPS, lambda: job.output)
    row.runs["down_s"] = round(time.monotonic() - begun, 1)
    if case.down == signal.SIGSTOP:
        server.send(signal.SIGCONT)
    else:
        server.kill()
        server.start()
    code = job.end(400)
    found = log_readers.READERS[case.library](job.folder)
    row.differs += [f"exit code {code}:\n{job.output[-2000:]}"] if code else []
    row.differs += missing_or_twice(found.points, TIMED_STEPS) + found.wrong
    gaps = [float(gap) for gap in (job.folder / "gaps").read_text().split()]
    row.runs |= {**found.runs, **slowness(gaps, gone), "told": "the logger fails" in job.output}
    if row.runs["median_down_ms"] - row.runs["median_up_ms"] > DELAY_MAX_MS:
        row.differs.append("steps take longer while the server is down")
    if case.down == signal.SIGKILL and not row.runs["told"]:  # a server that hangs may answer in time
        row.differs.append("the output does not say that the logger fails")


def _step(folder: Path) -> int:
    path = folder / "step"
    return int(path.read_text() or 0) if path.exists() else 0


def slowness(gaps: list[float], gone: int) -> dict[str, Any]:
    """How long steps took before the server went and while it was away, in milliseconds."""
    up, down = sorted(gaps[5:gone]), sorted(gaps[gone : gone + ABSENT_STEPS])
    middle = {"median_up_ms": up[len(up) // 2], "median_down_ms": down[len(down) // 2]}
    return {**middle, "slowest_up_ms": up[-1], "slowest_down_ms": down[-1]}


def missing_or_twice(points: log_readers.Points, steps: int) -> list[str]:
    """What is wrong with the steps of a log that has each one once."""
    seen = [step for step, _ in points]
    twice = sorted({step for step in seen if seen.count(step) > 1})
    missing = sorted(set(range(steps)) - set(seen))
    return [f"steps twice: {twice}"] * bool(twice) + [f"steps missing: {missing}"] * bool(missing)


def compared(wanted: log_readers.Points, found: Log, library: str) -> list[str]:
    """What differs from the undisturbed log, in words. TensorBoard keeps numbers in 32 bits."""
    wrong = missing_or_twice(found.points, log_scripts.STEPS) + found.wrong
    values = dict(found.points)
    for step, value in wanted:
        kept = struct.unpack("f", struct.pack("f", value))[0] if library == "tensorboard" else value
        if values.get(step, kept) != kept:
            wrong.append(f"step {step}: {values[step]}, not {kept}")
    begun = sorted(log_readers.generations(found.notes))
    if begun != [2, 3, 4, 5]:
        wrong.append(f"notes of generations {begun}, not 2 to 5")
    return wrong
