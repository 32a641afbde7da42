"""What a new agent takes up from the one before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agent.members import Members
from controlplane.core.model import MemberPhase, MemberStatus

if TYPE_CHECKING:
    from agent.paths import Paths


@pytest.mark.parametrize(
    ("phase", "formed"),
    [(MemberPhase.READY, 0), (MemberPhase.STARTING, 0), (MemberPhase.RUNNING, 4), (MemberPhase.FINISHED, 4)],
)
def test_a_member_that_has_formed_nothing_is_told_to_form_again(
    paths: Paths, phase: MemberPhase, formed: int
) -> None:
    """A status before the first group may name the generation that the member was launched under."""
    before = Members(paths, lambda _: None)
    before.add(MemberStatus("j.1", "j", phase, generation=4))
    before.close()
    after = Members(paths, lambda _: None)
    after.recall()
    member = after.get("j.1")
    assert member is not None and member.formed == formed
    after.close()
