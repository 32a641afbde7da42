"""What ranks show of their progress: what a broken step teaches, and how collectives are counted."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.sdk.node import Node

if TYPE_CHECKING:
    from tests.sdk.zygote import Zygote

SCRIPT, COUNTING = Path(__file__).parents[1] / "small.py", Path(__file__).with_name("counting.py")
HANG_S = 3.0


def test_a_step_that_was_broken_off_teaches_nothing(zygote: Zygote) -> None:
    """Rank 0 waits for rank 1, which rests, until that one is replaced: no step takes so long."""
    with Node(zygote, SCRIPT, 2, spares=1, MODE="rest") as node:
        node.run(lambda: node.generation == 1 and all(node.seat(rank).board.step == 3 for rank in (0, 1)))
        deadline = time.monotonic() + HANG_S
        node.run(lambda: time.monotonic() > deadline)
        os.kill(node.seat(1).pid, signal.SIGKILL)
        node.run(lambda: node.generation == 2 and node.seat(0).finished >= 0)
        _, gaps = node.seat(0).board.gaps(0)
        node.run()
        judged = [spent for activity, spent in gaps if activity != "none"]
        assert judged and max(judged) < HANG_S, gaps


def test_only_collectives_are_counted_and_those_of_an_earlier_group_are_not(zygote: Zygote) -> None:
    """Two of three ranks send each other something: all three have entered as many collectives."""
    with Node(zygote, COUNTING, 3) as node:
        node.run()
        told = [json.loads((node.folder / f"told.{rank}").read_text()) for rank in range(3)]
    for counts in told:
        assert [(each["sequence"], each["operation"]) for each in counts] == [
            (0, ""), (2, "gloo:all_reduce"), (0, ""), (1, "gloo:broadcast"),
        ]  # fmt: skip
