"""State that is not the same on all ranks, in whole runs with real daemons: exact, or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.standing import Job, submitted

OWNED = Path(__file__).parents[1] / "sdk" / "owned.py"
FLAGS = ("--nproc-per-node", "2", "--snapshot-every", "5", "--max-restarts", "1")
KILL = {"rank": 1, "step": 7, "phase": "forward"}


def script(kind: str, *kills: dict[str, Any]) -> str:
    """The SDK's own test script, told by its text what it is told by the environment there."""
    told = {"KIND": kind, "KILL": json.dumps(kills)}
    head = f"import os, sys\nos.environ.update({told!r}, OUT=sys.argv[1])\n"
    return head + OWNED.read_text().replace("from __future__ import annotations\n", "")


def results(run: Job) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(run.folder.glob("result.*.json"))]


def outcome(kind: str, *kills: dict[str, Any], flags: tuple[str, ...] = ()) -> tuple[list[str], str]:
    """Digests by rank, and what who submitted it was told."""
    with submitted(*FLAGS, *flags, script=script(kind, *kills)) as run:
        assert run.end() == 0, run.output
        return [line["digest"] for line in results(run)], run.told


@pytest.mark.parametrize(
    ("kind", "flags"),
    [("local", ()), ("buffers", ()), ("zero", ()), ("stages", ("--pipeline-parallel", "2"))],
)
def test_each_ranks_own_state_survives_exactly(kind: str, flags: tuple[str, ...]) -> None:
    whole, _ = outcome(kind, flags=flags)
    assert len(set(whole)) == 2
    found, told = outcome(kind, KILL, flags=flags)
    assert found == whole
    assert "step 5 is the newest of which every shard is left" in told


def test_replicated_state_that_is_not_ends_the_job_with_the_cure() -> None:
    with submitted(*FLAGS, script=script("local_undeclared")) as run:
        assert run.end() == 1
        assert "model.state.0.weight" in run.output and "per_rank=True" in run.output


def test_random_numbers_that_are_lost_are_told_at_the_end() -> None:
    _, told = outcome("unseeded", KILL)
    assert "not exact: random numbers of rank 1" in told.rstrip().splitlines()[-1]
