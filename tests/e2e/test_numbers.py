"""Wrong numbers, for real: a batch that makes NaN, the roll back behind it, and training that goes on."""

from __future__ import annotations

import json

from controlplane.cli.demo import ledger as ledgers
from tests.e2e.standing import Job, submitted

STEPS, POISONED = 30, 17
POISON = """
import hashlib, json, math, pathlib, sys, time
import torch
from holdfast import Session

folder, poison, finite_again = pathlib.Path(sys.argv[1]), POISON, True
torch.set_num_threads(1)
session = Session()
torch.manual_seed(1)
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
session.track(model=model, optimizer=optimizer)
data = torch.randn(256, 8, generator=torch.Generator().manual_seed(7))


@session.elastic
def train():
    wrapped = session.ddp(model)
    for step in session.steps(30):
        time.sleep(0.05)
        optimizer.zero_grad()
        loss = wrapped(data[session.sample_indices(256, 8, seed=3)]).pow(2).mean()
        if session.data_step == poison:
            loss = loss * math.nan
        session.check(loss)
        loss.backward()
        optimizer.step()
    return all(bool(torch.isfinite(value).all()) for value in model.parameters())


finite = train()
(folder / f"result.{session.rank}").write_text(json.dumps({"finite": finite}))
session.close()
"""
FLAGS = ("--nproc-per-node", "2", "--snapshot-every", "5", "--checkpoint-every", "5")


def script(poison: int) -> str:
    return POISON.replace("POISON", str(poison))


def ledger_of(run: Job) -> ledgers.RecordedLedger:
    paths = (run.folder / "ledger").glob("*.jsonl")
    return ledgers.read({path.name: path.read_text().splitlines() for path in paths})


def test_training_goes_on_behind_the_poisoned_batch_which_is_accounted_for() -> None:
    with submitted(*FLAGS, script=script(-1), storage=True) as calm:
        assert calm.end() == 0, calm.output
        reference = ledger_of(calm)
    with submitted(*FLAGS, "--nan-skip-window", "1", script=script(POISONED), storage=True) as run:
        assert run.end() == 0, run.output
        (judged,) = run.journal("Judged")
        assert judged["verdict"]["cause"] == "fault" and judged["plan"]["strategy"] == "rollback"
        assert f"step {POISONED}: the loss is nan" in judged["verdict"]["evidence"][0]
        resume = run.journal("Form")[-1]["generation"]["resume"]
        assert resume["step"] in (5, 10, 15), "the newest checkpoint that was committed by then"
        assert resume["skip"] == [{"first": POISONED, "end": POISONED + 1}]
        assert all(json.loads((run.folder / f"result.{r}").read_text())["finite"] for r in (0, 1))
        samples = ledgers.judge(ledger_of(run), STEPS, reference)
        assert samples.left_out == 8
        assert samples.clean, samples


def test_the_same_step_again_stops_the_job_with_the_reason() -> None:
    with submitted(*FLAGS, script=script(POISONED)) as run:
        assert run.end() == 1
        assert [one["plan"]["strategy"] for one in run.journal("Judged")] == ["rollback", "stop"]
        assert "the numbers are wrong again at the same step" in run.output
        assert "step 17: the loss is nan" in run.output
