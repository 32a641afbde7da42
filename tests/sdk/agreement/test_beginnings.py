"""A process that begins with other values than those that it joins names them, and so do processes that are
all new and go on with a state that others have trained; what differs between ranks from the beginning does
not count."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from holdfast import Session, pids
from holdfast.agreement.beginnings import Beginnings
from tests.sdk.node import Node

if TYPE_CHECKING:
    from pathlib import Path

    from tests.sdk.zygote import Zygote

TRAINING = """
import json
import os
import time
from pathlib import Path

import torch
from holdfast import Session

FOLDER = Path({folder!r})
session = Session()
settings = json.loads((FOLDER / "settings.json").read_text())
table = torch.full((8,), settings["weight"])
start = 5 if (FOLDER / "own.pt").exists() else 0
pid, began, run, folder = os.getpid(), time.time(), time.strftime("%Y%m%d-%H%M%S"), str(FOLDER)
drawn = int.from_bytes(os.urandom(2), "big") / 7
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
session.track(model=model, optimizer=optimizer)

@session.elastic
def train():
    ddp = session.ddp(model)
    for step in session.steps(20):
        if (step, session.rank, session.generation) == (10, 1, 1):
            time.sleep(1000)
        optimizer.zero_grad()
        (ddp(torch.ones(1, 2)).sum() * table[0] * settings["weight"] + start).backward()
        optimizer.step()

train()
"""


@pytest.mark.parametrize("edited", [True, False])
def test_what_is_read_anew_and_differs_is_named(zygote: Zygote, tmp_path: Path, edited: bool) -> None:
    script = tmp_path / "script.py"
    (tmp_path / "settings.json").write_text('{"weight": 0.5, "name": "small"}')
    script.write_text(TRAINING.format(folder=str(tmp_path)))
    with Node(zygote, script, 2) as node:
        node.run(until=lambda: node.generation and node.seat(1).snapshot[1] == 10)
        if edited:
            (tmp_path / "settings.json").write_text('{"weight": 0.25, "name": "small"}')
            (tmp_path / "own.pt").touch()
        os.kill(node.seat(1).pid, signal.SIGKILL)
        node.run()
        said = [
            line
            for member in node.members.values()
            for line in member.log.read_text().splitlines()
            if "has begun later" in line
        ]
    if not edited:
        assert said == []
        return
    (line,) = said
    names = line.partition("what they have: ")[2].partition(". If")[0]
    assert sorted(names.split(", ")) == ["settings['weight']", "start", "table"]


ANEW = """
import json
import os
import random
import time
from pathlib import Path

import torch
import torch.distributed as dist
from holdfast import Session

FOLDER = Path("FOLDER_HERE")
settings = json.loads((FOLDER / "settings.json").read_text())
session = Session(seed=settings["seed"])
rows = (FOLDER / "rows.txt").read_text().split()
pid, began, ticks, run = os.getpid(), time.time(), time.perf_counter(), time.strftime("%Y%m%d-%H%M%S")
torch.manual_seed(settings["seed"])
table = torch.randn(8)
activation = {"relu": torch.nn.ReLU, "tanh": torch.nn.Tanh}[settings["activation"]]()
model = torch.nn.Sequential(torch.nn.Linear(2, 1), activation)
optimizer = torch.optim.SGD(model.parameters(), lr=settings["rate"])
del activation
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=settings["steps"])
session.track(model=model, optimizer=optimizer, schedule=schedule)

@session.elastic
def train():
    compiled = torch.compile(model, backend="eager") if os.environ.get("COMPILED") else model
    ddp = session.ddp(compiled)
    del compiled
    inside = json.loads((FOLDER / "inside.json").read_text())
    start = session.step
    first = model[0].weight
    share = 100 // dist.get_world_size()
    for step in session.steps(20):
        if step == 10 and not (FOLDER / "fell").exists():
            time.sleep(1000)
        optimizer.zero_grad()
        (ddp(torch.ones(1, 2)).sum() * table[0] * len(rows[step])).backward()
        optimizer.step()
        schedule.step()

train()
"""
INSIDE = """
import json
import time
from pathlib import Path

import torch
from holdfast import Session

FOLDER = Path("FOLDER_HERE")
session = Session(seed=1)

@session.elastic
def train():
    inside = json.loads((FOLDER / "inside.json").read_text())
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Dropout(inside["dropout"]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=inside["rate"])
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=inside["steps"])
    del inside
    session.track(model=model, optimizer=optimizer, schedule=schedule)
    ddp = session.ddp(model)
    for step in session.steps(20):
        if step == 10 and not (FOLDER / "fell").exists():
            time.sleep(1000)
        optimizer.zero_grad()
        ddp(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        schedule.step()

train()
"""
LOOPED = """
import json
import time
from pathlib import Path

import torch
from torch.utils.data import ConcatDataset, TensorDataset
from holdfast import Session
from holdfast.integrations.entry import LoopEntry

FOLDER = Path("FOLDER_HERE")
session = Session(seed=1)
entry = LoopEntry(lambda cpu: session, "a framework", "track it", "track it")

@entry.elastic
def train():
    inside = json.loads((FOLDER / "inside.json").read_text())
    torch.manual_seed(1)
    loop, model = entry.loop, torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=inside["rate"])
    loop.told["precision"] = inside["precision"]
    halves = [TensorDataset(torch.full((4,), each)) for each in (1.0, inside["clip"])]
    loop.dataset = ConcatDataset(halves)
    del inside, halves
    loop.session.track(model=model, optimizer=optimizer, loop=loop.progress)
    ddp = session.ddp(model)
    for epoch in loop.epochs(2):
        for batch in loop.batches(lambda _, position: iter(range(position, 10))):
            if (epoch, batch) == (1, 0) and not (FOLDER / "fell").exists():
                time.sleep(1000)
            optimizer.zero_grad()
            ddp(torch.ones(1, 2)).sum().backward()
            optimizer.step()
            loop.moved()

train()
"""
BEFORE = '{"seed": 1, "rate": 0.1, "steps": 20, "activation": "relu"}'
INSIDE_BEFORE = '{"scale": 1.0, "clip": 2.0, "dropout": 0.1, "rate": 0.1, "steps": 20, "precision": "32"}'


def told_anew(
    zygote: Zygote, folder: Path, ranks: int, changes: dict[str, str], *, then: int = 0, text: str = ANEW
) -> list[str]:
    """What ranks say when all of them are killed in step 10, files and variables of the environment (by NAME)
    change, and all begin in new processes.

    `then`: so many begin; 0: as many as before."""
    path = folder / "script.py"
    (folder / "settings.json").write_text(BEFORE)
    (folder / "inside.json").write_text(INSIDE_BEFORE)
    (folder / "chosen.json").write_text('{"way": 0}')
    (folder / "rows.txt").write_text(" ".join(f"row-{each}" for each in range(100)))
    path.write_text(text.replace("FOLDER_HERE", str(folder)))
    with Node(zygote, path, ranks) as node:
        node.run(until=lambda: node.generation and node.seat(0).snapshot[1] == 10 == node.released)
        (folder / "fell").touch()
        for name, text in changes.items():
            if name.isupper():
                node.env[name] = text
            else:
                (folder / name).write_text(text.replace("FOLDER_HERE", str(folder)))
        node.hold = True
        for name in node.seats:
            os.kill(node.members[name].pid, signal.SIGKILL)
        node.run(until=lambda: all(node.members[name].gone for name in node.seats))
        node.hold, node.world_size = False, then or ranks
        node.run()
        lines = [line for each in node.members.values() for line in each.log.read_text().splitlines()]
    return [line for line in lines if "processes are new" in line or "the state of step" in line]


@pytest.mark.parametrize("ranks", [1, 2])
def test_new_processes_name_what_is_not_as_it_was_when_their_state_was_trained(
    zygote: Zygote, tmp_path: Path, ranks: int
) -> None:
    rows = " ".join(f"row-{each}" for each in range(99, -1, -1))
    changes = {
        "settings.json": '{"seed": 2, "rate": 0.2, "steps": 30, "activation": "tanh"}',
        "rows.txt": rows,
    }
    made, options = told_anew(zygote, tmp_path, ranks, changes)
    assert "of step 10 was trained: " in made
    names = made.partition("was trained: ")[2].partition(". If")[0]
    settings = [f"settings['{each}']" for each in ("activation", "rate", "seed", "steps")]
    others = ["rows", "table", "the seed of the Session", "which classes model is made of"]
    assert sorted(names.split(", ")) == sorted([*settings, *others])
    names = options.partition("begun with: ")[2].partition(". Those")[0]
    rates = [f"optimizer.param_groups[0]['{each}']" for each in ("initial_lr", "lr")]
    assert {*rates, "schedule.T_max"} <= {*names.split(", ")}


def test_new_processes_name_another_script(zygote: Zygote, tmp_path: Path) -> None:
    (line,) = told_anew(zygote, tmp_path, 2, {"script.py": ANEW + "# edited"})
    assert "of step 10 was trained by another text or version of script.py than" in line


@pytest.mark.parametrize("ranks", [1, 2])
def test_new_processes_that_find_all_as_it_was_say_nothing(
    zygote: Zygote, tmp_path: Path, ranks: int
) -> None:
    assert told_anew(zygote, tmp_path, ranks, {}) == []


@pytest.mark.parametrize("ranks", [1, 2])
def test_new_processes_name_what_the_function_reads_itself(
    zygote: Zygote, tmp_path: Path, ranks: int
) -> None:
    (line,) = told_anew(zygote, tmp_path, ranks, {"inside.json": INSIDE_BEFORE.replace("2.0", "3.0")})
    assert "of step 10 was trained: inside['clip'] (in train). If" in line


def test_new_processes_name_the_ways_by_which_numbers_are_computed(zygote: Zygote, tmp_path: Path) -> None:
    changes = {"NCCL_ALGO": "Ring", "NCCL_DEBUG": "WARN", "CUBLAS_WORKSPACE_CONFIG": ":16:8"}
    (line,) = told_anew(zygote, tmp_path, 2, changes)
    assert "was trained: os.environ['CUBLAS_WORKSPACE_CONFIG'], os.environ['NCCL_ALGO']. If" in line


@pytest.mark.parametrize("ranks", [1, 2])
def test_new_processes_name_that_they_compile(zygote: Zygote, tmp_path: Path, ranks: int) -> None:
    """The wrapper is in no state: the model is tracked without it."""
    (line,) = told_anew(zygote, tmp_path, ranks, {"COMPILED": "1"})
    assert "was trained: whether torch.compile is used. If" in line


def test_what_follows_from_the_number_of_ranks_is_not_named(zygote: Zygote, tmp_path: Path) -> None:
    assert told_anew(zygote, tmp_path, 3, {}, then=2) == []


@pytest.mark.parametrize("ranks", [1, 2])
def test_options_of_what_the_function_tracks_itself_are_named(
    zygote: Zygote, tmp_path: Path, ranks: int
) -> None:
    changes = {"inside.json": '{"dropout": 0.5, "rate": 0.2, "steps": 30}'}
    made, options = told_anew(zygote, tmp_path, ranks, changes, text=INSIDE)
    assert "of step 10 was trained: Dropout.p in model. If" in made
    names = options.partition("begun with: ")[2].partition(". Those")[0]
    rates = {f"optimizer.param_groups[0]['{each}']" for each in ("initial_lr", "lr")}
    assert {*rates, "schedule.T_max"} <= {*names.split(", ")}


@pytest.mark.parametrize("ranks", [1, 2])
def test_what_the_function_tracks_as_before_is_not_named(zygote: Zygote, tmp_path: Path, ranks: int) -> None:
    assert told_anew(zygote, tmp_path, ranks, {}, text=INSIDE) == []


@pytest.mark.parametrize("ranks", [1, 2])
def test_what_a_framework_was_told_in_the_function_and_its_data_are_named(
    zygote: Zygote, tmp_path: Path, ranks: int
) -> None:
    changes = {"inside.json": '{"clip": 3.0, "rate": 0.2, "precision": "bf16"}'}
    options, made = told_anew(zygote, tmp_path, ranks, changes, text=LOOPED)
    assert "begun with: optimizer.param_groups[0]['lr']. Those" in options
    assert "was trained: precision, data set TensorDataset (2).tensors[0]. If" in made


@pytest.mark.parametrize("ranks", [1, 2])
def test_what_a_framework_was_told_as_before_is_not_named(zygote: Zygote, tmp_path: Path, ranks: int) -> None:
    assert told_anew(zygote, tmp_path, ranks, {}, text=LOOPED) == []


def test_a_number_of_before_the_process_is_none_of_its_clock() -> None:
    """Its clocks begin with the machine: on one that has just started, rates would pass for times."""
    born_s = pids.born(os.getpid()) / os.sysconf("SC_CLK_TCK")

    def counted(*values: float) -> int:
        noted = Beginnings(
            Session().runtime.state, lambda: ((f"v{at}", each) for at, each in enumerate(values))
        )
        noted.note({})
        return noted.numbers()[1]

    of_clock = time.monotonic() - 0.001
    assert counted(born_s - 7.5) == counted(of_clock) + 1 == counted(born_s - 7.5, of_clock)
