"""When a job ends, asked of a job that trains on real processes: known, paused, and known again."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from tests.e2e.cli_running import ANSWERED_S, answer, running, until
from tests.e2e.test_elastic import QUICK, TRAINING, ended_well, world
from tests.e2e.test_pause import asked

if TYPE_CHECKING:
    from tests.e2e.cli_running import Run

STEPS = 100_000
TOTAL = TRAINING.replace("session = Session()", "session = Session(total_steps=200_000)")


def row(run: Run) -> dict[str, Any]:
    address = str(run.layout.read_card()["coordinator"])
    done = answer("get", "job", run.job, "-o", "json", "--coordinator", address)
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)
    return dict(found)


def known(run: Run) -> dict[str, Any]:
    """The job's row once its end is known."""
    until(
        lambda: row(run)["eta_s"] is not None, lambda: f"{row(run)}; {run.output[-3000:]}", pause_s=ANSWERED_S
    )
    return row(run)


def test_the_end_of_a_loop_is_known_while_it_runs() -> None:
    with running(
        "--nproc-per-node", "2", "--diagnose-every-s", "1", *QUICK, script=TRAINING, storage=True
    ) as run:
        world(run, 2)
        found = known(run)
        assert (found["end_step"], found["eta_of"], found["eta_word"]) == (STEPS, "loop", "")
        left = STEPS - found["step"]
        assert found["eta_s"] > 0.02 * left, "a step sleeps so long"
        text = asked(run, "describe", "job", run.job)
        assert re.search(rf"Ends: +in \d+ (min|h) .*, 20\d\d-.* \(at step {STEPS}, where the loop", text), (
            text
        )
        asked(run, "pause", run.job, "--wait")
        assert (row(run)["eta_s"], row(run)["eta_reason"]) == (None, "it is paused")


def test_a_total_of_the_script_counts_instead() -> None:
    with running(
        "--nproc-per-node", "1", "--diagnose-every-s", "1", *QUICK, script=TOTAL, storage=True
    ) as run:
        world(run, 1)
        found = known(run)
        assert (found["end_step"], found["eta_of"]) == (2 * STEPS, "job")
        ended_well(run)
