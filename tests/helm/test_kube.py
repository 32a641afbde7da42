"""What the coordinator asks of Kubernetes, against a small API that checks what it is asked."""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from controlplane.core.records import effects as fx
from controlplane.core.records import events as ev
from controlplane.core.records.model import Cause, JobPhase, JobState, Plan, Scope, Strategy, Verdict
from controlplane.daemon.kube.account import ServiceAccount
from controlplane.daemon.kube.api import Api, KubeError
from controlplane.daemon.kube.event_writer import BURST, SERIES_S, UPDATE_S, EventWriter
from controlplane.daemon.kube.replacer import WHY, Replacer
from controlplane.daemon.kube.taints import HostWatch, why
from controlplane.kube_settings import KubeSettings
from controlplane.settings import SettingsError
from tests.daemon.rig import until
from tests.helm.fake_api import FakeApi, fake_api
from tests.security.authority import Authority

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from controlplane.core.records.events import Event


@pytest.fixture
def kube(folder: Path) -> Iterator[FakeApi]:
    with fake_api(folder, Authority(folder)) as made:
        yield made


@asynccontextmanager
async def client(kube: FakeApi, **options: Any) -> AsyncIterator[Api]:
    account = ServiceAccount.here(str(kube.account), kube.env)
    api = Api(account, **{"jitter": lambda: 0.0, **options})
    try:
        yield api
    finally:
        await api.close()


def order(
    node: str = "train-nodes-1-abcde", address: str = "10.0.0.7", *, gone: bool = False
) -> fx.ReplaceNode:
    return fx.ReplaceNode(address, node, 7, "host-1", "its devices will not do: gpu3: XID 79", gone)


async def replaced(
    api: Api, effect: fx.ReplaceNode, *, cordon: bool = False, force: bool = True
) -> ev.NodeReplaced:
    """Carry it out, and wait for the answer."""
    said: list[Event] = []
    replacer = Replacer(api, said.append, cordon=cordon, force=force)
    replacer.replace(effect)
    replacer.replace(effect)  # the core may say it again
    (answer,) = await until(lambda: said)
    await replacer.close()
    assert isinstance(answer, ev.NodeReplaced)
    assert (answer.node, answer.incarnation) == (effect.node, effect.incarnation)
    return answer


async def test_the_pod_of_a_node_is_deleted_and_its_host_cordoned(kube: FakeApi) -> None:
    pod = kube.add_pod("train-nodes-1-abcde")
    async with client(kube) as api:
        answer = await replaced(api, order(), cordon=True)
    assert answer.ok
    assert answer.reason == "pod deleted, its host host-1 cordoned"
    ((name, options),) = kube.deleted
    assert name == "train-nodes-1-abcde"
    assert options["preconditions"] == {"uid": pod["metadata"]["uid"]}
    assert "gracePeriodSeconds" not in options  # its agent is told, and leaves in order
    assert kube.hosts["host-1"]["spec"] == {"unschedulable": True}
    assert "XID 79" in kube.hosts["host-1"]["metadata"]["annotations"][WHY]


@pytest.mark.parametrize(("force", "grace"), [(True, 0), (False, None)])
async def test_the_pod_of_a_silent_node_is_taken_out_at_once_if_so_wanted(
    kube: FakeApi, force: bool, grace: int | None
) -> None:
    kube.add_pod("train-nodes-1-abcde")
    async with client(kube) as api:
        assert (await replaced(api, order(gone=True), force=force)).ok
    assert kube.deleted[0][1].get("gracePeriodSeconds") == grace
    assert kube.count("PATCH") == 0


async def test_a_pod_that_is_gone_or_another_is_left_alone(kube: FakeApi) -> None:
    kube.add_pod("train-nodes-2", address="10.0.0.9")
    kube.add_pod("web-0", app="nginx")
    async with client(kube) as api:
        answer = await replaced(api, order("train-nodes-1-abcde"))
        assert answer.ok and "no pod of this name" in answer.reason
        answer = await replaced(api, order("train-nodes-2", address="10.0.0.7"))
        assert answer.ok and "another pod already has this name, at 10.0.0.9" in answer.reason
        answer = await replaced(api, order("web-0"))
        assert not answer.ok and "left alone" in answer.reason
    assert kube.deleted == []


async def test_a_pod_that_is_replaced_in_between_is_not_deleted(kube: FakeApi) -> None:
    """Between our look and our order its successor has taken the name: the uid does not fit any more."""
    first = kube.add_pod("train-nodes-2")
    async with client(kube) as api:
        kube.troubles += [lambda: None, lambda: _again(kube)]
        answer = await replaced(api, order("train-nodes-2"))
    assert answer.ok
    assert kube.deleted == []
    assert kube.pods["train-nodes-2"]["metadata"]["uid"] != first["metadata"]["uid"]


def _again(kube: FakeApi) -> None:
    kube.add_pod("train-nodes-2")


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_passing_troubles_are_tried_again(kube: FakeApi, status: int) -> None:
    kube.add_pod("train-nodes-1-abcde")
    kube.fail(status, times=2)
    counted: list[tuple[str, str]] = []
    async with client(kube, count=lambda what, outcome: counted.append((what, outcome))) as api:
        assert (await replaced(api, order())).ok
    assert counted == [
        ("pod_get", str(status)),
        ("pod_get", str(status)),
        ("pod_get", "ok"),
        ("pod_delete", "ok"),
    ]


async def test_the_api_says_when_to_come_again(kube: FakeApi) -> None:
    kube.add_pod("train-nodes-1-abcde")
    kube.fail(429, Retry_After="2")
    loop = asyncio.get_running_loop()
    async with client(kube) as api:
        begun = loop.time()
        assert (await replaced(api, order())).ok
        assert loop.time() - begun >= 2.0


async def test_what_is_forbidden_is_told_and_not_tried_again(kube: FakeApi) -> None:
    kube.add_pod("train-nodes-1-abcde")
    kube.fail(403)
    async with client(kube) as api:
        answer = await replaced(api, order())
    assert not answer.ok
    assert answer.reason == "the API says 403: trouble 403"
    assert kube.count("GET") == 1


async def test_trouble_without_end_is_told_in_the_end(kube: FakeApi) -> None:
    kube.add_pod("train-nodes-1-abcde")
    kube.fail(500, times=50)
    async with client(kube, give_up_s=1.5) as api:
        answer = await replaced(api, order())
    assert not answer.ok
    assert answer.reason == "the API says 500: trouble 500"
    assert 1 < kube.count("GET") < 6


async def test_a_slow_api_is_given_up_and_asked_again(kube: FakeApi) -> None:
    kube.add_pod("train-nodes-1-abcde")
    kube.slow(3.0)
    async with client(kube, try_s=0.5) as api:
        assert (await replaced(api, order())).ok
    assert kube.count("GET") == 2


async def test_a_token_that_expires_is_read_anew(kube: FakeApi) -> None:
    kube.add_pod("train-nodes-1-abcde")
    async with client(kube) as api:
        assert await api.get("pod_get", "/api/v1/namespaces/train/pods/train-nodes-1-abcde")
        kube.expire("second")
        asking = asyncio.create_task(replaced(api, order()))
        await until(lambda: kube.count("GET") >= 2)
        kube.renew("second")
        assert (await asking).ok


async def test_only_the_clusters_authority_is_believed(kube: FakeApi, folder: Path) -> None:
    (kube.account / "ca.crt").write_bytes(Authority(folder, "other").ca.read_bytes())
    async with client(kube, give_up_s=0.0) as api:
        with pytest.raises(KubeError, match="certificate verify failed"):
            await api.get("pod_get", "/api/v1/nodes")
    assert kube.asked == []  # no token was sent


async def test_no_api_at_all_is_told(kube: FakeApi) -> None:
    async with client(kube, give_up_s=0.0) as api:
        kube.server.socket.close()
        with pytest.raises(KubeError, match="does not answer"):
            await api.get("nodes_list", "/api/v1/nodes")


def test_what_is_no_pod_is_told_with_the_mend(kube: FakeApi, folder: Path) -> None:
    with pytest.raises(SettingsError, match="this is not a pod") as refused:
        ServiceAccount.here(str(kube.account), {})
    advised = {flag.replace("-", "_") for flag in re.findall(r"--([a-z-]+)", str(refused.value))}
    assert advised == {name for name, value in vars(KubeSettings()).items() if value is False}
    (kube.account / "token").unlink()
    with pytest.raises(SettingsError, match="mount the token of a service account"):
        ServiceAccount.here(str(kube.account), kube.env)
    (kube.account / "token").write_text("\n")
    with pytest.raises(SettingsError, match="holds no token"):
        ServiceAccount.here(str(kube.account), kube.env)


# ------------------------------------------------------------ hosts


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({}, ""),
        ({"unschedulable": True}, "its host is cordoned"),
        (
            {"taints": [{"key": "maintenance", "value": "1", "effect": "NoExecute"}]},
            "its host is tainted maintenance=1:NoExecute",
        ),
        ({"taints": [{"key": "gpu", "effect": "NoSchedule"}]}, ""),
        ({"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]}, ""),
    ],
)
def test_which_hosts_are_to_be_left(spec: dict[str, Any], reason: str) -> None:
    assert why({"spec": spec}) == reason


class Watched:
    """Taints with the nodes that a core would name."""

    def __init__(self, api: Api) -> None:
        self.said: list[Any] = []
        self.cordoned = {"n1": "", "n2": ""}
        self.taints = HostWatch(api, self._hear, self._nodes, drain_s=60.0)

    def _nodes(self, host: str) -> list[tuple[str, str]]:
        return list(self.cordoned.items()) if host == "host-1" else []

    def _hear(self, event: Any) -> None:
        drains = isinstance(event, ev.DrainRequested)
        self.cordoned[event.node] = f"drained: {event.reason}" if drains else ""
        self.said.append(event)


@asynccontextmanager
async def watching(api: Api) -> AsyncIterator[Watched]:
    watched = Watched(api)
    task = asyncio.create_task(watched.taints.run())
    try:
        yield watched
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


TAINT = [{"key": "maintenance", "effect": "NoExecute"}]


async def test_a_taint_drains_the_nodes_of_its_host_and_its_end_takes_that_back(kube: FakeApi) -> None:
    kube.add_pod("n1")
    async with client(kube) as api, watching(api) as watched:
        await until(lambda: kube.count("GET", "watch=1"))
        kube.mark("host-2", unschedulable=True)
        kube.mark("host-1", taints=TAINT)
        await until(lambda: len(watched.said) >= 2)
        reason = "its host is tainted maintenance=:NoExecute"
        assert watched.said == [ev.DrainRequested(node, reason, 60.0) for node in ("n1", "n2")]
        watched.cordoned["n2"] = "by hand"  # a person has said otherwise meanwhile: that stays
        kube.mark("host-1", taints=[])
        await until(lambda: len(watched.said) >= 3)
        assert watched.said[2:] == [ev.CordonRequested("n1", False, "host host-1 takes pods again")]


async def test_a_host_that_was_tainted_before_we_looked_is_seen(kube: FakeApi) -> None:
    kube.add_pod("n1")
    kube.mark("host-1", unschedulable=True)
    async with client(kube) as api, watching(api) as watched:
        await until(lambda: len(watched.said) >= 2)
        assert {each.reason for each in watched.said} == {"its host is cordoned"}


@pytest.mark.parametrize("end", ["expired", "closed", "broken list", "unauthorized", "nonsense"])
async def test_a_watch_that_ends_goes_on(kube: FakeApi, end: str) -> None:
    kube.add_pod("n1")
    async with client(kube) as api, watching(api) as watched:
        await until(lambda: kube.count("GET", "watch=1"))
        if end == "unauthorized":
            kube.expire("second")
            kube.renew("second")
        if end == "broken list":
            kube.fail(500, times=2)
        status = {"kind": "Status", "code": 410, "message": "too old resource version"}
        endings = {
            "expired": {"type": "ERROR", "object": status},
            "nonsense": {"type": "MODIFIED", "object": {}},
        }
        with kube.changed:
            kube._tell(endings.get(end, {"type": "CLOSE", "object": {}}))
            if end == "nonsense":
                kube._tell({"type": "CLOSE", "object": {}})
        await until(lambda: kube.count("GET", "watch=1") >= 2)
        kube.mark("host-1", taints=TAINT)
        await until(lambda: len(watched.said) >= 2)


# ------------------------------------------------------------ events


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def telling(api: Api, clock: Clock) -> AsyncIterator[EventWriter]:
    told = EventWriter(api, "holdfast-coordinator-0", clock)
    task = asyncio.create_task(told.run())
    try:
        yield told
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def judged(node: str, incident: int = 1) -> fx.Judged:
    verdict = Verdict(
        "train", Scope.RANK, Cause.SIGNALED, (node,), ("train.3",), (3,), 20, ("signal 9",) * 90
    )
    plan = Plan("train", Strategy.SPARE, ("train.3",), ("train.9",), "a warm spare is beside it")
    return fx.Judged(verdict, plan, incident)


async def test_an_incident_is_an_event_of_its_pod(kube: FakeApi) -> None:
    pod = kube.add_pod("train-nodes-1-abcde")
    async with client(kube) as api, telling(api, Clock()) as told:
        told.take(judged("train-nodes-1-abcde"))
        told.take(fx.JobChanged(JobState("train", JobPhase.FAILED, "the script raised ValueError")))
        told.take(fx.JobChanged(JobState("train", JobPhase.RUNNING, "goes on")))
        await until(lambda: len(kube.events) >= 2)
    incident, job = kube.events.values()
    assert incident["regarding"]["name"] == "train-nodes-1-abcde"
    assert incident["regarding"]["uid"] == pod["metadata"]["uid"]
    assert (incident["type"], incident["reason"], incident["action"]) == ("Warning", "Incident", "Spare")
    assert incident["note"].startswith("job train, incident 1: killed (rank), ranks 3; spare: a warm spare")
    assert (job["reason"], job["regarding"]["name"]) == ("JobFailed", "holdfast-coordinator-0")
    assert "uid" not in job["regarding"]  # there is no such pod here


async def test_what_is_said_again_is_a_series(kube: FakeApi) -> None:
    kube.add_pod("train-nodes-1-abcde")
    clock = Clock()
    async with client(kube) as api, telling(api, clock) as told:
        for _ in range(5):
            told.take(judged("train-nodes-1-abcde"))
        await until(lambda: kube.events and not told._waiting)
        clock.now += UPDATE_S + 1
        told.take(judged("train-nodes-1-abcde"))
        await until(lambda: [each for each in kube.events.values() if "series" in each])
        assert [each["series"]["count"] for each in kube.events.values()] == [6]
        for number in (1, 2):  # what was not said for long is a new one, and the others are forgotten
            clock.now += SERIES_S + 1
            told.take(judged("train-nodes-1-abcde", number))
            await until(lambda n=number: len(kube.events) == n + 1 and len(told._known) == 1, timeout_s=10)  # type: ignore[misc]


async def test_a_flood_is_bounded_and_counted(kube: FakeApi) -> None:
    kube.add_pod("train-nodes-1-abcde")
    async with client(kube) as api, telling(api, Clock()) as told:
        for number in range(200):
            told.take(judged("train-nodes-1-abcde", incident=number))
        await until(lambda: not told._waiting and told.not_written >= 200 - BURST)
        assert len(kube.events) == BURST


async def test_an_api_that_refuses_events_ends_nothing(kube: FakeApi) -> None:
    kube.add_pod("train-nodes-1-abcde")
    async with client(kube) as api, telling(api, Clock()) as told:
        kube.fail(403)
        told.take(judged("train-nodes-1-abcde"))
        await until(lambda: told.not_written == 1)
        told.take(judged("train-nodes-1-abcde", incident=2))
        await until(lambda: len(kube.events) == 1)
