"""Checkpoints that a script asks for: the handle always learns what became of them."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.sdk.node import Node
from tests.sdk.test_session import alone

if TYPE_CHECKING:
    from holdfast.ipc.frames import Message
    from tests.sdk.zygote import Zygote

SCRIPT = Path(__file__).with_name("asks.py")
WITHIN = "the checkpoint is made after the step"


def asked(node: Node, rank: int = 0) -> list[Message]:
    return [message for message in node.seat(rank).said if message["op"] == "checkpoint"]


def tell(node: Node, rank: int, **answer: Any) -> None:
    request = asked(node, rank)[-1]["request"]
    base = {"op": "checkpoint_told", "request": request, "reason": "", "checkpoint": ""}
    node.say(node.seat(rank), base | answer)


def told(node: Node, rank: int = 0) -> list[Any]:
    found: list[Any] = node.results()[rank]["told"]
    return found


def test_committed_and_skipped(zygote: Zygote) -> None:
    with Node(zygote, SCRIPT, 2) as node:
        node.run(lambda: node.generation == 1 and asked(node, 0) and asked(node, 1))
        for rank in (0, 1):
            (message,) = asked(node, rank)
            assert (message["step"], message["generation"]) == (3, 1)
            snapshot = node.seat(rank).last("snapshot")
            assert snapshot is not None and snapshot["step"] == 3 and 0 < snapshot["stall_s"] < 10
        tell(node, 0, request="no such")
        tell(node, 0, outcome="committed", checkpoint="3-1")
        tell(node, 1, outcome="skipped", reason="no storage")
        node.run()
        assert told(node, 0)[0].startswith(WITHIN), "waiting within the step would wait for ever"
        assert told(node, 0)[1:] == [["committed", "", "3-1"]]
        assert told(node, 1)[1:] == [["skipped", "no storage", ""]]


def test_asked_again_after_the_agent_was_away(zygote: Zygote) -> None:
    with Node(zygote, SCRIPT, 1) as node:
        node.run(lambda: node.generation == 1 and bool(asked(node)))
        node.deafen()
        node.listen_again()
        node.run(lambda: len(asked(node)) == 2)
        first, second = asked(node)
        assert first["request"] == second["request"]
        tell(node, 0, outcome="committed", checkpoint="3-1")
        node.run()
        assert told(node)[1:] == [["committed", "", "3-1"]]
        node_said = [message["op"] for message in node.members["job.0"].said]
        assert node_said.count("checkpoint") == 2, "an answered request is not repeated"


def test_the_end_of_the_generation_is_its_end(zygote: Zygote) -> None:
    with Node(zygote, SCRIPT, 2) as node:
        node.run(lambda: node.generation == 1 and asked(node, 0) and asked(node, 1))
        os.kill(node.seat(1).pid, signal.SIGKILL)
        node.run()
        assert told(node)[1] == ["failed", "generation 1 ended before the checkpoint was committed", ""]


def test_a_state_that_cannot_be_had_is_a_skip(zygote: Zygote) -> None:
    with Node(zygote, SCRIPT, 1, MODE="raise") as node:
        node.run()
        (outcome, reason, _) = told(node)[1]
        assert outcome == "skipped" and "not at this step" in reason
        skipped = node.members["job.0"].last("snapshot_skipped")
        assert skipped is not None and "not at this step" in skipped["reason"]
        assert node.results()[0]["step"] == 8 and not asked(node)


def test_between_steps_it_is_made_at_once(zygote: Zygote) -> None:
    with Node(zygote, SCRIPT, 1, MODE="after") as node:
        node.run(lambda: node.generation == 1 and bool(asked(node)))
        tell(node, 0, outcome="failed", reason="the disk is full")
        node.run(lambda: len(asked(node)) == 2)
        assert asked(node)[-1]["step"] == 8
        tell(node, 0, outcome="nonsense")
        node.run()
        assert told(node)[1] == ["failed", "the disk is full", ""]
        assert told(node)[2][0] == "failed" and "unknown outcome" in told(node)[2][1]


def test_without_an_agent_it_is_skipped(zygote: Zygote, tmp_path: Path) -> None:
    code, result, log = alone(zygote, tmp_path, SCRIPT)
    assert code == 0, log
    assert result["told"][-1][0] == "skipped" and "no agent" in result["told"][-1][1]


def test_unseeded_randomness_goes_on_from_the_ranks_own_snapshot(zygote: Zygote) -> None:
    with Node(zygote, SCRIPT, 1, MODE="unseeded") as node:
        node.run(lambda: node.generation == 1 and bool(asked(node)))
        tell(node, 0, outcome="skipped")
        node.run(lambda: node.generation == 2)
        resumed = node.generations[1]["resume"]  # a slot that is released late costs the newest step or two
        assert resumed["tier"] == "memory" and 3 <= resumed["step"] <= 5
        node.run()
        drawn: dict[int, set[str]] = {}
        for line in (node.folder / "noise").read_text().splitlines():
            step, number = line.split()
            drawn.setdefault(int(step), set()).add(number)
        assert [len(drawn[step]) for step in range(8)] == [1] * 8, "the second life draws what the first drew"
        assert len(set().union(*drawn.values())) == 8
