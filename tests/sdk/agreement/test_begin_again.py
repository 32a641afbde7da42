"""Step 0 is what the script built: a rank that has trained, or half of another state, gives it to nobody."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from tests.sdk.node import Node

if TYPE_CHECKING:
    from holdfast.ipc.frames import Message
    from tests.sdk.zygote import Zygote

SCRIPT = Path(__file__).parents[1] / "train.py"


class Careless(Node):
    """It breaks the core's rule: from generation `since` on, rank 0 is to give what the script built,
    whatever became of that."""

    since = 2

    def resume(self, seats: list[str]) -> Message:
        if len(self.generations) + 1 < self.since:
            return super().resume(seats)
        return {"tier": "fresh", "step": 0, "rank": 0, "member": "", "checkpoint": ""}

    def worn(self, name: str) -> bool:
        return False


def refusal(node: Node) -> str:
    """Why rank 0 did not put the state of the newest generation in place."""
    node.run(lambda: node.seat(0).last("restore_failed"))
    failed = node.seat(0).last("restore_failed")
    assert failed is not None and failed["generation"] == node.generation
    return str(failed["reason"])


def test_trained_weights_are_not_given_as_step_0(zygote: Zygote) -> None:
    with Careless(zygote, SCRIPT, 2) as node:
        node.run(lambda: node.generation == 1 and node.seat(0).last("snapshot"))
        node.interrupt("a test")
        assert "this process has trained on it since" in refusal(node)
        assert node.generation == 2


class CarelessLater(Careless):
    since = 3


def test_half_of_another_state_is_not_given_as_step_0(zygote: Zygote) -> None:
    """The tensors of a snapshot have come in, and then a read has failed."""
    kill = {"rank": 0, "step": 7, "phase": "forward"}
    with CarelessLater(zygote, SCRIPT, 1, KILL=json.dumps([kill]), REFUSE="1") as node:
        node.run(lambda: node.generation == 2)
        assert node.generations[1]["resume"]["tier"] == "memory"
        assert "not today" in refusal(node)
        node.seat(0).said.clear()
        node.interrupt("a test")
        node.run(lambda: node.generation == 3)
        assert "an unfinished restore has overwritten it in this process" in refusal(node)


def test_where_no_state_is_left_all_begin_in_new_processes(zygote: Zygote) -> None:
    """Nothing was kept yet, and the rank that lives is broken amid its first step's optimizer."""
    with Node(zygote, SCRIPT, 2) as node:
        node.run()
        whole = node.results()
    kill = {"rank": 1, "step": 0, "phase": "tail"}
    with Node(zygote, SCRIPT, 2, KILL=json.dumps([kill]), LATE="1") as node:
        node.run()
        assert [line["digest"] for line in node.results()] == [line["digest"] for line in whole]
        if node.generations[1]["resume"]["tier"] == "fresh":
            first = {seat["member"] for seat in node.generations[0]["seats"]}
            assert not first & {seat["member"] for seat in node.generations[1]["seats"]}
