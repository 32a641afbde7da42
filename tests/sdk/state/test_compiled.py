"""What torch.compile makes depends on the call alone: the process in place of a killed one computes the same.

All are real ranks and dynamo's own decisions; only the backend is a small one (`compiling`)."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.sdk.node import Node

if TYPE_CHECKING:
    from tests.sdk.zygote import Zygote

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = Path(__file__).with_name("compiling.py")
AFTER_A_TAIL = 5


@dataclass
class Outcome:
    digests: list[str]
    graphs: list[list[bool]]
    inexact: list[str]
    activities: list[list[str]]


def outcome(zygote: Zygote, mode: str, kill_at: int = -1) -> Outcome:
    with Node(zygote, SCRIPT, 2, spares=1, MODE=mode, KILL_AT=str(kill_at)) as node:
        node.run()
        assert len(node.incidents) == (kill_at >= 0)
        results = node.results()
        said = [message for member in node.members.values() for message in member.said]
        inexact = [message["inexact"] for message in said if message["op"] == "started"]
        return Outcome(
            [each["digest"] for each in results],
            [each["graphs"] for each in results],
            [each for each in inexact if each],
            [each["activities"] for each in results],
        )


@pytest.mark.parametrize("mode", ["bare", "wrapped"])
def test_a_process_that_has_met_other_sizes_computes_the_same(zygote: Zygote, mode: str) -> None:
    undisturbed, killed = outcome(zygote, mode), outcome(zygote, mode, AFTER_A_TAIL)
    assert killed.digests == undisturbed.digests
    assert len(undisturbed.graphs[0]) > 1 and not any(undisturbed.graphs[0]), "a graph for each size"
    assert not killed.inexact and not undisturbed.inexact
    assert undisturbed.activities == killed.activities == [["compile"]] * 2, "no step is taken for hung by it"


def test_code_for_any_size_is_reported_after_a_failure(zygote: Zygote) -> None:
    undisturbed = outcome(zygote, "dynamic")
    assert any(undisturbed.graphs[0]) and not undisturbed.inexact
    killed = outcome(zygote, "dynamic", AFTER_A_TAIL)
    assert len(killed.inexact) == 2, "both ranks say so"
    assert all("torch._dynamo.config.assume_static_by_default=False" in each for each in killed.inexact)


def test_a_call_that_would_run_uncompiled_is_refused() -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    done = subprocess.run(
        [sys.executable, str(SCRIPT)],
        env={**clean, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OUT": "/nowhere", "MODE": "sizes"},
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    assert done.returncode == 1
    assert "SessionError: torch.compile: " in done.stderr, done.stderr
    assert "recompile_limit" in done.stderr.rpartition("SessionError")[2]
