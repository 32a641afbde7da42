"""A step in which a collective failed is never counted, though the script swallows what was raised, and
though its agent tells nothing of it for a while."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.sdk.node import Node, samples

if TYPE_CHECKING:
    from tests.sdk.zygote import Zygote

SCRIPT = Path(__file__).parents[1] / "swallowing.py"
AWAY_S = 2.0
HOWS = [("sync", ""), ("async", ""), ("hooks", ""), ("hooks", "1")]


def outcome(zygote: Zygote, how: str, skip: str, *, kill: bool, away: bool) -> tuple[Any, Any, int, int]:
    """Digests, samples, and how many exceptions were swallowed and how many escaped. `away`: the agent is
    stopped for a while around the kill."""
    plan = {"rank": 1, "step": 6, "hold": away}
    env = {"HOW": how, "SKIP": skip, "KILL": json.dumps(plan if kill else {})}
    with Node(zygote, SCRIPT, 3, spares=1, **env) as node:
        if away:
            node.run((node.folder / "at").exists)  # and nobody waits for the agent any more: all have arenas
            node.run(lambda: all(node.seat(rank).arena is not None for rank in range(3)))
            (node.folder / "go").touch()
            deadline = time.monotonic() + 60
            while not (node.folder / "killed").exists():
                assert time.monotonic() < deadline
                time.sleep(0.002)
            time.sleep(AWAY_S)  # it is the agent who does nothing
        node.run()
        results = node.results()
        assert [line["rank"] for line in results] == [0, 1, 2]
        found = {line["digest"] for line in results}
        counts = [sum(line[what] for line in results) for what in ("swallowed", "escaped")]
        return found, samples(node.folder / "ledger"), counts[0], counts[1]


@pytest.mark.parametrize(("how", "skip"), HOWS, ids=lambda value: value or "steps")
@pytest.mark.parametrize("away", [False, True], ids=["told", "untold"])
def test_a_swallowed_break_is_no_step(zygote: Zygote, how: str, skip: str, away: bool) -> None:
    whole, order, *none = outcome(zygote, how, skip, kill=False, away=False)
    assert len(whole) == 1 and none == [0, 0]
    found, taken, swallowed, escaped = outcome(zygote, how, skip, kill=True, away=away)
    # Where gloo forgets a transfer that its peer's death has cut in half, the wait for it is ended by the
    # session, and not by what a script can swallow.
    assert swallowed + escaped > 0, "no collective was broken: the test shows nothing"
    assert swallowed > 0 or away or how == "async", "nothing was swallowed: the test shows nothing"
    assert found == whole
    assert taken == order
