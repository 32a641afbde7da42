"""Data through everything at once, for real: workers, uneven shares, a kill, a roll back that leaves a batch
out; and a job that is started again with other data."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

from holdfast.data import sampling
from tests.e2e.cli_running import Run, running, until
from tests.e2e.standing import Job, submitted

STEPS, POISONED, N, BATCH = 30, 17, 101, 9
SCRIPT = """
import json, math, os, pathlib, signal, sys, time
import torch
from holdfast import Session

folder = pathlib.Path(sys.argv[1])
while not (folder / "args").exists():
    time.sleep(0.01)
steps, batch, change, poison = (folder / "args").read_text().split()
torch.set_num_threads(1)
session = Session(data_change=change)
torch.manual_seed(1)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
session.track(model=model, optimizer=optimizer)
book = (folder / f"{os.getpid()}.book").open("a")


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 101

    def __getitem__(self, index):
        return index, torch.rand(2)


@session.elastic
def train():
    wrapped = session.ddp(model)
    loader = session.loader(Rows(), int(batch), seed=3, num_workers=1, prefetch_factor=4)
    for step, (index, rows) in zip(session.steps(int(steps)), loader):
        time.sleep(0.05)
        optimizer.zero_grad()
        if (step, session.rank) == (9, 1) and not (folder / "died").exists():
            (folder / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        loss = wrapped(rows).pow(2).mean()
        if session.data_step == int(poison):
            loss = loss * math.nan
        session.check(loss)
        loss.backward()
        line = [step, session.generation, session.rank, index.tolist(), rows.tolist()]
        assert session.loss_weight == len(index) * 2 / int(batch)
        book.write(json.dumps(line) + "\\n")
        book.flush()
        optimizer.step()


train()
session.close()
"""
FLAGS = ("--nproc-per-node", "2", "--spares", "1", "--snapshot-every", "5", "--checkpoint-every", "5")


def consumed(run: Run | Job) -> tuple[dict[int, list[int]], dict[int, list[list[float]]]]:
    """By step the samples, and their random numbers, of the newest generation that consumed it."""
    newest: dict[tuple[int, int], tuple[int, list[int], list[list[float]]]] = {}
    for path in run.folder.glob("*.book"):
        for step, generation, rank, samples, noise in map(json.loads, path.read_text().splitlines()):
            newest[step, rank] = max(newest.get((step, rank), (0, [], [])), (generation, samples, noise))
    taken: dict[int, list[int]] = {}
    drawn: dict[int, list[list[float]]] = {}
    for (step, _), (_, samples, noise) in sorted(newest.items()):
        taken.setdefault(step, []).extend(samples)
        drawn.setdefault(step, []).extend(noise)
    return taken, drawn


def batch(number: int) -> list[int]:
    return sampling.indices(N, number * BATCH, BATCH, seed=3).tolist()


def test_a_kill_and_a_batch_that_is_left_out_while_workers_fetch_ahead() -> None:
    with submitted(*FLAGS, "--nan-skip-window", "1", script=SCRIPT, storage=True) as run:
        tell(run, STEPS, BATCH, "refuse", POISONED)
        assert run.end() == 0, run.output
        resume = run.journal("Form")[-1]["generation"]["resume"]
        assert resume["skip"] == [{"first": POISONED, "end": POISONED + 1}]
        taken, drawn = consumed(run)
    assert taken == {step: batch(step if step < POISONED else step + 1) for step in range(STEPS)}
    assert len({tuple(pair) for each in drawn.values() for pair in each}) == STEPS * BATCH


def test_a_job_that_is_started_again_with_another_global_batch() -> None:
    with running(*FLAGS, script=SCRIPT, storage=True) as run:
        tell(run, 10_000, BATCH, "refuse")
        until(lambda: len(run.journal("CheckpointChanged")) > 6, lambda: run.output)
        assert run.process is not None
        run.process.send_signal(signal.SIGINT)
        assert run.end() == 130, run.output
        shown = json.loads(show(run, "--json"))
        (stream,) = shown["shards"][0]["data"]
        step = shown["step"]
        assert stream == {"seed": 3, "n": N, "global_batch": BATCH, "position": step * BATCH}
        text = f"data        seed 3: {N} samples, global batch {BATCH}, next at position {step * BATCH}"
        assert text in show(run)
        tell(run, step + 20, 12, "refuse")
        run.start()
        assert run.end() == 1
        assert f"state of step {step} was trained with n=101, global_batch=9, seed=3; this" in run.output
        assert "this script asks for n=101, global_batch=12, seed=3" in run.output
        tell(run, step + 20, 12, "continue")
        run.start()
        assert run.end() == 0, run.output
        taken, _ = consumed(run)
    order = [index for at in range(step, step + 20) for index in taken[at]]
    assert order == sampling.indices(N, step * BATCH, 20 * 12, seed=3).tolist()


def tell(run: Run | Job, steps: int, batch: int, change: str, poison: int = -1) -> None:
    """What the script is to do, from its next start on."""
    (run.folder / "part").write_text(f"{steps} {batch} {change} {poison}")
    (run.folder / "part").rename(run.folder / "args")


def show(run: Run, *flags: str) -> str:
    command = [sys.executable, "-P", "-m", "controlplane", "checkpoint", "show", str(run.folder / "storage")]
    done = subprocess.run([*command, *flags], capture_output=True, text=True, check=True)
    return done.stdout
