"""The scripts of logger cases: the recipes of docs/recipes.md as they stand, with kills put in."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
SETUP, LOGGED = "session = Session()\n", "log = StepLog(session, OpenLog)"
"""What only the first block of the recipes has, and only the block that the loggers are put above."""
STEPS = 60

KILLS = """
import os, pathlib, signal, time
written = {"step": -1}
inner = OpenLog.write
def kill(at, step):
    if session.rank == 0 and (session.generation, step) == at:
        os.kill(os.getpid(), signal.SIGKILL)
def write(self, step, values):
    kill((2, 20), step)
    inner(self, step, values)
    written["step"] = step
    kill((3, 30), step)
OpenLog.write = write
def pace(step):
    kill((1, 10), step)
    until = time.monotonic() + 20
    while session.rank == 0 and step % 5 == 0 and written["step"] < step - 5 and time.monotonic() < until:
        time.sleep(0.01)
    while step == 45 and pathlib.Path("stop").exists():
        pathlib.Path(f"at-45.{session.rank}").touch()
        time.sleep(0.05)
"""
"""Rank 0 kills itself in the body of step 10, its successor before it writes step 20, the next one after it
has written step 30. No step runs more than ten steps ahead of what is written, and all ranks stop in step 45
as long as there is a file `stop`."""

TIMED = """
import pathlib, time
begun = []
def pace(step):
    time.sleep(0.02)
    begun.append(time.monotonic())
    if session.rank == 0:
        pathlib.Path("step").write_text(str(step))
"""
"""Every rank notes when each step begins."""
AFTER_TIMED = """
if session.rank == 0:
    gaps = [1000 * (after - before) for before, after in zip(begun, begun[1:])]
    pathlib.Path("gaps").write_text(" ".join(f"{gap:.1f}" for gap in gaps))
"""


def recipe(section: str) -> str:
    """The recipe for one logger, as a whole script."""
    text = (DOCS / "recipes.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (setup,), (logged,) = ([block for block in blocks if mark in block] for mark in (SETUP, LOGGED))
    of_section = text.partition(f"\n### {section}\n")[2].partition("\n#")[0]
    (logger,) = re.findall(r"^```python\n(.*?)^```$", of_section, re.MULTILINE | re.DOTALL)
    return f"import os, sys\nos.chdir(sys.argv[1])\n{setup}{logger}{logged}"


def killed(section: str) -> str:
    """The recipe with three kills and a stop."""
    return _with(recipe(section), KILLS)


def timed(section: str, steps: int) -> str:
    """The recipe, so that each step notes when it begins."""
    script = recipe(section).replace(f"session.steps({STEPS})", f"session.steps({steps})")
    return _with(script.replace("log.finish()", "log.finish(300)"), TIMED) + AFTER_TIMED


def _with(script: str, more: str) -> str:
    for place in (LOGGED, "        loss.backward()\n"):
        if script.count(place) != 1:
            raise ValueError(f"docs/recipes.md: {place!r} is there {script.count(place)} times, not once")
    script = script.replace(LOGGED, f"{more}\n{LOGGED}")
    return script.replace("        loss.backward()\n", "        pace(_step)\n        loss.backward()\n")
