"""`holdfast logs` and `holdfast stacks` on a real job: through a kill, and with what is not there named."""

from __future__ import annotations

import os
import signal

from tests.e2e.cli_running import ASKED_S, OBEDIENT, running, until
from tests.e2e.test_cli_run import holdfast

SCRIPT = OBEDIENT.replace(
    "while not",
    'print("\\x1b[2J of attempt", os.environ["TORCHELASTIC_RESTART_COUNT"], flush=True)\nwhile not',
)


def test_logs_of_a_job_through_a_kill() -> None:
    with running("--nproc-per-node", "2", "--max-restarts", "5", script=SCRIPT) as run:
        run.rank_pid(1)
        where = ("--coordinator", str(run.layout.read_card()["coordinator"]))
        first = until(lambda: lines(run.job, *where), lambda: run.output, pause_s=ASKED_S)
        assert first == [
            "[n0 0] rank 0 of 2", "[n0 0] \\u001b[2J of attempt 0",
            "[n0 1] rank 1 of 2", "[n0 1] \\u001b[2J of attempt 0",
        ]  # fmt: skip
        os.kill(run.rank_pid(1), signal.SIGKILL)
        run.rank_pid(1, 1)
        until(
            lambda: lines(run.job, "--rank", "1", *where)[-1:] == ["\\u001b[2J of attempt 1"],
            "the new one",
            pause_s=ASKED_S,
        )
        assert lines(run.job, "--rank", "1", "-p", "--tail", "1", *where) == ["\\u001b[2J of attempt 0"]
        done = holdfast("logs", run.job, "--rank", "1", "--generation", "9", *where)
        assert done.returncode == 1 and "no log of generation 9 is found" in done.stderr
        (run.folder / "done").touch()
        assert run.end() == 0, run.output


def lines(*words: str) -> list[str]:
    """What `holdfast logs` prints, once every rank has written all; [] before that."""
    done = holdfast("logs", *words)
    found = done.stdout.splitlines()
    return found if done.returncode == 0 and found and "attempt" in found[-1] else []
