"""`holdfast pause`, `resume` and `checkpoint now` against a job that trains, on real processes."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

from tests.e2e.cli_running import ANSWERED_S, answer, running, until
from tests.e2e.test_cli_run import holdfast
from tests.e2e.test_elastic import QUICK, TRAINING, ended_well, world

if TYPE_CHECKING:
    from tests.e2e.cli_running import Run


def asked(run: Run, *words: str, code: int = 0) -> str:
    """What the command line says about this run."""
    address = str(run.layout.read_card()["coordinator"])
    done = holdfast(*words, "--coordinator", address)
    assert done.returncode == code, done.stdout + done.stderr + run.output[-3000:]
    return done.stderr if code else done.stdout


def rows(run: Run, table: str) -> Any:
    """A table of this run, without a process for each look."""
    done = answer("get", table, "-o", "json", "--coordinator", str(run.layout.read_card()["coordinator"]))
    assert done.returncode == 0, done.stderr + run.output[-3000:]
    return json.loads(done.stdout)


def job(run: Run) -> dict[str, Any]:
    (row,) = rows(run, "jobs")
    return dict(row)


def pids(run: Run) -> dict[int, int]:
    return {row["rank"]: row["pid"] for row in rows(run, "ranks") if row["role"] == "rank" and row["pid"]}


def test_a_job_is_paused_loses_a_rank_and_goes_on() -> None:
    flags = ("--nproc-per-node", "2", "--checkpoint-every", "100000", "--full-every", "100000", *QUICK)
    with running(*flags, "--snapshot-every", "10", script=TRAINING, storage=True) as run:
        first = world(run, 2)
        assert "no job of this name" in asked(run, "pause", "nobody", code=1)
        asked(run, "checkpoint", "now", run.job, "--wait")
        assert job(run)["last_checkpoint"]
        assert "paused" in asked(run, "pause", run.job, "--wait", "--reason", "a talk")
        before, living = job(run), pids(run)
        assert "a talk" in before["reason"] and "already" in asked(run, "pause", run.job)
        os.kill(living[1], signal.SIGKILL)
        until(
            lambda: pids(run).get(1, living[1]) != living[1], lambda: run.output[-3000:], pause_s=ANSWERED_S
        )
        until(lambda: job(run)["phase"] == "paused", lambda: run.output[-3000:], pause_s=ANSWERED_S)
        assert "running" in asked(run, "resume", run.job, "--wait")
        world(run, 2, first)
        assert pids(run)[0] == living[0], "who was not killed is the same process"
        ended_well(run)
        incidents = [body["incident"] for body in run.journal("IncidentChanged")]
        assert {each["lost_steps"] for each in incidents} == {0}
        assert {each["outcome"] for each in incidents} == {"open", "recovered"}
