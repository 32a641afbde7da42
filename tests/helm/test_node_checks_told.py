"""The checks of a node as Kubernetes Events of its pod."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from controlplane.core.records import effects as fx
from controlplane.core.records.notes import NoteKind
from tests.daemon.rig import until
from tests.helm.fake_api import FakeApi, fake_api
from tests.helm.test_kube import Clock, client, telling
from tests.security.authority import Authority

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def kube(folder: Path) -> Iterator[FakeApi]:
    with fake_api(folder, Authority(folder)) as made:
        yield made


async def test_the_check_of_a_node_is_an_event_of_its_pod_with_its_reason(kube: FakeApi) -> None:
    kube.add_pod("train-nodes-1-abcde")
    found = {
        NoteKind.NODE_CHECKING: "it is new here",
        NoteKind.NODE_CHECKED: "it is new here: cpu.gemm.float32: 40% slower than the mean of 3 peers",
        NoteKind.NODE_UNCHECKED: "no answer within 120 s; it is used all the same",
    }
    async with client(kube) as api, telling(api, Clock()) as told:
        for kind, reason in found.items():
            told.take(fx.Note(kind, "train-nodes-1-abcde", reason))
        await until(lambda: len(kube.events) >= 3)
    events = {each["reason"]: each for each in kube.events.values()}
    assert {reason: each["type"] for reason, each in events.items()} == {
        "NodeChecking": "Normal",
        "NodeChecked": "Normal",
        "NodeUnchecked": "Warning",
    }
    assert [each["note"] for each in events.values()] == list(found.values())
    assert {each["regarding"]["name"] for each in events.values()} == {"train-nodes-1-abcde"}
