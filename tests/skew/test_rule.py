"""Which versions meet: one rule, held against the recorded version before, a coordinator, pages and chart."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest

from controlplane.wire import control_pb2 as pb
from controlplane.wire.versions import OLDEST_TAKEN, ORDER, PROTOCOL_VERSION, refusal
from tests.daemon.rig import Agent
from tests.helm.chart import ETCD, JOB, one, rendered, templates
from tests.skew import streams
from tests.skew.between import UP

if TYPE_CHECKING:
    from tests.daemon.rig import Coordinator

ROOT = Path(__file__).parents[2]
AGENT_OLD, AGENT_NEW = "upgrade the agent", "upgrade the coordinators"


def test_the_version_before_is_the_oldest_that_is_taken() -> None:
    spoken = {
        pb.AgentMessage.FromString(streams.of(said, UP)[0]).hello.protocol_version
        for said in streams.read().values()
    }
    assert spoken == {OLDEST_TAKEN}
    assert PROTOCOL_VERSION - OLDEST_TAKEN in (0, 1)


@pytest.mark.parametrize(
    ("version", "mend"),
    [
        *((version, "") for version in range(OLDEST_TAKEN, PROTOCOL_VERSION + 1)),
        (OLDEST_TAKEN - 1, AGENT_OLD),
        (PROTOCOL_VERSION + 1, AGENT_NEW),
        (2**31 - 1, AGENT_NEW),
        (-1, AGENT_OLD),
    ],
)
async def test_which_versions_meet(
    shared_coordinator: Coordinator, shared_cluster: str, version: int, mend: str
) -> None:
    async with Agent(shared_coordinator.listen, f"v{version % 2**31}") as agent:
        answer = await agent.hello(shared_cluster, protocol_version=version)
        if not mend:
            assert answer.WhichOneof("body") == "welcome"
            assert refusal(version) == ""
            return
        assert answer.WhichOneof("body") == "refused"
        assert not answer.refused.retry
        assert mend in answer.refused.reason and ORDER in answer.refused.reason
        assert f"speaks protocol {version}, this coordinator {PROTOCOL_VERSION}" in answer.refused.reason
        assert (await agent.ended())[0] is grpc.StatusCode.OK


def test_the_pages_and_the_chart_say_the_order() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    section = page.partition("## Upgrade and roll back")[2].partition("\n## ")[0]
    assert ORDER in section and "one version at a time" in section
    assert section.index("**Coordinators.**") < section.index("**Agents**") < section.index("**Ranks**")
    notes = templates(ETCD)["holdfast/templates/NOTES.txt"]
    assert ORDER in notes


def test_an_upgrade_of_the_chart_replaces_coordinators_and_leaves_pods_of_jobs_alone() -> None:
    found = rendered({**ETCD, "jobs": {"j": {**JOB, "kind": "StatefulSet"}}})
    nodes = one(found, "StatefulSet", "j-nodes")["spec"]
    assert nodes["updateStrategy"] == {"type": "OnDelete"}
    coordinators = one(found, "StatefulSet", "r-holdfast-coordinator")["spec"]
    assert "updateStrategy" not in coordinators  # Kubernetes' own: one by one
