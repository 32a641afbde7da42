"""Where the time of a step went, in every way that DDP knows, with a rank that is slow in a known place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.ipc.step_times import PHASES, StepTimesPage
from tests.sdk.anatomy.kinds_list import KINDS
from tests.sdk.node import Node

if TYPE_CHECKING:
    from tests.sdk.zygote import Zygote

Told = list[dict[str, dict[str, Any]]]
SCRIPT = Path(__file__).with_name("kinds.py")
"""It sleeps for 150 ms in each of 3 steps; all else takes a few ms of CPU time, or is a wait for that."""


def told(zygote: Zygote, anatomy: str) -> Told:
    with Node(zygote, SCRIPT, 2, HOLDFAST_SNAPSHOT_EVERY="1", HOLDFAST_ANATOMY=anatomy) as node:
        node.run()
        found = [json.loads((node.folder / f"told.{rank}.json").read_text()) for rank in range(2)]
        sums = [StepTimesPage(node.members[name].board).read() for name in node.seats]
    if anatomy == "off":
        assert sums == [None, None]
    else:
        assert [each and each.steps for each in sums] == [len(KINDS) * 3] * 2, "as the agent reads it"
    return found


@pytest.fixture(scope="module")
def measured(zygote: Zygote) -> Told:
    return told(zygote, "on")


def test_measuring_changes_no_bit_of_the_weights(zygote: Zygote, measured: Told) -> None:
    plain = told(zygote, "off")
    for rank in range(2):
        digests = {kind: found["digest"] for kind, found in plain[rank].items()}
        assert digests == {kind: found["digest"] for kind, found in measured[rank].items()}
        assert len(set(digests.values())) == len(KINDS)


def most(found: dict[str, Any]) -> str:
    """The phase that took most."""
    return max(PHASES, key=lambda phase: found[f"{phase}_ns"])


@pytest.mark.parametrize("kind", KINDS)
def test_the_slow_rank_works_and_the_other_one_waits(measured: Told, kind: str) -> None:
    quick, slow = (measured[rank][kind] for rank in range(2))
    own = {"backward": "backward", "waits": "other", "snapshot": "snapshot"}.get(kind, "forward")
    # DDP's wait is part of the pass within the pass that re-entrant checkpointing makes.
    other = {"snapshot": "snapshot", "reentrant": "backward"}.get(kind, "communication")
    assert (most(slow), most(quick)) == (own, other), json.dumps((slow, quick))
    assert slow[f"{own}_ns"] > 4 * slow["cpu_ns"], "sleeping takes no CPU time"
    for found in (quick, slow):
        assert found["steps"] == found["covered"] == 3, found
        assert found["wall_ns"] == sum(found[f"{phase}_ns"] for phase in PHASES)
