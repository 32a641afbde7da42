"""A bit that flips in the memory of one rank, for real: found, gone back before it, and the rank replaced."""

from __future__ import annotations

import json

from controlplane.cli.demo.memory import drawn_bit, flip_bit
from tests.e2e.cli_running import until
from tests.e2e.standing import Job, submitted
from tests.e2e.test_suspect_checkpoints import listed

STEPS, FLIPPED = 40, 23
FLAGS = ("--nproc-per-node", "3", "--snapshot-every", "10", "--checkpoint-every", "10")
CHECKED = ("--check-replicas-every", "5", "--on-corrupt-state")
SCRIPT = """
import hashlib, json, os, pathlib, sys, time
import torch
from holdfast import Session

folder, flips = pathlib.Path(sys.argv[1]), FLIPS
torch.set_num_threads(1)
session = Session()
torch.manual_seed(1)
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
session.track(model=model, optimizer=optimizer)
WAITS = {12: "manifests/10", 22: "manifests/20", 31: "manifests/30", 32: "suspect/30"}
data = torch.randn(256, 8, generator=torch.Generator().manual_seed(7))


def let_flip():
    found = {"weight": model.weight, "exp_avg": optimizer.state[model.weight]["exp_avg"]}
    rows = {name: {"address": each.data_ptr(), "bytes": each.nbytes} for name, each in found.items()}
    (folder / "new").write_text(json.dumps({"pid": os.getpid(), "tensors": rows}))
    (folder / "new").rename(folder / "addresses.json")
    while not (folder / "flipped").exists():
        time.sleep(0.01)


@session.elastic
def train():
    wrapped = session.ddp(model)
    for step in session.steps(40):
        time.sleep(0.02)
        if flips and (session.rank, step) == (1, 23):
            let_flip()
        if OVERWRITTEN > 0 and step in WAITS:
            while not list(folder.glob(f"storage/jobs/*/{WAITS[step]}-*.json")):
                time.sleep(0.01)
        if step == OVERWRITTEN:  # all hold what rank 0 holds: its state was not damaged
            found = [model.state_dict(), optimizer.state_dict()]
            torch.distributed.broadcast_object_list(found, src=0)
            model.load_state_dict(found[0])
            optimizer.load_state_dict(found[1])
        optimizer.zero_grad()
        wrapped(data[session.sample_indices(256, 9, seed=3)]).pow(2).mean().backward()
        optimizer.step()
    found = [each.detach().numpy().tobytes() for each in model.parameters()]
    return hashlib.sha256(b"".join(found)).hexdigest()


weights = train()
(folder / f"result.{session.rank}").write_text(weights)
session.close()
"""


def script(*, flips: bool, overwritten: int = -1) -> str:
    """A step before which all ranks take over the state of rank 0; -1: none."""
    return SCRIPT.replace("FLIPS", str(flips)).replace("OVERWRITTEN", str(overwritten))


def weights(run: Job) -> set[str]:
    return {(run.folder / f"result.{rank}").read_text() for rank in range(3)}


def flip(run: Job, seed: int) -> str:
    path = run.folder / "addresses.json"
    until(path.exists, lambda: run.output)
    given = json.loads(path.read_text())
    bit = drawn_bit(given["tensors"], seed)
    flip_bit(given["pid"], bit.address, bit.number)
    (run.folder / "flipped").touch()
    return bit.tensor


def test_the_job_goes_back_before_the_flip_and_ends_with_the_undisturbed_weights() -> None:
    with submitted(*FLAGS, *CHECKED, "act", script=script(flips=False), storage=True) as calm:
        assert calm.end() == 0, calm.output
        assert not calm.journal("Judged")
        (undisturbed,) = weights(calm)
    with submitted(*FLAGS, *CHECKED, "act", script=script(flips=True), storage=True) as run:
        flip(run, seed=5)
        assert run.end() == 0, run.output
        (judged,) = run.journal("Judged")
        assert (judged["verdict"]["cause"], judged["plan"]["strategy"]) == ("fault", "rollback")
        assert judged["verdict"]["ranks"] == [1] and judged["verdict"]["whose"] == "cluster"
        evidence = judged["verdict"]["evidence"][0]
        assert "rank 1 of 3 replicas differ in" in evidence
        assert "with 25 steps completed; all held the same with 20" in evidence
        resume = run.journal("Form")[-1]["generation"]["resume"]
        assert resume["step"] == 20, "the newest snapshot, taken after replicas agreed"
        assert weights(run) == {undisturbed}


def test_only_reported_the_job_trains_on_and_its_checkpoints_are_marked_until_replicas_agree_again() -> None:
    given = script(flips=True, overwritten=33)
    with submitted(*FLAGS, *CHECKED, "report", script=given, storage=True) as run:
        flip(run, seed=6)
        assert run.end() == 0, run.output
        assert not run.journal("Judged")
        notes = [note for note in run.journal("Note") if note["kind"] == "state_corrupt"]
        assert notes and "rank 1 of 3 replicas differ in" in notes[0]["reason"], notes
        marked = [each for each in run.journal("CheckpointChanged") if each["outcome"] == "suspect"]
        assert [each["record"]["step"] for each in marked] == [30], marked
        rows = {row["step"]: row["suspect"] for row in listed(run, "list")["checkpoints"]}
        assert "replicas of the state differed" in rows.pop(30)
        assert {10, 20, 40} == set(rows) and not any(rows.values()), rows
