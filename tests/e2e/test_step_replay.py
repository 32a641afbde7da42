"""Replicas differ, and a replay of the step on real processes says why: a flipped bit, a script that treats
one rank differently, one that draws from the clock."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.standing import Job, submitted
from tests.e2e.test_corrupt_state import CHECKED, FLAGS, flip

SCRIPT = """
import hashlib, json, os, pathlib, sys, time
import torch
import torch.distributed as dist
from holdfast import Session

folder, fault = pathlib.Path(sys.argv[1]), "FAULT"
torch.set_num_threads(1)
session = Session()
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Dropout(0.2), torch.nn.Linear(4, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
session.track(model=model, optimizer=optimizer)
data = torch.randn(256, 8, generator=torch.Generator().manual_seed(7))


def let_flip():
    weight = model[0].weight
    found = {"weight": weight, "exp_avg": optimizer.state[weight]["exp_avg"]}
    rows = {name: {"address": each.data_ptr(), "bytes": each.nbytes} for name, each in found.items()}
    (folder / "new").write_text(json.dumps({"pid": os.getpid(), "tensors": rows}))
    (folder / "new").rename(folder / "addresses.json")
    while not (folder / "flipped").exists():
        time.sleep(0.01)


def disturb(rank):
    if rank == 1 and session.step >= 23:
        with torch.no_grad():
            amount = time.time_ns() % 1000 * 1e-5 if fault == "clock" else 1e-3
            model[0].weight.add_(amount)


@session.elastic
def train():
    wrapped = session.ddp(model)

    def step():
        optimizer.zero_grad()
        wrapped(data[session.sample_indices(256, 9, seed=3)]).pow(2).mean().backward()
        optimizer.step()
        if fault in ("place", "clock"):
            disturb(session.rank)
        elif fault == "process":
            disturb(dist.get_rank())

    if fault != "undeclared":
        step = session.step_function(step)
    for number in session.steps(40):
        time.sleep(0.02)
        if fault in ("bit", "undeclared") and (session.rank, number, session.generation) == (1, 23, 1):
            let_flip()
        step()
        if fault == "outside" and number == 23 and session.generation == 1:
            disturb(session.rank)
    found = [each.detach().numpy().tobytes() for each in model.parameters()]
    return hashlib.sha256(b"".join(found)).hexdigest()


weights = train()
(folder / f"result.{session.rank}").write_text(weights)
session.close()
"""


def started(fault: str, nproc: int = 3, policy: str = "act") -> Any:
    flags = (*FLAGS[:1], str(nproc), *FLAGS[2:], *CHECKED, policy)
    return submitted(*flags, script=SCRIPT.replace("FAULT", fault), storage=True)


def judged(run: Job) -> str:
    """What the first replay has shown, as the journal has it."""
    notes = [note["reason"] for note in run.journal("Note") if note["kind"] == "state_judged"]
    assert notes, run.output
    return str(notes[0])


def test_a_flipped_bit_is_hardware_and_costs_only_steps() -> None:
    with started("none") as calm:
        assert calm.end() == 0, calm.output
        undisturbed = {(calm.folder / f"result.{rank}").read_text() for rank in range(3)}
        assert len(undisturbed) == 1
        assert not calm.journal("Judged") and "to learn whether" not in calm.output
    with started("bit") as run:
        flip(run, seed=5)
        assert run.end() == 0, run.output
        assert judged(run).startswith("hardware: the same steps, run again twice, gave the same bits"), (
            run.output
        )
        verdicts = run.journal("Judged")
        assert len(verdicts) == 1, verdicts
        verdict = verdicts[0]
        assert verdict["verdict"]["ranks"] == [1] and verdict["plan"]["strategy"] == "rollback"
        assert "; hardware: " in verdict["verdict"]["evidence"][0]
        assert {(run.folder / f"result.{rank}").read_text() for rank in range(3)} == undisturbed


@pytest.mark.parametrize("nproc", [2, 3])
def test_a_script_that_treats_one_rank_differently_is_software_and_ends_the_job(nproc: int) -> None:
    with started("place", nproc) as run:
        assert run.end() != 0, run.output
        assert judged(run).startswith("software: it comes again with the same bits, and goes with"), (
            run.output
        )
        (verdict,) = run.journal("Judged")
        assert verdict["plan"]["strategy"] == "stop"
        assert "the script itself makes replicas of the state differ" in verdict["plan"]["reason"]


def test_what_stays_with_the_process_is_not_called_hardware() -> None:
    with started("process") as run:
        run.end()
        assert judged(run).startswith("unknown: it comes again with the same bits, and stays with"), (
            run.output
        )


def test_a_script_that_draws_from_the_clock_proves_nothing() -> None:
    with started("clock") as run:
        run.end()
        assert judged(run).startswith("unknown: the same steps gave other bits when they ran again"), (
            run.output
        )


@pytest.mark.parametrize(
    ("fault", "policy", "words"),
    [
        ("undeclared", "act", "unknown: the script declares no step function"),
        ("outside", "act", "unknown: parts of the state were changed outside of the declared step function"),
        ("bit", "report", "unknown: the job only reports (--on-corrupt-state report)"),
    ],
)
def test_where_no_replay_is_possible_the_reason_is_named(fault: str, policy: str, words: str) -> None:
    with started(fault, policy=policy) as run:
        if fault != "outside":
            flip(run, seed=5)
        assert run.end() == 0, run.output
        assert judged(run).startswith(words), run.output
