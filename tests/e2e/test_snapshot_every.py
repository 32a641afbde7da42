"""How often ranks take snapshots: all take the same ones, and in sharded jobs as many as cost little."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

from tests.e2e.checkpointing import kill
from tests.e2e.cli_running import running, until
from tests.e2e.standing import submitted
from tests.e2e.test_checkpoints import result, script, step_of

if TYPE_CHECKING:
    from tests.e2e.cli_running import Run
    from tests.e2e.standing import Job

TELL_PIDS = """session = Session()
if os.environ["RANK"] in ("0", "1"):
    (folder / f"pid.{os.environ['RANK']}").write_text(str(os.getpid()))
"""


def test_a_snapshot_after_every_fast_step_is_taken_by_all_ranks_or_by_none() -> None:
    """A rank that hears of releases later than the others keeps them back: what only some have would block
    them for long."""
    flags = ("--nnodes", "2", "--replicas", "0", "--snapshot-every", "1")
    with running(*flags, script=script(400, 0.0)) as run:
        until(lambda: step_of(run, 1) >= 10, lambda: f"step 10; {run.output}")
        agent = run.pid_of("agent-n1") or run.pid_of("n1")
        while step_of(run, 1) < 340:
            for number, pause_s in ((signal.SIGSTOP, 0.02), (signal.SIGCONT, 0.05)):
                os.kill(agent, number)
                time.sleep(pause_s)
        assert run.end() == 0, run.output
        orders = run.journal("Release")
        assert max(one["step"] for one in orders) >= 390, "they go on to the end"
        voided = [one for one in orders if one["void_step"] > 10]  # at first not every rank has its room
        assert not voided, "no rank took a snapshot that another left out"


def test_by_default_a_dead_rank_of_a_sharded_job_costs_what_the_ranks_have_chosen() -> None:
    flags = ("--nproc-per-node", "2", "--spares", "1", "--checkpoint-every", "4")  # so every 4 at most
    text = script(16, 0.5).replace("session = Session()", TELL_PIDS)
    with submitted(*flags, script=text, storage=True) as run:
        kill_in(run, 11)
        assert run.end() == 0, run.output
        notes = [one["reason"] for one in run.journal("Note") if one["kind"] == "snapshot_spacing"]
        assert "(--snapshot-every auto): a snapshot takes" in notes[0], notes
        assert chosen(run) < 4, "a snapshot takes far less than 3 % of half a second"
        check_cost(run)


def test_a_death_in_the_first_steps_costs_no_more_nor_does_one_soon_after_a_recovery() -> None:
    """With steps this long each has its snapshot, from the third on, and from the first after a recovery."""
    flags = ("--nproc-per-node", "2", "--spares", "2")
    text = script(18, 0.5).replace("session = Session()", TELL_PIDS)
    with submitted(*flags, script=text) as run:
        kill_in(run, 6, rank=1)
        until(lambda: len(recoveries(run)) == 1, lambda: f"recovered; {run.output}")
        kill_in(run, step_of(run, 0) + 3, rank=0)
        assert run.end() == 0, run.output
        lost = [incident["lost_steps"] for incident in recoveries(run)]
        assert len(lost) == 2 and max(lost) <= 1, lost
        assert result(run, 0)["digest"] == result(run, 1)["digest"]


def test_a_dead_rank_costs_no_more_where_other_nodes_keep_copies() -> None:
    """Only the steps that are offered are copied: every fourth here."""
    flags = ("--nnodes", "2", "--spares", "1", "--checkpoint-every", "4")
    text = script(20, 0.5).replace("session = Session()", TELL_PIDS)
    with running(*flags, script=text, storage=True) as run:
        kill_in(run, 14)
        assert run.end() == 0, run.output
        assert chosen(run) < 4, "a snapshot takes far less than 3 % of half a second"
        check_cost(run)
        released = {one["step"] for one in run.journal("Release") if one["step"] > 3}
        assert all(step % 4 == 0 for step in released - {20}), "no other step is released, and so copied"


def test_while_the_coordinator_is_away_a_dead_rank_costs_no_more_than_otherwise() -> None:
    flags = ("--nproc-per-node", "2", "--spares", "1")
    text = script(110, 0.2).replace("session = Session()", TELL_PIDS)
    with running(*flags, script=text) as run:
        until(lambda: chosen(run) > 0, lambda: f"more snapshots than asked for; {run.output}")
        coordinator = run.pid_of("coordinator")
        os.kill(coordinator, signal.SIGSTOP)
        begun = step_of(run, 0)
        until(lambda: min(step_of(run, 0), step_of(run, 1)) >= begun + 40, lambda: f"8 s; {run.output}")
        kill([int((run.folder / "pid.1").read_text())])
        os.kill(coordinator, signal.SIGCONT)
        assert run.end() == 0, run.output
        check_cost(run)


def kill_in(run: Run | Job, step: int, *, rank: int = 1) -> None:
    """Kill this rank, which no spare has replaced yet, in the middle of this step: in a copy beside a
    checkpoint that is read it may cost more."""
    until(lambda: min(step_of(run, 0), step_of(run, 1)) >= step, lambda: f"step {step}; {run.output}")
    time.sleep(0.25)
    kill([int((run.folder / f"pid.{rank}").read_text())])


def check_cost(run: Run | Job) -> None:
    """The only recovery has cost what the ranks had chosen at most, and they have ended alike."""
    (incident,) = recoveries(run)
    assert incident["lost_steps"] <= chosen(run), incident
    assert result(run, 0)["digest"] == result(run, 1)["digest"]


def recoveries(run: Run | Job) -> list[dict[str, Any]]:
    """The incidents that are over, each once, oldest first."""
    told = [one["incident"] for one in run.journal("IncidentChanged")]
    return [one for one in told if one["outcome"] == "recovered"]


def chosen(run: Run | Job) -> int:
    """How many steps the ranks let pass between two snapshots, at most; 0: they have not chosen yet."""
    found = [one["reason"] for one in run.journal("Note") if one["kind"] == "snapshot_spacing"]
    every = [1 if "after every step" in reason else int(reason.split()[4]) for reason in found]
    return max(every, default=0)
