"""Ranks that hang, for real: each is named with where it stands, it alone is replaced, and no bit is lost."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.e2e.cli_running import Run, running
from tests.e2e.standing import Job, submitted

STEPS = 40
HANGING = """
import ctypes, hashlib, json, os, pathlib, signal, sys, time
import torch
from holdfast import Session

folder, hang = pathlib.Path(sys.argv[1]), HANG
torch.set_num_threads(1)
session = Session()
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
session.track(model=model, optimizer=optimizer)
data = torch.randn(64, 8, generator=torch.Generator().manual_seed(7))


def once(name):
    try:
        os.close(os.open(folder / f"did.{name}", os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False


class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return data[index]


def sleeps_in_python():
    time.sleep(1000)


def holds_the_lock():
    lock = ctypes.create_string_buffer(64)
    take = ctypes.PyDLL(None).pthread_mutex_lock
    take(lock), take(lock)


def loader_is_dead():
    loader = iter(torch.utils.data.DataLoader(Slow(), num_workers=1, prefetch_factor=1))
    next(loader)
    for worker in loader._workers:
        os.kill(worker.pid, signal.SIGSTOP)
    for _ in loader:
        pass


@session.elastic
def train():
    wrapped = session.ddp(model)
    for step in session.steps(40):
        time.sleep(0.02)
        if hang and step == 8 and session.rank == 1 and once("python"):
            sleeps_in_python()
        if hang and step == 16 and session.rank == 2 and once("lock"):
            holds_the_lock()
        if hang and step == 24 and session.rank == 3 and once("loader"):
            loader_is_dead()
        if hang and step == 32 and session.rank == 0 and once("evaluate"):
            with session.phase("evaluate"):
                time.sleep(3 * 1.5)
        optimizer.zero_grad()
        loss = wrapped(data[session.sample_indices(64, 8, seed=3)]).pow(2).mean()
        loss.backward()
        optimizer.step()
    found = hashlib.sha256()
    for value in model.state_dict().values():
        found.update(value.numpy().tobytes())
    return found.hexdigest()


digest = train()
(folder / f"result.{session.rank}").write_text(json.dumps({"digest": digest, "pid": os.getpid()}))
session.close()
"""
FLAGS = ("--nnodes", "2", "--nproc-per-node", "2", "--spares", "1", "--snapshot-every", "5")
PACE = ("--hang-floor-s", "1.5", "--hang-first-s", "20", "--process-timeout-s", "4")


def digests(run: Run | Job, ranks: int = 4) -> set[str]:
    found: list[dict[str, Any]] = [json.loads((run.folder / f"result.{r}").read_text()) for r in range(ranks)]
    return {one["digest"] for one in found}


def undisturbed() -> str:
    """Of four ranks on one node: where they are changes nothing."""
    with submitted("--nproc-per-node", "4", script=HANGING.replace("HANG", "False")) as run:
        assert run.end(120) == 0, run.output
        assert not run.journal("Judged"), run.output
        (digest,) = digests(run)
        return digest


@pytest.mark.timeout(400)  # ten processes import torch, which takes its time where others work too
def test_each_hung_rank_is_named_and_it_alone_is_replaced() -> None:
    with running(*FLAGS, *PACE, script=HANGING.replace("HANG", "True")) as run:
        assert run.end(180) == 0, run.output
        judged = [(one["verdict"], one["plan"]) for one in run.journal("Judged")]
        told = {verdict["ranks"][0]: verdict for verdict, _ in judged}
        assert [verdict["ranks"] for verdict, _ in judged] == [[1], [2], [3]], run.output
        assert {verdict["cause"] for verdict, _ in judged} == {"hung"}, run.output
        assert re.search(r"step 8.*sleeps_in_python \(script\.py:\d+\)", told[1]["evidence"][0])
        assert "3 ranks" in told[1]["evidence"][0] or "ranks 0, 2, 3 wait" in told[1]["evidence"][0]
        assert re.search(r"holds_the_lock \(script\.py:\d+\)", told[2]["evidence"][0])
        assert "its interpreter has not answered for" in told[2]["evidence"][0]
        assert "loader_is_dead" in told[3]["evidence"][0]
        assert (digests(run)) == {undisturbed()}
        stacks = sorted(path.name for path in (run.layout.state / "stacks").glob("*.txt"))
        assert len(stacks) == 3, stacks
        whole = [(run.layout.state / "stacks" / name).read_text() for name in stacks]
        assert [text.count("======== rank") for text in whole] == [4, 4, 4]
        assert "sleeps_in_python" in whole[0] and "holds_the_lock" in whole[1]


def test_a_rank_whose_silence_is_noticed_first_is_judged_as_hung_too() -> None:
    """The deadline of a step is far away: no beat for the process timeout comes first."""
    script = HANGING.replace("HANG", "True").replace("session.rank == 1", "False")
    script = script.replace("session.rank == 2", "session.rank == 1").replace("session.rank == 0", "False")
    flags = ("--nproc-per-node", "3", "--spares", "1", "--snapshot-every", "5")
    with running(*flags, "--hang-floor-s", "60", "--process-timeout-s", "3", script=script) as run:
        assert run.end(120) == 0, run.output
        (verdict,) = [one["verdict"] for one in run.journal("Judged")]
        assert (verdict["cause"], verdict["ranks"]) == ("hung", [1]), run.output
        assert "holds_the_lock" in verdict["evidence"][0]
        (stacks,) = (run.layout.state / "stacks").glob("*.txt")
        assert stacks.read_text().count("======== rank") == 3
        assert len(digests(run, 3)) == 1


PIPELINE = """
import hashlib, os, pathlib, sys
import torch, torch.distributed as dist
from holdfast import Session

folder, skips = pathlib.Path(sys.argv[1]), SKIPS
torch.set_num_threads(1)
session = Session()
torch.manual_seed(1)
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
session.track(model=model, optimizer=optimizer)
data = torch.randn(64, 8, generator=torch.Generator().manual_seed(7))


def left_out(step):
    if not skips or step != 8 or session.rank != 1:
        return False
    try:
        os.close(os.open(folder / "did.skip", os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False


@session.elastic
def train():
    for step in session.steps(16):
        optimizer.zero_grad()
        weight = torch.ones(1)
        if session.rank > 0:
            dist.recv(weight, session.rank - 1, tag=step)
        if session.rank + 1 < session.world_size and not left_out(step):
            dist.send(weight + 1, session.rank + 1, tag=step)
        loss = model(data[session.sample_indices(64, 8, seed=3)]).pow(2).mean() * weight
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
    found = hashlib.sha256()
    for value in model.state_dict().values():
        found.update(value.numpy().tobytes())
    return found.hexdigest()


digest = train()
(folder / f"result.{session.rank}").write_text('{"digest": "%s"}' % digest)
session.close()
"""


@pytest.mark.timeout(400)  # eight processes import torch, which takes its time where others work too
def test_the_rank_of_a_pipeline_that_left_out_its_send_is_named_and_replaced() -> None:
    flags = ("--nproc-per-node", "3", "--spares", "1", "--snapshot-every", "5")
    with submitted("--nproc-per-node", "3", script=PIPELINE.replace("SKIPS", "False")) as run:
        assert run.end(120) == 0, run.output
        assert not run.journal("Judged"), run.output
        usual = digests(run, 3)
    with running(*flags, *PACE, script=PIPELINE.replace("SKIPS", "True")) as run:
        assert run.end(180) == 0, run.output
        (verdict,) = [one["verdict"] for one in run.journal("Judged")]
        assert (verdict["cause"], verdict["ranks"]) == ("hung", [1]), run.output
        assert re.search(r"rank 1 \(left_out, 0\.90\): rank 2 waits for it: recv", verdict["evidence"][0])
        assert re.search(r"script\.py:\d+ \(train\), left it out this time", verdict["evidence"][0])
        assert digests(run, 3) == usual


LATE = """
import ctypes, os, pathlib, signal, sys, time
import torch
from holdfast import Session

folder = pathlib.Path(sys.argv[1])
torch.set_num_threads(1)
session = Session()
torch.manual_seed(1)
model = torch.nn.Linear(8, 4)
session.track(model=model)


def once(name):
    try:
        os.close(os.open(folder / name, os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False


def waits_in_native_code():
    lock = ctypes.create_string_buffer(64)
    take = ctypes.CDLL(None).pthread_mutex_lock  # other threads of Python go on
    take(lock), take(lock)


def is_stopped():
    os.kill(os.getpid(), signal.SIGSTOP)


def is_killed():
    while not (folder / "late").exists():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)


@session.elastic
def train():
    wrapped = session.ddp(model)
    for step in session.steps(20):
        if step == 8 and session.rank == 1 and once("late"):
            RANK_1()
        if step == 8 and session.rank == 0 and once("killed"):
            RANK_0()
        wrapped(torch.randn(4, 8)).sum().backward()
        model.zero_grad()


train()
session.close()
"""


@pytest.mark.timeout(400)
def test_a_rank_that_does_not_come_to_the_barrier_is_told_with_its_process_and_its_node() -> None:
    """Rank 0 is killed, and rank 1, which beats on, cannot be interrupted: its step ends never."""
    script = LATE.replace("RANK_1", "waits_in_native_code").replace("RANK_0", "is_killed")
    flags = ("--nnodes", "2", "--nproc-per-node", "1", "--snapshot-every", "5", "--hang-floor-s", "200")
    with running(*flags, script=script) as run:
        assert run.end(300) == 0, run.output
        (late,) = [note["reason"] for note in run.journal("Note") if note["kind"] == "slow_barrier"]
        assert re.match(r"rank 1 on node n1; its process sleeps \(S\); it stands at waits_in_native", late), (
            late
        )
        told = [line for one in run.journal("Judged") for line in one["verdict"]["evidence"]]
        (missing,) = {line for line in told if "did not stop" in line}
        assert re.match(r"rank 1 \(\S+ on n1\): did not stop within 30 s; its process sleeps \(S\)", missing)
        assert "its node reaches n0; its node has " in missing
        assert re.search(r"[\d.e+]+ GiB of memory free", missing), missing


def test_a_rank_without_beats_is_told_as_stopped_when_its_process_is() -> None:
    script = LATE.replace("RANK_1", "is_stopped").replace("RANK_0", "int")
    flags = ("--nproc-per-node", "2", "--hang-floor-s", "60", "--process-timeout-s", "3")
    with running(*flags, "--snapshot-every", "5", script=script) as run:
        assert run.end(200) == 0, run.output
        (verdict,) = [one["verdict"] for one in run.journal("Judged")]
        assert (verdict["cause"], verdict["ranks"]) == ("silent", [1]), run.output
        assert re.search(r"no beat for [\d.]+ s; its process is stopped \(T\)", verdict["evidence"][0])
