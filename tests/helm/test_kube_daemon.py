"""A real coordinator that asks a Kubernetes API: a node that is lost is replaced, and forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from controlplane.daemon.kube.leading import LABEL
from controlplane.wire import control_pb2 as pb
from tests.daemon.etcd_fixtures import etcd_server
from tests.daemon.rig import Agent, Coordinator, until
from tests.helm.fake_api import FakeApi, fake_api
from tests.security.authority import Authority

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from controlplane.daemon.etcd.server import PrivateEtcd

__all__ = ["etcd_server"]
SOON: dict[str, Any] = {"node_timeout_s": 7.0, "lease_ttl_s": 5.0, "replace_after_s": 0.0, "retry_s": 0.5}


@pytest.fixture
def kube(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    with fake_api(folder, Authority(folder)) as made:
        for name, value in {**made.env, "POD_NAME": "holdfast-coordinator-0"}.items():
            monkeypatch.setenv(name, value)
        yield made


@pytest.fixture
def coordinator(folder: Path, kube: FakeApi, etcd_server: PrivateEtcd) -> Iterator[Coordinator]:
    asks: dict[str, Any] = dict.fromkeys(
        ("replace_nodes", "cordon_hosts", "watch_hosts", "kube_events", "label_leader"), True
    )
    made = Coordinator(
        folder, etcd_server.endpoint, folder.name, kube_account=str(kube.account), **asks, **SOON
    )
    yield made
    made.end()


def noted(coordinator: Coordinator) -> list[str]:
    """The kinds of all notes in the journal, with their subjects."""
    bodies = [line["body"] for line in coordinator.lines() if line["type"] == "Note"]
    return [f"{body['kind']} {body['subject']}" for body in bodies]


async def test_a_lost_node_is_replaced_and_told_and_forgotten(
    coordinator: Coordinator, kube: FakeApi
) -> None:
    kube.add_pod("n1", address="127.0.0.1", host="host-1")
    kube.fail(500, times=2)
    await coordinator.start()
    await coordinator.leads()
    async with Agent(coordinator.listen, "n1") as agent:
        assert (await agent.hello(coordinator.settings["cluster"])).WhichOneof("body") == "welcome"
    await until(lambda: kube.deleted, 60)
    ((name, options),) = kube.deleted
    assert (name, options["gracePeriodSeconds"]) == ("n1", 0)
    assert kube.hosts["host-1"]["spec"]["unschedulable"] is True
    await until(lambda: "node_forgotten n1" in noted(coordinator), 30)
    assert "node_replaced n1" in noted(coordinator)
    reasons = {event["reason"]: event["regarding"]["name"] for event in kube.events.values()}
    assert reasons["NodeReplacing"] == "n1"
    assert reasons["NodesLost"] == "holdfast-coordinator-0"
    assert coordinator.samples()['holdfast_kubernetes_requests_total{outcome="ok",what="pod_delete"}'] == 1


async def test_a_taint_drains_the_nodes_of_its_host(coordinator: Coordinator, kube: FakeApi) -> None:
    await coordinator.start()
    await coordinator.leads()
    cluster = coordinator.settings["cluster"]
    async with Agent(coordinator.listen, "n1") as one, Agent(coordinator.listen, "n2") as two:
        for agent, host in ((one, "host-1"), (two, "host-2")):
            answer = await agent.hello(cluster, domain=host)
            assert answer.WhichOneof("body") == "welcome"
        await until(lambda: kube.count("GET", "watch=1"))
        kube.mark("host-1", taints=[{"key": "maintenance", "effect": "NoExecute"}])
        order = await one.call.read()
        assert isinstance(order, pb.CoordinatorMessage)
        assert "its host is tainted" in order.drained.reason
        assert not [note for note in noted(coordinator) if note == "draining n2"]
        kube.mark("host-1", taints=[])
        await until(lambda: "uncordoned n1" in noted(coordinator))


async def test_the_pod_that_leads_is_labelled(coordinator: Coordinator, kube: FakeApi) -> None:
    labels = kube.add_pod("holdfast-coordinator-0")["metadata"]
    labels["labels"][LABEL] = "yes"  # left by a life that was killed
    etcd, coordinator.settings["etcd"] = coordinator.settings["etcd"], "127.0.0.1:1"
    await coordinator.start()
    await until(lambda: LABEL not in labels["labels"])
    coordinator.end()
    coordinator.settings["etcd"] = etcd
    await coordinator.start()
    await until(lambda: labels["labels"].get(LABEL) == "yes")
    coordinator.end()
    assert LABEL not in labels["labels"]
