"""Checkpoints of a job that the cluster does not know (its etcd was lost): no others come beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.records import events
from tests.agent.saving_support import Site

if TYPE_CHECKING:
    from tests.agent.support import AgentProcess, Leader


async def test_a_storage_with_another_life_of_the_job_is_refused(agent: AgentProcess, leader: Leader) -> None:
    site = Site(agent, leader)
    await site.keep("j.1", 1, 4, 8)
    await site.saved("j.1", 8)
    part = await site.answer(site.persist("j.1", 4), events.PartPersisted)
    refused = await site.answer(site.seal([part.part]), events.PersistFailed)
    assert "another life of job" in refused.reason and "the newest 8-1" in refused.reason
    assert f"holdfast checkpoint adopt file://{site.storage} --job" in refused.reason
