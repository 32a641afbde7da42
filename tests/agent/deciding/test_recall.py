"""What a new agent takes up from the one before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agent.deciding.member import LocalMember
from agent.ranks.members import MemberMemory
from controlplane.core.records.model import MemberPhase, MemberStatus

if TYPE_CHECKING:
    from agent.host.paths import Paths


@pytest.mark.parametrize(
    ("phase", "formed"),
    [(MemberPhase.READY, 0), (MemberPhase.STARTING, 0), (MemberPhase.RUNNING, 4), (MemberPhase.FINISHED, 4)],
)
def test_a_member_that_has_formed_nothing_is_told_to_form_again(
    paths: Paths, phase: MemberPhase, formed: int
) -> None:
    """A status before the first group may name the generation that the member was launched under."""
    before, memory = LocalMember(MemberStatus("j.1", "j", phase, generation=4)), MemberMemory(paths)
    memory.make(before)
    memory.keep(before.status)
    memory.close([before])
    (member,) = MemberMemory(paths).recall()
    assert (member.name, member.formed) == ("j.1", formed)
    memory.close([member])
