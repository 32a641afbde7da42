"""`holdfast run` on real processes: it ends well, it ends clean, and it keeps its daemons alive."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from controlplane.cli.local.processes import is_running
from tests.e2e.cli_running import ASKED_S, Run, running, until

if TYPE_CHECKING:
    from pathlib import Path

FAILING = "import sys\nsys.stderr.write('about to fail\\n')\nimport no_such_module_of_ours\n"


def holdfast(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "controlplane", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def finish(run: Run) -> int:
    (run.folder / "done").touch()
    return run.end()


def test_runs_answers_and_leaves_no_trace() -> None:
    with running("--nnodes", "2", "--nproc-per-node", "1") as run:
        pids = [run.rank_pid(0), run.rank_pid(1)]
        address = run.layout.read_card()["coordinator"]
        ranks = until(
            lambda: holdfast("get", "ranks", "--coordinator", address).stdout, "an answer", pause_s=ASKED_S
        )
        assert run.job in ranks and str(pids[0]) in ranks
        assert f"job {run.job} is running already" in refused_by(run)
        assert "no job named" in holdfast("get", "jobs", "--job", "x", "--coordinator", address).stderr
        everyone = run.everything_below()
        assert set(pids) <= set(everyone)
        assert finish(run) == 0, run.output
        assert "[n0 0] rank 0 of 2" in run.output and "[n1 1] rank 1 of 2" in run.output
        assert [pid for pid in everyone if is_running(pid)] == []
        assert run.traces() == []
        assert (run.state / "etcd").is_dir()


def refused_by(run: Run) -> str:
    """What a second run of the same job is told."""
    second = holdfast(
        "run", "--state-dir", str(run.state), "--rdzv-id", run.job, str(run.folder / "script.py")
    )
    assert second.returncode == 1
    return second.stderr


def test_interrupted_it_ends_everything() -> None:
    with running("--nproc-per-node", "2", "--spares", "1") as run:
        run.rank_pid(0)
        run.rank_pid(1)
        everyone = run.everything_below()
        assert run.process is not None
        os.kill(run.process.pid, signal.SIGINT)
        assert run.end() == 130, run.output
        assert "without --storage no state is kept: the same command starts again from step 0" in run.output
        assert "continues" not in run.output
        assert [pid for pid in everyone if is_running(pid)] == []
        assert run.traces() == []


def test_a_state_folder_that_is_removed_ends_the_run_by_itself() -> None:
    with running("--nproc-per-node", "2") as run:
        run.rank_pid(0)
        run.rank_pid(1)
        everyone = run.everything_below()
        shutil.rmtree(run.state, ignore_errors=True)
        assert run.end() == 1, run.output
        assert f"the state folder {run.state} was removed while the job ran" in run.output
        assert [pid for pid in everyone if is_running(pid)] == []
        assert run.traces() == []


def test_an_etcd_that_is_killed_without_its_data_ends_the_run_by_itself() -> None:
    with running("--nproc-per-node", "2") as run:
        run.rank_pid(0)
        run.rank_pid(1)
        pid, _born = run.layout.read_card()["processes"]["etcd"]
        shutil.rmtree(run.state / "etcd" / "member", ignore_errors=True)
        os.kill(pid, signal.SIGKILL)
        assert run.end() == 1, run.output
        assert f"its data in {run.state / 'etcd'} were removed while the job ran" in run.output
        assert run.traces() == []


def test_logs_go_where_they_are_wanted_and_stay(tmp_path: Path) -> None:
    with running("--log-dir", str(tmp_path / "wanted"), "--nproc-per-node", "1") as run:
        run.rank_pid(0)
        assert finish(run) == 0, run.output
        (log,) = (tmp_path / "wanted" / "n0").glob("*.log")
        assert "rank 0 of 1" in log.read_text() and run.traces() == []


def test_interrupted_while_starting_it_ends_everything() -> None:
    with running() as run:
        until((run.state / "etcd").exists, "etcd begins")
        everyone = run.everything_below()
        assert run.process is not None
        os.kill(run.process.pid, signal.SIGTERM)
        assert run.end() == 143, run.output
        assert [pid for pid in everyone if is_running(pid)] == []
        assert run.traces() == []


def test_killed_rank_of_a_plain_script_is_started_again() -> None:
    with running("--nproc-per-node", "2", "--spares", "2") as run:
        os.kill(run.rank_pid(1), signal.SIGKILL)
        run.rank_pid(0, restart=1), run.rank_pid(1, restart=1)
        assert finish(run) == 0, run.output
        assert "rank 1 on n0 killed" in run.output


def test_killed_daemons_come_back_and_no_rank_notices() -> None:
    with running("--nproc-per-node", "1") as run:
        run.rank_pid(0)
        for daemon in ("coordinator", "etcd", "n0"):
            kill_daemon(run, daemon)
        assert finish(run) == 0, run.output
        assert list(run.folder.glob("*.pid")) == [run.folder / "0-0.pid"]


def kill_daemon(run: Run, name: str) -> None:
    before = run.pid_of(name)
    os.kill(before, signal.SIGKILL)
    until(lambda: run.pid_of(name) not in (0, before), lambda: f"{name} comes back; {run.output}")


def test_supervisor_killed_the_rest_ends_and_the_next_run_is_clean() -> None:
    with running("--nproc-per-node", "1") as run:
        run.rank_pid(0)
        everyone = run.everything_below()
        assert run.process is not None
        run.process.kill()
        run.end()
        until(lambda: not [pid for pid in everyone if is_running(pid)], "its children end with it")
        (run.folder / "done").touch()
        assert run.start().end() == 0, run.output
        assert run.traces() == []


def test_script_that_fails_at_import_is_told_once() -> None:
    with running("--nproc-per-node", "2", script=FAILING) as run:
        assert run.end() == 1
        assert "about to fail" in run.output
        assert run.output.count("Traceback (most recent call last)") == 1, run.output
        assert run.output.rstrip().endswith("ModuleNotFoundError: No module named 'no_such_module_of_ours'")
        assert run.traces() == []


def test_daemon_that_cannot_start_says_why() -> None:
    with running("--shm-dir", "/proc") as run:
        assert run.end() == 1
        assert "n0 does not start" in run.output and "give another --shm-dir" in run.output
        assert run.traces() == []
