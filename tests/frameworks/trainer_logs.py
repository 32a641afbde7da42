"""Run a framework's script with its own loggers: undisturbed; and with rank 0 killed three times, then the
whole job killed and started again. Each log must be one run with the same numbers, each once."""

from __future__ import annotations

import importlib.util
import os
import struct
from collections import Counter
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from tests.e2e.cli_running import Run, until
from tests.frameworks import log_readers
from tests.frameworks.case import SCRIPTS
from tests.frameworks.log_cases import TRAINER_LOG_CASES
from tests.frameworks.log_readers import Log, served
from tests.frameworks.logging_cases import end_everything

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.frameworks.log_cases import TrainerLogCase
    from tests.frameworks.rows import Row

ROOT = SCRIPTS.parents[2]
DEADLINE_S = 600.0
"""Of a job with three kills: each costs a process that imports its framework and the loggers."""
FLAGS = ("--nproc-per-node", "2", "--spares", "1", "--snapshot-every", "2", "--checkpoint-every", "4")


def judge(case: TrainerLogCase, row: Row, folder: Path) -> None:
    """Judge a case, and write what was found into its row. The rows of a framework share their runs."""
    if case.framework not in _known:
        _known[case.framework] = _Runs(case.framework, folder)
    runs = _known[case.framework]
    row.runs |= runs.told
    row.differs += runs.failed
    if runs.failed:
        return
    row.runs |= runs.killed[case.name][0].runs
    if row.runs.get("before", "RUNNING") != "RUNNING":
        row.differs.append(f"the run was {row.runs['before']} before its end")
    for tag, wanted, got in zip(case.tags, runs.undisturbed, runs.killed[case.name], strict=True):
        row.differs += differences(tag, wanted, got)
    row.differs = list(dict.fromkeys(row.differs))


class _Runs:
    """A framework's script undisturbed, with its first logger, and killed, with all that are installed.

    `undisturbed`: the log by tag; `killed`: that of each case. `failed`: what went wrong, in words."""

    def __init__(self, framework: str, folder: Path) -> None:
        cases = [each for each in TRAINER_LOG_CASES if each.framework == framework]
        self._cases = [each for each in cases if importlib.util.find_spec(each.library) is not None]
        self.told: dict[str, Any] = {}
        self.failed: list[str] = []
        self.undisturbed: list[Log] = []
        self.killed: dict[str, list[Log]] = {}
        try:
            self._undisturbed(folder / "undisturbed")
            self._killed(folder / "killed")
        except AssertionError as error:
            self.failed.append(str(error)[-4000:])

    def _undisturbed(self, folder: Path) -> None:
        first = self._cases[0]
        with _job(first.framework, folder, first.logger) as job:
            _to_end(job)
            self.undisturbed = _logs(first, folder)

    def _killed(self, folder: Path) -> None:
        folder.mkdir()
        libraries = sorted({each.library for each in self._cases})
        with ExitStack() as servers:
            for library in libraries:
                servers.enter_context(served(library, folder))
            words = ",".join(each.logger for each in self._cases)
            with _job(self._cases[0].framework, folder, words) as job:
                (folder / "stop").touch()
                _to_stop(job)
                if "mlflow" in libraries:
                    self.told["before"] = log_readers.mlflow(folder).runs["status"]
                end_everything(job)
                (folder / "stop").unlink()
                self.told["kills"] = len(list(folder.glob("killed-*")))
                _to_end(job)
                self.killed = {each.name: _logs(each, folder) for each in self._cases}


_known: dict[str, _Runs] = {}
"""The runs so far, by framework."""


def _logs(case: TrainerLogCase, folder: Path) -> list[Log]:
    return [log_readers.READERS[case.logger](folder, tag) for tag in case.tags]


@contextmanager
def _job(framework: str, folder: Path, loggers: str) -> Iterator[Run]:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    folder.mkdir(exist_ok=True)
    script = SCRIPTS / f"logged_{framework}.py"
    words = (*FLAGS, "--storage", str(folder / "storage"), str(script), str(folder), loggers)
    name = f"l{folder.parent.name[3:]}{folder.name[0]}".replace("_", "x")
    job = Run(folder, *words, job=name, env={"PYTHONPATH": str(ROOT)})
    try:
        yield job
    finally:
        job.stop()


def _to_stop(job: Run) -> None:
    """Run it until all ranks have stopped."""
    stopped = [job.folder / f"stopped.{rank}" for rank in (0, 1)]
    process = job.start().process
    assert process is not None
    until(
        lambda: all(path.exists() for path in stopped) or process.poll() is not None,
        lambda: job.output[-3000:],
        DEADLINE_S,
    )
    assert process.poll() is None, job.output[-3000:]


def _to_end(job: Run) -> None:
    code = job.start().end(DEADLINE_S)
    assert not code, f"exit code {code}:\n{job.output[-3000:]}"


def differences(tag: str, wanted: Log, found: Log) -> list[str]:
    """What is wrong with the log of the killed run, in words. TensorBoard keeps numbers in 32 bits."""
    wrong = [f"undisturbed: {each}" for each in wanted.wrong] + found.wrong
    values = {step: _float32(value) for step, value in found.points}
    expected = {step: _float32(value) for step, value in wanted.points}
    counts, right = (Counter(step for step, _ in log.points) for log in (found, wanted))
    wrong += [f"{tag}: nothing was logged"] * (not expected)
    wrong += [f"{tag}: steps missing: {sorted(right - counts)}"] * bool(right - counts)
    wrong += [f"{tag}: steps too often: {sorted(counts - right)}"] * bool(counts - right)
    other = sorted(step for step in expected.keys() & values if expected[step] != values[step])
    wrong += [f"{tag}: other values in steps {other}"] * bool(other)
    if found.runs.get("status", "FINISHED") != "FINISHED":
        wrong.append(f"the run ended as {found.runs['status']}")
    return wrong


def _float32(value: float) -> Any:
    return struct.unpack("f", struct.pack("f", value))[0]
