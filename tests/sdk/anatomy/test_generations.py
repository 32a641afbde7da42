"""Steps that break, and recoveries, are in no sum."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.ipc.step_times import StepSums, StepTimesPage
from tests.sdk.node import Node

if TYPE_CHECKING:
    from tests.sdk.node import Member
    from tests.sdk.zygote import Zygote

SCRIPT = Path(__file__).parents[1] / "small.py"
HANG_S = 3.0


def sums(member: Member) -> StepSums | None:
    return StepTimesPage(member.board).read()


def test_a_step_that_was_broken_off_and_the_recovery_are_not_counted(zygote: Zygote) -> None:
    """Rank 0 waits in step 3 for rank 1, which rests, until that one is replaced, which takes long too."""
    with Node(zygote, SCRIPT, 2, spares=1, MODE="rest") as node:
        node.run(lambda: node.generation == 1 and all(node.seat(rank).board.step == 3 for rank in (0, 1)))
        survivor, lost = node.seat(0), node.seat(1)
        wait(node)
        node.hold = True
        os.kill(lost.pid, signal.SIGKILL)
        node.run(lambda: lost.gone)
        wait(node)
        node.hold = False
        node.run()
        found, spare = sums(survivor), sums(node.seat(1))
    assert found is not None and spare is not None
    assert (found.steps, found.last_step, found.generation) == (6, 5, 2), "three in each generation"
    assert (spare.steps, spare.last_step, spare.generation) == (3, 5, 2)
    assert found.longest_ns < HANG_S * 1e9 > spare.longest_ns
    assert found.wall_ns < 2 * HANG_S * 1e9


def wait(node: Node) -> None:
    deadline = time.monotonic() + HANG_S
    node.run(lambda: time.monotonic() > deadline)
