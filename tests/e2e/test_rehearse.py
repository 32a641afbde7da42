"""`holdfast rehearse` says whether a script's training comes out the same when ranks of it are killed."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """
import time
import torch
from holdfast import Session

torch.manual_seed(0)
session = Session()
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
session.track(model=model, optimizer=optimizer)
KIND = "@KIND@"
taken = 0

class Seen:
    mean = torch.zeros(8)
    def state_dict(self):
        return {"mean": self.mean}
    def load_state_dict(self, state):
        self.mean = state["mean"]

seen = Seen()
if KIND == "tracks":  # what each rank has for itself: the ranks decide which snapshots are offered
    session.track(seen=seen, per_rank=True)

@session.elastic
def train():
    global taken
    ddp = session.ddp(model)
    for step in session.steps(400):
        time.sleep(0.02)
        scale = taken if KIND == "forgets" else 1.0
        taken += 1
        rows = torch.randn(4, 8)
        if KIND == "tracks":
            seen.mean = seen.mean.lerp(rows.mean(0), 0.1)
        loss = ddp(rows - seen.mean).square().mean() * scale
        loss.backward()
        if KIND != "accumulates" or step % 3 == 2:
            optimizer.step()
            optimizer.zero_grad()

train()
"""
FLAGS = ("--nproc-per-node", "2", "--spares", "1", "--until-step", "18", "--snapshot-every", "4", "--json")


def rehearsed(folder: Path, kind: str, *flags: str) -> tuple[int, dict[str, Any], str]:
    """The exit code, the result, and what was shown."""
    script = folder / "train.py"
    script.write_text(SCRIPT.replace("@KIND@", kind))
    command = [sys.executable, "-m", "controlplane", "rehearse", *FLAGS, *flags, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    result = json.loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else {}
    return done.returncode, result, done.stderr


def test_a_script_that_tracks_what_its_steps_need_comes_out_the_same(tmp_path: Path) -> None:
    code, result, shown = rehearsed(tmp_path, "tracks", "--nnodes", "2", "--nproc-per-node", "1")
    assert code == 0, shown
    assert result["exact"] and result["step"] == 20 and result["tensors"] >= 6
    assert [row["kill"].split()[3] for row in result["kills"]] == ["1", "0", "1"]
    assert [row["kill"].split()[-1] for row in result["kills"]] == ["4", "8", "16"]
    assert all(row["in_step"] < result["step"] for row in result["kills"])
    assert len(result["incidents"]) == 3 and not result["differing"]
    assert "yes, byte for byte" in shown


def test_a_kill_at_the_step_where_gradients_that_cross_steps_end(tmp_path: Path) -> None:
    """The checkpoint of step 4 is that of step 6, where the kill is: training is held there for both."""
    flags = ("--kill", "rank=1@step=6", "--kill", "rank=0@step=13", "--timeout-s", "150")
    code, result, shown = rehearsed(tmp_path, "accumulates", *flags)
    assert code == 0, shown
    assert result["exact"] and result["step"] == 21 and len(result["kills"]) == 2


def test_a_script_that_forgets_something_differs_by_name_and_is_told_what_to_do(tmp_path: Path) -> None:
    code, result, shown = rehearsed(tmp_path, "forgets", "--kill", "rank=0@step=6")
    assert code == 1, shown
    names = {row["name"] for row in result["differing"]}
    assert any("weight" in name for name in names), names
    assert result["reproducible"] is True
    assert any("taken" in line for line in result["warnings"]), result["warnings"]
    assert "What you forget to track" in shown


def test_a_training_that_is_too_short_says_what_to_do(tmp_path: Path) -> None:
    code, result, shown = rehearsed(tmp_path, "tracks", "--until-step", "1000", "--kill", "rank=1@step=5")
    assert (code, result) == (1, {}), shown
    assert "give the script more steps, or a smaller --until-step" in shown
