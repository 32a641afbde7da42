"""The demonstration: what it understands, what it concludes, and that it keeps its promise."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from controlplane.cli.demo.kills import PlannedKill, impossible, read_kill
from controlplane.cli.demo.ledger import Samples, judge, read
from controlplane.cli.demo.strike import KillResult
from controlplane.cli.demo.verdict import DemoOutcome, as_json
from controlplane.cli.local.processes import freeze_and_kill
from holdfast.ipc.progress_page import ProgressPage
from tests.e2e.cli_running import Run, running, until
from tests.e2e.standing import Job, submitted

GPT = Path(__file__).parents[2] / "holdfast" / "examples" / "train_gpt.py"
STEPS = 100
SMALL = ("--steps", str(STEPS), "--layers", "1", "--width", "32", "--heads", "2", "--text-bytes", "200000")


@pytest.mark.parametrize(
    ("text", "kill"),
    [
        ("rank=2@step=20", PlannedKill("rank", 20, 2)),
        ("agent=1@step=3", PlannedKill("agent", 3, 1)),
        ("node=0@step=3", PlannedKill("node", 3, 0)),
        ("coordinator@step=7", PlannedKill("coordinator", 7)),
        ("all@step=7", PlannedKill("all", 7)),
        ("stop=rank:1@step=9", PlannedKill("rank", 9, 1, freeze=True)),
    ],
)
def test_kills_are_read(text: str, kill: PlannedKill) -> None:
    assert read_kill(text) == kill
    assert impossible(kill, steps=30, nodes=2, world_size=4) == ""


@pytest.mark.parametrize(
    "text", ["rank=2", "rank@step=3", "coordinator=1@step=3", "rank=x@step=1", "rank=1@20"]
)
def test_kills_that_are_none(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"step|Known"):
        read_kill(text)


def line(kind: str, at_s: float = 5.0, **body: Any) -> dict[str, Any]:
    return {"type": kind, "term": 2, "monotonic_s": at_s, "body": body}


def incident(number: int, ranks: list[int], outcome: str = "recovered") -> dict[str, Any]:
    verdict = {"scope": "rank", "cause": "signaled", "ranks": ranks, "step": 20}
    phases = [["detect", 0.001], ["decide", 0.002]]
    return {"id": number, "verdict": verdict, "lost_steps": 0, "phases_s": phases, "outcome": outcome}


def outcome(digests: dict[int, str], samples: Samples = Samples(64, 0, 0)) -> DemoOutcome:  # noqa: B008 -- frozen
    blow = KillResult(PlannedKill("rank", 20, 2), 20, 1, hit=(2,), at_ns=4_000_000_000)
    blow.survivors_resumed_s, blow.full_world_s, blow.survivor_pids_unchanged = 0.2, 0.3, True
    record = {"id": "20-2", "step": 20, "kind": "full", "bytes_written": 10}
    journal = [
        line("IncidentChanged", incident=incident(1, [2], "open")),
        line("IncidentChanged", incident=incident(1, [2])),
        line("CheckpointChanged", outcome="started", record=None),
        line("CheckpointChanged", outcome="committed", record=record),
    ]
    return DemoOutcome(40, 2, 1, digests, {0: "a", 1: "b"}, samples, journal, [blow])


def test_the_verdict_holds_what_the_issue_of_it_needs() -> None:
    good = outcome({0: "a", 1: "b"})
    result = as_json(good)
    assert good.good and result["identical"] and result["final_digest"] == result["undisturbed_digest"]
    (told,) = result["incidents"]
    assert (told["rank"], told["survivors_resumed_s"], told["full_world_s"]) == (2, 0.2, 0.3)
    assert told["phases_s"] == {"detect": 0.001, "decide": 0.002} and told["survivor_pids_unchanged"]
    assert result["checkpoints"] == [{"step": 20, "kind": "full", "bytes_written": 10}]


def test_the_verdict_is_bad_when_a_bit_or_a_sample_differs() -> None:
    assert not outcome({0: "a", 1: "c"}).good
    assert not outcome({0: "a"}).good
    assert not outcome({0: "a", 1: "b"}, Samples(64, 1, 0)).good


def wrapper() -> str:
    """The example, small; its arguments come from the harness's folder."""
    return (
        "import os, runpy, sys\n"
        f"sys.argv = [{str(GPT)!r}, *{SMALL!r}, '--digest-dir', sys.argv[1] + '/digests']\n"
        f"runpy.run_path({str(GPT)!r}, run_name='__main__')\n"
    )


def gpt(*words: str, storage: bool = False) -> Any:
    """A run of the example on two ranks."""
    return running("--nproc-per-node", "2", *words, script=wrapper(), storage=storage)


def digests(run: Run | Job) -> set[str]:
    found = [json.loads(path.read_text()) for path in (run.folder / "digests").glob("*.json")]
    assert sorted(entry["rank"] for entry in found) == [0, 1]
    return {entry["digest"] for entry in found}


def board_reaches(run: Run, step: int) -> None:
    """Wait until a rank has completed `step` steps."""

    def reached() -> bool:
        for path in run.layout.shm("n0").glob("*.board"):
            board = ProgressPage.open(path)
            done = board.completed
            board.close()
            if done >= step:
                return True
        return False

    until(reached, lambda: f"step {step}; {run.output}")


def rank_pid(run: Run, rank: int) -> int:
    """The process that is this rank now."""
    found = [body["status"] for body in run.journal("MemberReport") if body["status"]["rank"] == rank]
    return int(found[-1]["pid"])


@pytest.fixture(scope="module")
def undisturbed() -> set[str]:
    with submitted("--nproc-per-node", "2", script=wrapper()) as run:
        assert run.end() == 0, run.output
        return digests(run)


def test_a_killed_rank_changes_nothing(undisturbed: set[str]) -> None:
    with gpt("--spares", "1") as run:
        board_reaches(run, 5)
        until(lambda: rank_pid(run, 1), "the rank's process")
        os.kill(rank_pid(run, 1), signal.SIGKILL)
        assert run.end() == 0, run.output
        assert digests(run) == undisturbed
        closed = [body["incident"]["outcome"] for body in run.journal("IncidentChanged")][-1]
        assert closed == "recovered"


def test_everything_killed_goes_on_from_the_checkpoint(undisturbed: set[str]) -> None:
    flags = ("--snapshot-every", "5", "--checkpoint-every", "10")
    with gpt(*flags, storage=True) as run:
        board_reaches(run, 12)
        for rank in (0, 1):  # a busy machine trains to the end before the checkpoint is written
            os.kill(rank_pid(run, rank), signal.SIGSTOP)
        until(lambda: committed(run), lambda: f"a checkpoint; {run.output}")
        assert run.process is not None
        freeze_and_kill(run.process.pid)
        run.process.wait()
        assert run.start().end() == 0, run.output
        assert digests(run) == undisturbed
        tiers = [body["generation"]["resume"]["tier"] for body in run.journal("Form")]
        assert tiers[-1] == "checkpoint", run.output
        files = {path.name: path.read_text().splitlines() for path in (run.folder / "ledger").glob("*.jsonl")}
        assert judge(read(files), STEPS).clean


def committed(run: Run) -> bool:
    return any(body["outcome"] == "committed" for body in run.journal("CheckpointChanged"))


_DEMO_OF_ANOTHER_SCRIPT = """
import pathlib, sys
from controlplane.cli.demo import command
from controlplane.cli.main import main
command.SCRIPT = pathlib.Path(sys.argv[1])
sys.exit(main(["demo", "--steps", "10", "--nodes", "1", "--kill", "rank=1@step=4", "--timeout-s", "200"]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("raise SystemExit('no such corpus')", "the run with failures ended with code 1:"),
        pytest.param(
            "",
            "the run with failures ended before it had recovered from every kill: give it more --steps",
            marks=pytest.mark.exhaustive,
        ),
    ],
)
def test_a_demo_whose_run_ends_by_itself_says_so(tmp_path: Path, script: str, said: str) -> None:
    (tmp_path / "train.py").write_text(script)
    command = [sys.executable, "-c", _DEMO_OF_ANOTHER_SCRIPT, str(tmp_path / "train.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"holdfast demo: {said}" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
def test_what_a_killed_demo_has_started_ends_too(folder: Path) -> None:
    """SIGKILL leaves it no time to end anything: the kernel tells its run, which ends its daemons."""
    words = ["demo", "--json", "--steps", "100000", "--nodes", "1", "--kill", "rank=1@step=99999"]
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "controlplane", *words],
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as demo:
        of_demo = Path(f"/proc/{demo.pid}/task/{demo.pid}/children")
        (run,) = until(lambda: of_demo.read_text().split(), lambda: "it starts nothing")
        of_run = Path(f"/proc/{run}/task/{run}/children")
        until(lambda: len(of_run.read_text().split()) >= 2, lambda: "its run starts no daemons")
        demo.kill()
    until(lambda: not of_run.exists(), lambda: f"process {run} is still there")


@pytest.mark.slow
def test_the_demo_ends_with_its_verdict_and_leaves_nothing(folder: Path) -> None:
    words = [
        "demo",
        "--json",
        "--steps",
        "10",
        "--nodes",
        "1",
        "--kill",
        "rank=1@step=4",
        "--timeout-s",
        "400",
    ]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "controlplane", *words],
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not list(folder.glob("holdfast-demo-*"))
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["identical"] and result["samples"] == {"consumed": 160, "repeated": 0, "skipped": 0}
    assert [(told["rank"], told["lost_steps"]) for told in result["incidents"]] == [(1, 0)]
    assert result["incidents"][0]["survivor_pids_unchanged"] is True
