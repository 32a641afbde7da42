"""The environment of the framework tests without an index, and a job that does not end."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.e2e.cli_running import running, until
from tests.frameworks.cases import CASES
from tests.frameworks.environment import INPUTS, ROOT, is_fresh
from tests.frameworks.log_cases import LOG_CASES, TRAINER_LOG_CASES
from tests.frameworks.running import ended

if TYPE_CHECKING:
    from pathlib import Path

WAITS = """
import os, time
print("rank", os.environ["RANK"], "waits", flush=True)
time.sleep(600)
"""


@pytest.mark.slow
def test_without_an_index_every_case_is_skipped_by_name_and_none_passed(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and does not listen: it refuses
        nowhere = {"PIP_INDEX_URL": f"http://127.0.0.1:{closed.getsockname()[1]}/simple"}
        for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
            nowhere[name] = ""
        words = [sys.executable, "-m", "tests.frameworks.environment", str(tmp_path / "venv")]
        nowhere |= {"PIP_CONFIG_FILE": os.devnull, "PIP_RETRIES": "0"}
        done = subprocess.run(
            words, cwd=ROOT, env={**os.environ, **nowhere}, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    every = [case.name for case in CASES]
    every += [case.name for case in LOG_CASES] + [case.name for case in TRAINER_LOG_CASES]
    assert [row["workload"] for row in rows] == every
    reason = "the environment cannot be installed: No matching distribution found for torch"
    assert {row["skipped"] for row in rows} == {reason}
    assert not any(row["exact"] for row in rows)
    assert "skipped: hf_mid_epoch" in done.stderr
    assert not (tmp_path / "venv" / ".installed").exists()


def test_an_environment_is_made_again_when_a_file_has_changed(tmp_path: Path) -> None:
    stamp = tmp_path / ".installed"
    assert not is_fresh(stamp)
    for name in INPUTS:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    stamp.touch()
    assert is_fresh(stamp, tmp_path)
    os.utime(tmp_path / INPUTS[2], (stamp.stat().st_mtime + 5,) * 2)
    assert not is_fresh(stamp, tmp_path)


@pytest.mark.slow
def test_of_a_job_that_does_not_end_the_answer_of_stacks_is_kept() -> None:
    with running("--nproc-per-node", "2", script=WAITS, arguments=()) as run:
        until(lambda: run.output.count(" waits") == 2, lambda: run.output)
        code, said = ended(run, 0.5)
    assert code == -1
    assert said.startswith("it does not end in 0.5 s; it said:")
    assert f"holdfast stacks {run.job}:" in said
    assert "rank 1 on n0: no stacks: it runs a script without Holdfast's SDK" in said, said
