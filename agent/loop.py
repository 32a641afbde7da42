"""The agent's shell."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from controlplane.settings import AgentSettings


async def serve(settings: AgentSettings) -> int:
    """Be one node's agent until SIGTERM or SIGINT. The exit code: 0 orderly, 1 with the reason logged."""
    raise SystemExit(f"agent {settings.node}: under construction")
