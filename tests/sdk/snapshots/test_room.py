"""When a process asks for room for its snapshots."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from tests.sdk.node import Node

if TYPE_CHECKING:
    from tests.sdk.zygote import Zygote

SCRIPT = Path(__file__).parents[1] / "train.py"


def asked(zygote: Zygote, *victims: int) -> list[tuple[str, str]]:
    """What each process of the second generation that was not in the first one said first: that it asks for
    room ("tracked"), or that its first step is complete ("started"). These ranks are killed."""
    kills = [{"rank": rank, "step": 7, "phase": "forward"} for rank in victims]
    with Node(zygote, SCRIPT, 2, spares=1, KILL=json.dumps(kills)) as node:
        node.run()
        first, second = ({seat["member"] for seat in formed["seats"]} for formed in node.generations)
        said = [[each["op"] for each in node.members[name].said] for name in sorted(second - first)]
    both = [[op for op in ops if op in ("tracked", "started")] for ops in said]
    return [(ops[0], ops[1]) for ops in both]


def test_a_process_that_joins_asks_after_its_first_step(zygote: Zygote) -> None:
    """The others, which hold all that it holds, wait for that step."""
    assert asked(zygote, 1) == [("started", "tracked")]


def test_where_all_are_new_they_ask_at_once(zygote: Zygote) -> None:
    """No other process holds a snapshot of what they train."""
    assert asked(zygote, 0, 1) == [("tracked", "started")] * 2
