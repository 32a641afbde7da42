"""A loop over steps in every epoch: what the script does between the loops happens once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.sdk.node import Node

if TYPE_CHECKING:
    from tests.sdk.zygote import Zygote

SCRIPT = Path(__file__).with_name("epochs.py")


def trained(zygote: Zygote, changes: str, *kills: dict[str, Any]) -> tuple[set[str], str]:
    """The digests that the ranks have come to, and what they have said."""
    with Node(zygote, SCRIPT, 2, spares=1, CHANGES=changes, KILL=json.dumps(kills)) as node:
        node.run()
        said = "\n".join(member.log.read_text() for member in node.members.values())
        assert all((node.folder / f"killed.{index}").exists() for index in range(len(kills)))
        return {line["digest"] for line in node.results()}, said


WITHIN = {"rank": 1, "step": 6, "phase": "forward"}
FIRST = {"rank": 0, "step": 8, "phase": "forward"}
BETWEEN = {"rank": 1, "step": 8, "phase": "between"}
LAST = {"rank": 0, "step": 12, "phase": "between"}


@pytest.mark.parametrize(
    ("changes", "kills"),
    [
        ("schedule", (WITHIN, FIRST, BETWEEN, LAST)),
        ("options", (WITHIN, FIRST)),
        ("modes", (WITHIN, FIRST)),
        ("buffers", (WITHIN, FIRST)),
    ],
)
def test_what_is_changed_between_two_loops_happens_once(
    zygote: Zygote, changes: str, kills: tuple[dict[str, Any], ...]
) -> None:
    wanted, _ = trained(zygote, changes)
    assert len(wanted) == 1
    for kill in kills:
        found, _ = trained(zygote, changes, kill)
        assert found == wanted, kill


def test_weights_that_are_changed_between_two_loops_are_told_and_refused(zygote: Zygote) -> None:
    wanted, said = trained(zygote, "weights")
    assert said.count("train changes model.0.weight between two loops over steps") == 1
    found, _ = trained(zygote, "weights", {"rank": 1, "step": 4, "phase": "forward"})
    assert found == wanted, "the step right behind the change: it happens again, to the state before it"
    with pytest.raises(AssertionError, match=r"train has changed model\.0\.weight before its first step"):
        trained(zygote, "weights", {"rank": 1, "step": 6, "phase": "forward"})
