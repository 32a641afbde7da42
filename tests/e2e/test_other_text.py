"""Ranks that run other program text than the others are told of by name: a script edited while it trains."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from tests.e2e.cli_running import until
from tests.e2e.standing import submitted
from tests.training import elastic

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.standing import Job

TWO = ("--nnodes", "2", "--nproc-per-node", "1", "--snapshot-every", "1")
IMPORTS = """
import os, pathlib, sys, time
import loss
folder = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(folder / "site-packages"))
if (folder / "site-packages").exists():
    import ours_for_this_test
def note():
    (folder / f"{session.rank}.part{os.getpid()}").write_text(str(os.getpid()))
    (folder / f"{session.rank}.part{os.getpid()}").rename(folder / f"{session.rank}.pid")
"""
STEP = """
note()
while session.step == 20 and not (folder / "done").exists():
    time.sleep(0.02)
if session.step == 40 and (folder / "raise").exists():
    raise RuntimeError("as the script that runs has it")
time.sleep(0.02)
"""
TRAINING = elastic(60, before=IMPORTS, each=STEP)


def edit(path: Path, old: str, new: str) -> None:
    """Replace the file, as editors and `git pull` do."""
    text = path.read_text()
    assert old in text
    part = path.with_suffix(".new")
    part.write_text(text.replace(old, new))
    part.rename(path)


def kill(job: Job, rank: int) -> int:
    """Kill a rank that trains; the number of its process."""
    path = job.folder / f"{rank}.pid"
    until(path.exists, lambda: job.output)
    pid = int(path.read_text())
    os.kill(pid, signal.SIGKILL)
    return pid


def replaced(job: Job, rank: int, old: int) -> None:
    path = job.folder / f"{rank}.pid"
    until(lambda: int(path.read_text()) != old, lambda: f"a replacement; {job.output}")


def inexact(job: Job) -> str:
    """What the newest incident says of exactness, once it is over."""

    def over() -> list[str]:
        told = [body["incident"] for body in job.journal("IncidentChanged")]
        return [one["inexact"] or "exact" for one in told if one["outcome"] == "recovered"]

    found: list[str] = until(over, lambda: f"it recovers; {job.output}")
    return found[-1]


def test_a_replacement_that_runs_an_edited_script_is_told() -> None:
    with submitted(*TWO, script=TRAINING, files={"loss.py": "SCALE = 1.0\n"}) as job:
        old = kill_after_edit(job, "script.py", "optimizer.zero_grad()", "optimizer.zero_grad(); pass")
        replaced(job, 1, old)
        assert inexact(job) == "rank 1 runs another script.py than rank 0"
        (job.folder / "done").touch()
        assert job.end() == 0, job.output
        assert "not exact: rank 1 runs another script.py than rank 0" in job.told, job.told
        assert "rank 1 runs another script.py than rank 0: what is trained" in job.output, job.output


def kill_after_edit(job: Job, name: str, before: str, after: str) -> int:
    until((job.folder / "1.pid").exists, lambda: job.output)
    edit(job.folder / name, before, after)
    return kill(job, 1)


def test_modules_and_libraries_count_and_untouched_ones_are_exact(tmp_path: Path) -> None:
    library = tmp_path / "site-packages" / "ours_for_this_test.py"
    library.parent.mkdir()
    library.write_text('__version__ = "1.0"\n')
    script = TRAINING.replace('folder / "site-packages"', f"pathlib.Path({str(library.parent)!r})")
    with submitted(*TWO, script=script, files={"loss.py": "SCALE = 1.0\n"}) as job:
        old = kill(job, 1)
        replaced(job, 1, old)
        assert inexact(job) == "exact"
        edit(library, "1.0", "1.1")
        old = kill_after_edit(job, "loss.py", "1.0", "2.0")
        replaced(job, 1, old)
        until(lambda: inexact(job) != "exact", lambda: f"it is told; {job.output}")
        assert inexact(job) == (
            "rank 1 runs another loss.py, ours_for_this_test (version 1.1, not 1.0) than rank 0"
        )


def test_a_traceback_shows_the_text_that_ran() -> None:
    with submitted(*TWO, "--max-restarts", "0", script=TRAINING, files={"loss.py": "", "raise": ""}) as job:
        until((job.folder / "1.pid").exists, lambda: job.output)
        edit(job.folder / "script.py", "import loss", "import loss\n" * 20)
        (job.folder / "done").touch()
        assert job.end() == 1, job.output
        assert 'raise RuntimeError("as the script that runs has it")\nRuntimeError' in job.told, job.told
