"""Real ranks over gloo, of which one ends: their logs name it, its line, and what followed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """
import logging, os, signal, sys
import torch
import torch.distributed as dist

rank, how, store = int(sys.argv[1]), sys.argv[2], sys.argv[3]
logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)

def load(step):
    if rank == 1 and step == 15:
        if how == "raise":
            raise ValueError("sample 17 has no label")
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "chain":
            try:
                open("/nowhere/shard.bin")
            except OSError as error:
                raise RuntimeError("the shard cannot be read") from error
    return torch.ones(4) * rank

dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=3)
for step in range(20):
    value = load(step)
    dist.all_reduce(value)
    logging.info("step %d loss %s", step, value.sum().item())
"""


def train(folder: Path, how: str) -> list[int]:
    """Train on three ranks, each with a log of its own; the exit codes."""
    (script := folder / "train.py").write_text(SCRIPT)
    (folder / "logs").mkdir()
    ranks = []
    for rank in range(3):
        with (folder / "logs" / f"rank{rank}.log").open("wb") as log:
            words = [sys.executable, str(script), str(rank), how, str(folder / "store")]
            ranks.append(subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT))
    return [rank.wait() for rank in ranks]


def said(folder: Path) -> dict[str, Any]:
    words = [sys.executable, "-m", "controlplane", "doctor", "--logs", str(folder / "logs"), "--json"]
    found: dict[str, Any] = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)
    return found


@pytest.mark.parametrize(
    ("how", "cause", "words"),
    [("raise", "exception", "raise ValueError"), ("chain", "file_not_found", 'open("/nowhere')],
)
def test_the_rank_that_raised_is_named_with_its_line(
    how: str, cause: str, words: str, tmp_path: Path
) -> None:
    # A process that ends with a broken gloo group may be aborted by torch after Python's traceback.
    assert set(train(tmp_path, how)) <= {1, -signal.SIGABRT}
    found = said(tmp_path)
    line = next(at for at, text in enumerate(SCRIPT.split("\n"), 1) if words in text)
    first = found["first"]
    assert (first["rank"], first["cause"], first["line"]) == (1, cause, line)
    assert (first["file"], first["step"]) == (str(tmp_path / "train.py"), 14)
    assert {(each["rank"], each["cause"]) for each in found["cascade"]} == {
        (0, "connection_lost"),
        (2, "connection_lost"),
    }
    assert found["restart"] is False


def test_the_rank_that_was_killed_is_named_although_its_log_says_nothing(tmp_path: Path) -> None:
    codes = train(tmp_path, "kill")
    assert codes[1] == -9 and codes[0] != 0 and codes[2] != 0
    found = said(tmp_path)
    assert (found["first"]["rank"], found["first"]["cause"], found["restart"]) == (1, "killed", True)
    assert {each["rank"] for each in found["cascade"]} == {0, 2}
