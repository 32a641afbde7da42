"""What a step that breaks off leaves in the processes that live is named."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.sdk.node import Node

if TYPE_CHECKING:
    from tests.sdk.zygote import Zygote

SCRIPT = Path(__file__).with_name("episodes.py")


@pytest.mark.parametrize("cleared", ["begin", "end"])
def test_lists_that_a_broken_step_has_filled_are_named(zygote: Zygote, cleared: str) -> None:
    with Node(zygote, SCRIPT, 2, spares=1, CLEARED=cleared) as node:
        node.run()
        said = "\n".join(member.log.read_text() for member in node.members.values())
        assert (node.folder / "killed").exists()
    named = "a step broke off, and what is not tracked is not as it was: policy.rewards"
    assert said.count(named) == (cleared == "end")
