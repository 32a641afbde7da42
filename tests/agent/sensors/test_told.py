"""A whole agent process tells its leader what its devices show. The driver's library is played."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from controlplane.core.records import events
from controlplane.core.records.node_checks import DeviceSign, NodeSensed
from tests.agent.support import AgentProcess, Leader, folder, until

if TYPE_CHECKING:
    import pytest

DRIVER = Path(__file__).parents[2] / "chaos/driver"


async def test_every_leader_is_told_and_heartbeats_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    with folder() as base:
        (base / "devices").write_text("remap:1\n")
        monkeypatch.setenv("PYTHONPATH", str(DRIVER))
        monkeypatch.setenv("HOLDFAST_TEST_DEVICES", str(base / "devices"))
        async with Leader() as leader:
            agent = AgentProcess(base, f"127.0.0.1:{leader.port}")
            try:
                told = await until(lambda: [e for e in leader.of(NodeSensed) if e.signs], "a sign")
                first, times = told[-1], len(leader.of(NodeSensed))
                assert first.signs == (DeviceSign("gpu1", "remap_pending", 1.0),)
                assert not any("remapped" in each or "clocks" in each for each in first.unknown)
                beats = len(leader.of(events.NodeBeat))
                await until(lambda: len(leader.of(events.NodeBeat)) > beats + 1, "more heartbeats")
                assert len(leader.of(NodeSensed)) == times, "what has not changed is not told again"
                leader.leave()
                leader.lead(2)
                await until(lambda: len(leader.of(NodeSensed)) > times, "the same for the next leader")
                assert leader.of(NodeSensed)[-1] == first
            finally:
                await agent.end()
