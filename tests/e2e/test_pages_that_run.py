"""The scripts of the pages run as their pages say: alone, some through kills, and some as two ranks."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.cli_running import ANSWERED_S, Run, answer, running, until
from tests.e2e.standing import submitted

DOCS = Path(__file__).resolve().parents[2] / "docs"
TWO_RANKS = ("--nproc-per-node", "2", "--spares", "1")
DIAGNOSIS = ("diagnosis/gradients.md", "diagnosis/replicas.md")
PAGES = ("../README.md", "data.md", "tracking.md", *DIAGNOSIS, "reference/api.md")
SETUP, LOGGED = "session = Session()\n", "log = StepLog(session, OpenLog)"
"""What only the first block of the recipes has, and only the block that the loggers are put above."""

EACH_IN_A_CHILD = """
import os, runpy, sys
import torch, torch._dynamo, holdfast.session
for path in sys.argv[1:]:
    if os.fork() == 0:
        os.chdir(os.path.dirname(path))
        runpy.run_path(path, run_name="__main__")
        sys.exit(0)
    print(os.path.basename(path), os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""
KILLS = """
import signal, time
written = []
def kill(at, step):
    if session.rank == 0 and (session.generation, step) == at:
        os.kill(os.getpid(), signal.SIGKILL)
def keep_up(step):
    until = time.monotonic() + 20
    while session.rank == 0 and step % 5 == 0 and max(written, default=-1) < step - 5:
        assert time.monotonic() < until
        time.sleep(0.01)
"""
"""Put into the script: rank 0 kills itself in step 10, then its successor before it writes step 20, then the
next one after step 30. It does not train more than ten steps ahead of what is written."""


def blocks(page: str) -> list[str]:
    """The Python of a page."""
    return re.findall(r"^```python\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)


def first_lines() -> str:
    """What the recipes and the pages that refer to them put their blocks below."""
    (setup,) = (block for block in blocks("recipes.md") if SETUP in block)
    return setup


def scripts_of(page: str) -> list[str]:
    """Every block of a page as a whole script: as it stands, or below the first lines of the recipes."""
    return [block if "import Session\n" in block else first_lines() + block for block in blocks(page)]


def recipes() -> dict[str, str]:
    """Every recipe as a whole script, by the section that it stands in."""
    sections = re.split(r"^##+ ", (DOCS / "recipes.md").read_text(), flags=re.MULTILINE)
    found: dict[str, list[str]] = {}
    for section in sections:
        code = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
        found |= {section.partition("\n")[0]: code} if code else {}
    every = [block for code in found.values() for block in code]
    (logged,) = (block for block in every if LOGGED in block)
    setup = first_lines()
    scripts = {}
    for section, code in found.items():
        for number, block in enumerate(code):
            if "class OpenLog:" in block:
                scripts[section] = f"{setup}{block}{logged}"
            elif block not in (setup, logged):
                scripts[f"{section} {number}"] = setup + block
    return scripts


def library(script: str) -> str:
    """The library that a recipe is about and that only some machines have."""
    return next((name for name in ("tensorboard", "mlflow", "wandb", "torchdata") if name in script), "")


def assert_each_runs_alone(scripts: list[str], tmp_path: Path) -> None:
    paths = []
    for number, script in enumerate(scripts):
        paths.append(tmp_path / str(number) / "train.py")
        paths[-1].parent.mkdir()
        paths[-1].write_text(script)
    done = subprocess.run(
        [sys.executable, "-c", EACH_IN_A_CHILD, *map(str, paths)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert re.findall(r"^train.py (-?\d+)$", done.stdout, re.MULTILINE) == ["0"] * len(paths), done.stderr


@pytest.mark.slow
def test_every_recipe_runs_alone(tmp_path: Path) -> None:
    plain = [script for script in recipes().values() if not library(script)]
    assert len(plain) == 8
    assert_each_runs_alone(plain, tmp_path)


@pytest.mark.slow
def test_every_block_of_the_other_pages_runs_alone(tmp_path: Path) -> None:
    every = [script for page in PAGES for script in scripts_of(page)]
    found = [script for script in every if not library(script) and "init_device_mesh" not in script]
    assert len(found) == 8, "one block of tracking.md needs a group: the next test runs it"
    assert_each_runs_alone(found, tmp_path)


@pytest.mark.slow
def test_the_script_of_the_readme_and_of_each_way_to_track_runs_as_two_ranks() -> None:
    for script in (*scripts_of("../README.md"), *scripts_of("tracking.md")):
        with submitted(*TWO_RANKS, script=script) as run:
            assert run.end() == 0, run.output


@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "torchdata"])
def test_a_script_that_needs_a_library_runs_where_the_library_is(name: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(name) is None:
        pytest.skip(reason=f"{name} is not installed: pip install {name}")
    every = [*recipes().values(), *scripts_of("data.md")]
    (script,) = (script for script in every if library(script) == name)
    (tmp_path / "train.py").write_text(script)
    done = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def log_of(script: str) -> list[dict[str, float]]:
    """The lines of the log that a recipe writes, as a job of two ranks."""
    with submitted(*TWO_RANKS, script=f"import os, sys; os.chdir(sys.argv[1])\n{script}") as run:
        assert run.end() == 0, run.output
        return [json.loads(line) for line in (run.folder / "log.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_a_log_has_each_step_once_although_rank_0_was_killed_three_times() -> None:
    script = recipes()["A file of JSON lines"]
    places = {
        "log = StepLog(": f"import os\n{KILLS}",
        "        loss.backward()\n": "        kill((1, 10), _step)\n        keep_up(_step)\n",
        "        self.file.write(": "        kill((2, 20), step)\n",
        "        self.file.flush()\n": "",
    }
    killed = script
    for place, before in places.items():
        assert killed.count(place) == 1
        killed = killed.replace(place, before + place)
    after = "        self.file.flush()\n        kill((3, 30), step)\n        written.append(step)\n"
    killed = killed.replace("        self.file.flush()\n", after)
    disturbed, undisturbed = log_of(killed), log_of(script)
    notes = [line for line in disturbed if "note" in line]
    assert [line for line in disturbed if line not in notes] == undisturbed
    assert [line["step"] for line in undisturbed] == list(range(60))
    assert [str(line["note"]).partition(":")[0] for line in notes] == [f"generation {n}" for n in (2, 3, 4)]


def process_of(run: Run, rank: int) -> int:
    """The process of a rank that trains, as `holdfast get ranks` shows it; 0 as long as it does not."""
    found = re.search(r"--coordinator (\S+)", run.output)
    if not found:
        return 0
    done = answer("get", "ranks", "-o", "json", "--coordinator", found[1])
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    return next((row["pid"] for row in rows if (row["rank"], row["phase"]) == (rank, "running")), 0)


@pytest.mark.slow
def test_the_quickstart_ends_with_the_same_loss_with_and_without_a_kill() -> None:
    (script,) = blocks("quickstart.md")
    with running(*TWO_RANKS, script=script, arguments=("100",)) as run:
        os.kill(until(partial(process_of, run, 1), "rank 1 trains", pause_s=ANSWERED_S), signal.SIGKILL)
        assert run.end() == 0, run.output
        assert "incident 1 recovered in" in run.output
        losses = re.findall(r"loss on all data: (\S+)", run.output)
    with submitted(*TWO_RANKS, script=script, arguments=("100",)) as calm:
        assert calm.end() == 0, calm.output
        assert not calm.journal("IncidentChanged")
        losses += re.findall(r"loss on all data: (\S+)", calm.output)
    assert len(losses) == 2 and losses[0] == losses[1]
