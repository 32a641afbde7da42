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


def test_a_wrapper_of_an_earlier_generation_is_refused_by_name(zygote: Zygote) -> None:
    """Its gradients went to a group that is gone: steps broke again and again, with an error of gloo's."""
    with Node(zygote, SCRIPT.with_name("kept_wrapper.py"), 2, spares=1) as node:
        node.run()
        assert (node.folder / "killed").exists()
        told = {each.name: each.read_text() for each in node.folder.glob("told.*")}
    assert list(told) == ["told.0"]
    assert told["told.0"].startswith("step 3: ddp: this wrapper of a model is of an earlier generation")
