"""What the links of a device have negotiated. The library is played: most machines have no device."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from controlplane.analysis.node_checks import findings, judge
from holdfast.node_check import device_links
from tests.agent.sensors.test_nvml import LACKS, driver, links

if TYPE_CHECKING:
    from holdfast.node_check.reading import NodeReading

LINKS = 18


def field(value: int, error: int = 0) -> list[Any]:
    return [types.SimpleNamespace(nvmlReturn=error, value=types.SimpleNamespace(uiVal=value))]


def read(**answers: Any) -> list[NodeReading]:
    sound: dict[str, Any] = {
        "CurrPcieLinkGeneration": 5,
        "CurrPcieLinkWidth": 16,
        "NvLinkState": links(*[1] * LINKS),
        "FieldValues": field(26_562),
    }
    nvml = driver(**(sound | answers))
    nvml.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON = 90
    return list(device_links.found("cuda:0", nvml, nvml.nvmlDeviceGetHandleByIndex(0)))


def named(own: list[NodeReading]) -> list[str]:
    return [str(dict(each.place)["part"]) for each in findings("n1", judge(own, [read()] * 3), load=9.0)]


def test_a_sound_device() -> None:
    found = {each.name: (each.value, each.unit) for each in read()}
    assert found == {
        "cuda:0.pcie.generation": (5.0, "generations"),
        "cuda:0.pcie.width": (16.0, "lanes"),
        "cuda:0.nvlink.links": (18.0, "links"),
        "cuda:0.nvlink.speed": (26_562e6, "B/s"),
    }
    assert named(read()) == []


def test_what_has_negotiated_less_than_on_the_peers_is_named() -> None:
    assert named(read(CurrPcieLinkGeneration=1)) == ["cuda:0.pcie.generation"]
    assert named(read(CurrPcieLinkWidth=8)) == ["cuda:0.pcie.width"]
    assert named(read(FieldValues=field(13_281))) == ["cuda:0.nvlink.speed"]


def test_one_nvlink_of_eighteen_is_missed() -> None:
    assert named(read(NvLinkState=links(*[1] * (LINKS - 1), 0))) == ["cuda:0.nvlink.links"]
    assert named(read(NvLinkState=links(*[0] * LINKS))) == ["cuda:0.nvlink.links"]


def test_what_cannot_be_read_has_a_reason_and_no_number() -> None:
    for nothing in (LACKS, None, 0, -3):
        found = {each.name: each for each in read(CurrPcieLinkWidth=nothing)}
        assert found["cuda:0.pcie.width"].value is None and found["cuda:0.pcie.width"].reason
    for answer in (LACKS, None, [], field(0), field(26_562, error=3)):
        speed = read(FieldValues=answer)[-1]
        assert (speed.name, speed.value) == ("cuda:0.nvlink.speed", None) and speed.reason
    assert [each.name for each in read(NvLinkState=LACKS)] == ["cuda:0.pcie.generation", "cuda:0.pcie.width"]
