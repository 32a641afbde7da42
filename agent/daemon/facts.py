"""Make the facts that the agent's core works with, from the settings of the agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.deciding.node_state import AgentFacts
from agent.deciding.progress import HangLimits
from controlplane.setting import coordinators
from controlplane.storage_settings import Allowed

if TYPE_CHECKING:
    from controlplane.settings import AgentSettings


def facts_of(settings: AgentSettings, name: str, incarnation: int) -> AgentFacts:
    """Return what the core is told once."""
    return AgentFacts(
        node=name,
        incarnation=incarnation,
        process_timeout_s=settings.process_timeout_s,
        device_timeout_s=settings.device_timeout_s,
        fence_after_s=settings.fence_after_s,
        limits=HangLimits(settings.hang_factor, settings.hang_floor_s, settings.hang_first_s),
        coordinators=coordinators(settings.coordinator),
        storages=Allowed(settings.storage_allowed),
    )
