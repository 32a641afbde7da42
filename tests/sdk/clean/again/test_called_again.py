"""What an elastic function does before its steps, and does again after a failure, comes to the same or is
named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.sdk.node import Node

if TYPE_CHECKING:
    from tests.sdk.zygote import Zygote

SCRIPT = Path(__file__).with_name("calling.py")
KILLS = [{"rank": 1, "step": 4, "place": "body"}, {"rank": 0, "step": 7, "place": "tail"}]


def trained(zygote: Zygote, kind: str, seed: str, kills: list[dict[str, Any]]) -> tuple[list[str], str]:
    """The digests of the ranks' weights, and what the logs say."""
    with Node(zygote, SCRIPT, 2, spares=1, KIND=kind, SEED=seed, KILL=json.dumps(kills)) as node:
        node.run()
        assert len(node.generations) == 1 + len(kills)
        said = "\n".join(member.log.read_text() for member in node.members.values())
        return [line["digest"] for line in node.results()], said


@pytest.mark.parametrize("seed", ["0", ""])
def test_hooks_methods_and_random_numbers_come_to_the_same(zygote: Zygote, seed: str) -> None:
    """Processes that lived had them twice, and drew other numbers than the one that replaced a dead rank."""
    calm, _ = trained(zygote, "same", seed, [])
    # Without a seed all have to go back to a snapshot: nobody has the random numbers of a dead rank.
    struck, said = trained(zygote, "same", seed, KILLS if seed else KILLS[1:])
    assert "before its steps" not in said
    assert struck == calm


def test_what_another_epoch_begins_with_is_not_compared(zygote: Zygote) -> None:
    """The function leaves out the epoch that is over: its first loop over steps is another one then."""
    calm, _ = trained(zygote, "same", "0", [])
    struck, said = trained(zygote, "same", "0", [{"rank": 0, "step": 8, "place": "start"}])
    assert "before its steps" not in said
    assert struck == calm


def test_what_comes_out_differently_is_named(zygote: Zygote) -> None:
    calm, said = trained(zygote, "other", "0", [])
    (copied,) = [line for line in said.splitlines() if "makes copies of tracked weights" in line]
    assert "start[0]" in copied and "before.reference.0.weight" in copied, "before anything has failed"
    assert "was called again" not in said
    struck, said = trained(zygote, "other", "0", KILLS[1:])
    assert struck != calm
    (other,) = [line for line in said.splitlines() if "what it makes before its steps is not" in line]
    assert "before.reference.0.weight" in other and "start[0]" in other and "before.rate" in other
    assert not any(name in other for name in ("noise", "order", "begun", "first", "wrapped"))
    (twice,) = [line for line in said.splitlines() if "changed once more before its steps" in line]
    assert "config.batch" in twice and "opened" not in twice
