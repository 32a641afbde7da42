"""What ranks that run different code are told of; `tests/e2e/test_other_text.py` has the real ones."""

from __future__ import annotations

import os
import signal
import sys
import types
from typing import TYPE_CHECKING

from holdfast.agreement.running_code import described, found
from tests.sdk.node import Node

if TYPE_CHECKING:
    from pathlib import Path

    from tests.sdk.zygote import Zygote

BASE = {"Python": "version 3.11.7", "numpy": "version 2.1.0", "train.py": "aa", "model/layers.py": "bb"}


def test_files_and_versions_are_named_with_the_ranks() -> None:
    edited = BASE | {"train.py": "cc"}
    upgraded = BASE | {"numpy": "version 1.26.4", "model/layers.py": "dd"}
    assert described([[0, 1, 2], [3], [4, 5]], [BASE, edited, upgraded]) == (
        "rank 3 runs another train.py than rank 0; "
        "ranks 4, 5 run another numpy (version 1.26.4, not 2.1.0), model/layers.py than rank 0"
    )


def test_many_names_are_counted() -> None:
    one, other = ({f"m{at}.py": text for at in range(5)} for text in "ab")
    assert described([[1, 2], [0]], [one, other]) == (
        "rank 0 runs another m0.py, m1.py, m2.py and 2 more than rank 1"
    )


def test_what_only_some_ranks_import_is_no_difference() -> None:
    assert described([[1, 2], [0]], [BASE, BASE | {"report.py": "ee", "wandb": "version 0.1"}]) == ""


def test_a_file_counts_as_it_was_first_seen(tmp_path: Path) -> None:
    path = tmp_path / "layers.py"
    path.write_text("A = 1")
    module = types.ModuleType("of_this_test.layers")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    try:
        first = found({})
        assert first["of_this_test/layers.py"] and first["Python"].startswith("version 3.")
        path.write_text("A = 2")
        assert "of_this_test/layers.py" not in found(first), "it is known, as it was"
        assert found({})["of_this_test/layers.py"] != first["of_this_test/layers.py"]
    finally:
        del sys.modules[module.__name__]


TRAINING = """
import sys
import time
import torch
from holdfast import Session
session = Session()
sys.path.insert(0, {folder!r})
import layers_of_this_test
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
        ddp(torch.ones(1, 2)).sum().backward()
        optimizer.step()

train()
"""


def test_a_spare_runs_what_it_has_imported_whatever_becomes_of_the_file(
    zygote: Zygote, tmp_path: Path
) -> None:
    layers, script = tmp_path / "layers_of_this_test.py", tmp_path / "script.py"
    layers.write_text("A = 1")
    script.write_text(TRAINING.format(folder=str(tmp_path)))
    with Node(zygote, script, 2, spares=1) as node:
        spare = list(node.members.values())[2]
        node.run(until=lambda: spare.last("ready") and node.generation and node.seat(1).snapshot[1] == 10)
        layers.write_text("A = 2")
        os.kill(node.seat(1).pid, signal.SIGKILL)
        node.run()
        started = [member.last("started") for member in node.members.values()]
        assert [each["inexact"] for each in started if each and each["generation"] == 2] == ["", ""]
