"""What follows NaN gradients by `session.watch(model, on_nan=...)`, on real ranks: a roll back, or a stop."""

from __future__ import annotations

import json
from typing import Any

from tests.e2e.cli_running import Run, running
from tests.e2e.standing import Job, submitted

STEPS, POISONED = 30, 17
LAST = STEPS - 1
WATCHED = """
import hashlib, json, math, os, pathlib, sys, time
import torch
from holdfast import Session

folder, on_nan, planted = pathlib.Path(sys.argv[1]), "ON_NAN", "PLANTED"
torch.set_num_threads(1)
session = Session()
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
session.track(model=model, optimizer=optimizer)
session.watch(model, every=1, on_nan=on_nan)
data = torch.randn(256, 8, generator=torch.Generator().manual_seed(7))


def poisoned(step):
    if planted == "never" or step != POISONED or session.rank != 1:
        return False
    if planted == "always":
        return True
    try:
        os.close(os.open(folder / "did.poison", os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False


@session.elastic
def train():
    wrapped = session.ddp(model)
    for step in session.steps(STEPS):
        # Slow after the NaN, so that a job that did not notice it would still be there when a beat does.
        time.sleep(0.4 if POISONED <= step < POISONED + 4 else 0.05)
        optimizer.zero_grad()
        loss = wrapped(data[session.sample_indices(256, 8, seed=3)]).pow(2).mean()
        (loss * math.nan if poisoned(step) else loss).backward()
        optimizer.step()
    found = hashlib.sha256()
    for value in model.state_dict().values():
        found.update(value.numpy().tobytes())
    return found.hexdigest()


digest = train()
(folder / f"result.{session.rank}").write_text(json.dumps({"digest": digest}))
session.close()
"""
FLAGS = ("--nproc-per-node", "2", "--snapshot-every", "5", "--nan-skip-window", "0")


def script(on_nan: str, planted: str, step: int = POISONED) -> str:
    text = WATCHED.replace("ON_NAN", on_nan).replace("PLANTED", planted)
    return text.replace("POISONED", str(step)).replace("STEPS", str(STEPS))


def verdicts(run: Run | Job) -> list[dict[str, Any]]:
    """What was judged of wrong numbers. A process that is late on a busy machine is another story."""
    judged = [{"plan": one["plan"], "verdict": one["verdict"]} for one in run.journal("Judged")]
    return [one for one in judged if one["verdict"]["cause"] == "fault"]


def strategies(run: Run | Job) -> list[str]:
    """What followed, in order; a job that has stopped may say so of both ranks."""
    found = [one["plan"]["strategy"] for one in verdicts(run)]
    return [name for at, name in enumerate(found) if name != "stop" or "stop" not in found[:at]]


def digests(run: Run | Job) -> set[str]:
    return {json.loads((run.folder / f"result.{rank}").read_text())["digest"] for rank in (0, 1)}


def test_one_nan_is_rolled_back_and_the_final_weights_are_those_without_it() -> None:
    """Also a NaN of the very last step, after which no beat reads measurements."""
    with submitted(*FLAGS, script=script("rollback", "never")) as calm:
        assert calm.end() == 0, calm.output
        assert not calm.journal("Judged"), calm.output
        usual = digests(calm)
    for poisoned in (POISONED, LAST):
        with submitted(*FLAGS, script=script("rollback", "once", poisoned)) as run:
            assert run.end() == 0, run.output
            (judged,) = verdicts(run)
            assert (judged["verdict"]["cause"], judged["plan"]["strategy"]) == ("fault", "rollback")
            (evidence,) = judged["verdict"]["evidence"][:1]
            assert f"step {poisoned}: the gradients are not finite" in evidence
            resume = run.journal("Form")[-1]["generation"]["resume"]
            assert resume["step"] < poisoned, "the state that the step began with is not trusted either"
            assert digests(run) == usual and len(usual) == 1


def test_a_beat_that_comes_late_leaves_a_snapshot_from_before_the_nan() -> None:
    """A snapshot after each step: both slots could be written again before the next beat reads anything."""
    flags = ("--nproc-per-node", "2", "--snapshot-every", "1", "--nan-skip-window", "0")
    text = script("rollback", "once").replace("0.4 if", "0.1 if")
    with running(*flags, "--beat-interval-s", "4", script=text) as run:
        assert run.end() == 0, run.output
        (judged,) = verdicts(run)
        assert judged["plan"]["strategy"] == "rollback"
        resume = run.journal("Form")[-1]["generation"]["resume"]
        assert 0 < resume["step"] < POISONED, "not from the beginning"
        assert len(digests(run)) == 1


def test_a_nan_that_comes_again_at_the_same_step_ends_the_job_with_the_reason() -> None:
    with submitted(*FLAGS, script=script("rollback", "always")) as run:
        assert run.end() == 1, run.output
        assert strategies(run) == ["rollback", "stop"], verdicts(run)
        assert "the numbers are wrong again at the same step" in run.output
        assert f"step {POISONED}: the gradients are not finite" in run.output


def test_stop_ends_the_job_at_the_first_nan_with_the_reason() -> None:
    with submitted(*FLAGS, script=script("stop", "once")) as run:
        assert run.end() == 1, run.output
        assert strategies(run) == ["stop"], verdicts(run)
        assert f"step {POISONED}: the gradients are not finite" in run.output
        assert not list(run.folder.glob("result.*"))


def test_a_nan_of_the_very_last_step_is_noticed_before_the_job_is_over() -> None:
    with submitted(*FLAGS, script=script("stop", "once", LAST)) as run:
        assert run.end() == 1, run.output
        assert strategies(run) == ["stop"], verdicts(run)
        assert f"step {LAST}: the gradients are not finite" in run.output
