"""Several elastic functions, and several Sessions, in one script: each with its own steps, through kills."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.cli_running import Run, running, until
from tests.e2e.standing import Job, submitted

if TYPE_CHECKING:
    from pathlib import Path

HEAD = """
import json, os, pathlib, sys, time
import torch
from holdfast import Session
folder = pathlib.Path(sys.argv[1])

def note(word, **more):
    with (folder / "notes").open("a") as file:
        file.write(json.dumps({"at": word, "pid": os.getpid(), "rank": os.environ["RANK"], **more}) + chr(10))

def wait_at(word):
    # the first process that comes here as rank 1 waits to be killed, where the test wants that
    note(word)
    if MOMENT == word and os.environ["RANK"] == "1":
        if not (folder / "struck").exists():
            (folder / "struck").touch()
            note("kill")
            time.sleep(600)

def made(seed, width):
    torch.manual_seed(seed)
    model = torch.nn.Linear(4, width)
    return model, torch.optim.Adam(model.parameters(), lr=0.1)

def trained(session, model, optimizer, total, word):
    ddp = session.ddp(model)
    seen = []
    for step in session.steps(total):
        assert step == session.step
        seen.append(step)
        indices = session.sample_indices(64, 8)
        ddp(indices.float().reshape(-1, 1).expand(-1, 4) / 64 + torch.rand(1)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == total // 2:
            wait_at(word)
    return seen

def digest(*models):
    return sum(p.double().sum().item() * (i + 1) for m in models for i, p in enumerate(m.parameters()))

def result(**more):
    path = folder / f"result-{os.environ['RANK']}.json"
    path.with_suffix(".part").write_text(json.dumps(more))
    path.with_suffix(".part").rename(path)
"""

TRACKED = """
session = Session(backend="gloo")
model, optimizer = made(1, 3)
session.track(model=model, optimizer=optimizer)
"""

PRETRAIN = (
    TRACKED
    + """
@session.elastic
def pretrain():
    trained(session, model, optimizer, 12, "first")
    return {"steps": session.step, "loss": round(digest(model), 9)}

told = pretrain()
assert session.step == 12
wait_at("between")
head = torch.nn.Linear(3, 2)
fine = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.01)
session.track(optimizer=fine, head=head)

@session.elastic
def finetune():
    return len(trained(session, torch.nn.Sequential(model, head), fine, 14, "second")) >= 0

assert finetune() is True and session.step == 14
wait_at("behind")
result(told=told, state=digest(model, head))
"""
)

FOLDS = """
session = Session(backend="gloo")
scores = []
def fold(number):
    model, optimizer = made(number, 2)
    session.track(model=model, optimizer=optimizer)
    @session.elastic
    def train():
        trained(session, model, optimizer, 8, ["first", "other", "second"][number])
        return digest(model)
    return train()
for number in range(3):
    scores.append(fold(number))
    wait_at("between" if number == 0 else "later")
wait_at("behind")
result(scores=scores)
"""

SESSIONS = """
def one(number, word):
    session = Session(backend="gloo", seed=number)
    model, optimizer = made(number, 2)
    session.track(model=model, optimizer=optimizer)
    @session.elastic
    def train():
        trained(session, model, optimizer, 10, word)
        return digest(model)
    value = train()
    assert session.step == 10
    if number == 1:
        session.close()
    return value
values = [one(1, "first")]
wait_at("between")
values.append(one(2, "second"))
wait_at("behind")
result(values=values)
"""

SCRIPTS = {"pretrain": PRETRAIN, "folds": FOLDS, "sessions": SESSIONS}
MOMENTS = ("first", "between", "second", "behind")
_PAIRS = [(script, moment) for script in SCRIPTS for moment in MOMENTS]
KILLED = [
    pair
    if pair[0] == "pretrain" or pair[1] == "second"
    else pytest.param(*pair, marks=pytest.mark.exhaustive)
    for pair in _PAIRS
]
"""Of the first script each moment, of the others one; the rest with `make exhaustive`."""
FLAGS = ("--nnodes", "2", "--nproc-per-node", "1", "--snapshot-every", "5")


def notes(run: Run | Job, word: str) -> list[dict[str, Any]]:
    path: Path = run.folder / "notes"
    entries = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [entry for entry in entries if entry["at"] == word]


def results(run: Run | Job) -> list[Any]:
    return [json.loads(path.read_text()) for path in sorted(run.folder.glob("result-*.json"))]


def lived(script: str, moment: str = "", *flags: str, storage: bool = False) -> Any:
    """The results of both ranks, rank 1 killed at a moment of the script."""
    text = (HEAD + SCRIPTS[script]).replace("MOMENT", repr(moment))
    with submitted(*FLAGS, *flags, script=text, storage=storage) as run:
        if moment:
            pid = until(lambda: notes(run, "kill"), lambda: run.output)[0]["pid"]
            os.kill(pid, signal.SIGKILL)
        assert run.end() == 0, run.output
        found = results(run)
        assert len(found) == 2 and found[0] == found[1], (found, run.output)
        return found[0]


REFUSED = {
    "tensor": (
        "second",
        TRACKED
        + """
@session.elastic
def pretrain():
    trained(session, model, optimizer, 6, "first")
    return model.weight
pretrain()
@session.elastic
def finetune():
    trained(session, model, optimizer, 6, "second")
finetune()
""",
        "pretrain has ended, and this process, which joined the job later, cannot get what it returned",
        "Parameter cannot be kept",
    ),
    "saved": (
        "second",
        TRACKED
        + """
@session.elastic
def pretrain():
    trained(session, model, optimizer, 6, "first")
pretrain()
torch.save(model.state_dict(), folder / f"model-{session.rank}.pt")
@session.elastic
def finetune():
    trained(session, model, optimizer, 6, "second")
finetune()
""",
        "model does not have the state that pretrain left: this process joined the job later",
        "if not session.catching_up",
    ),
    "caught": (
        "",
        TRACKED
        + """
@session.elastic
def trial():
    trained(session, model, optimizer, 6, "first")
    raise ValueError("pruned")
for _ in range(2):
    try:
        trial()
    except ValueError:
        pass
""",
        "trial: ValueError was raised in trial, and the script continued after it",
        "Catch the exception within the elastic function",
    ),
    "apart": (
        "",
        TRACKED
        + """
@session.elastic
def pretrain():
    ddp = session.ddp(model)
    for step in session.steps(6):
        ddp(torch.ones(8, 4)).square().mean().backward()
        if step == 4 and session.rank == 0:
            break
        optimizer.step()
        optimizer.zero_grad()
        if step == 4:
            break
pretrain()
""",
        "rank 0 left it in step 4, before its optimizer, rank 1 left it in step 4, after",
        "Leave it in the same step on all ranks",
    ),
    "two": (
        "",
        """
first, second = Session(backend="gloo"), Session(backend="gloo")
@first.elastic
def train():
    pass
train()
""",
        "train: this Session is closed: the script has made another Session since",
        "only one can be used at a time",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_kept_is_refused_by_name(case: str) -> None:
    moment, script, *words = REFUSED[case]
    text = (HEAD + script).replace("MOMENT", repr(moment))
    with submitted(*FLAGS, "--max-restarts", "1", script=text) as run:
        if moment:
            pid = until(lambda: notes(run, "kill"), lambda: run.output)[0]["pid"]
            os.kill(pid, signal.SIGKILL)
        assert run.end() == 1, run.output
        assert all(word in run.output for word in words), run.output


def test_a_job_goes_on_in_its_second_function_from_storage() -> None:
    """All processes are new: none enters the first function, and each has its value."""
    text = (HEAD + PRETRAIN).replace("MOMENT", repr("second"))
    flags = ("--nproc-per-node", "2", "--snapshot-every", "5", "--checkpoint-every", "5")
    with running(*flags, script=text, storage=True) as run:
        until(lambda: notes(run, "kill"), lambda: run.output)
        assert run.process is not None
        os.kill(run.process.pid, signal.SIGINT)
        assert run.end() == 130, run.output
        before = len(notes(run, "first"))
        run.start()
        assert run.end() == 0, run.output
        assert len(notes(run, "first")) == before == 2, "nobody has trained the first function again"
        found = results(run)
        assert len(found) == 2 and found[0] == found[1] and found[0]["told"]["steps"] == 12


ROLLED_BACK = (
    TRACKED
    + """
@session.elastic
def pretrain():
    trained(session, model, optimizer, 6, "first")
pretrain()
@session.elastic
def finetune():
    ddp = session.ddp(model)
    for step in session.steps(6):
        indices = session.sample_indices(64, 8, seed=2)
        ddp(indices.float().reshape(-1, 1).expand(-1, 4) / 64).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if MOMENT and step == 2 and not (folder / f"fault-{session.rank}").exists():
            (folder / f"fault-{session.rank}").touch()
            session.fault("the loss has jumped")
finetune()
result(state=digest(model))
"""
)


def test_the_first_state_of_a_later_function_is_what_a_rollback_puts_in_place() -> None:
    """Nobody is new then: every rank has trained since."""

    def ended(fault: str) -> list[dict[str, Any]]:
        with submitted(*FLAGS, script=(HEAD + ROLLED_BACK).replace("MOMENT", repr(fault))) as run:
            assert run.end() == 0, run.output
            assert bool(fault) == ("the loss has jumped" in run.output)
            return results(run)

    calm, found = ended(""), ended("yes")
    assert len(calm) == len(found) == 2 and calm == found


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, Any]:
    return {}


@pytest.mark.parametrize(("script", "moment"), KILLED)
def test_a_rank_is_killed_and_nothing_is_another(
    script: str, moment: str, undisturbed: dict[str, Any]
) -> None:
    if script not in undisturbed:
        undisturbed[script] = lived(script)
    spares = ("--spares", "1") if moment == "second" else ()
    assert lived(script, moment, *spares) == undisturbed[script]
