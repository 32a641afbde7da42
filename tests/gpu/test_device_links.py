"""Copies between the host and real devices, and what their links have negotiated. Skipped where there is no
device."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from holdfast.node_check import device_copies, device_links

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")


def test_bytes_come_out_as_they_went_in_and_each_way_has_a_rate() -> None:
    devices = torch.cuda.device_count()
    found = list(device_copies.readings(torch.device("cuda", 0), devices, 0.05))
    names = {"cuda:0.copy.from_host", "cuda:0.copy.to_host"}
    names |= {f"cuda:0.copy.to.cuda:{other}" for other in range(1, min(devices, 16))}
    assert {each.name for each in found} == names
    for each in found:
        assert each.value is not None and each.value > 1e8 and not each.broken, each


@pytest.mark.skipif(importlib.util.find_spec("pynvml") is None, reason="nvidia-ml-py is not installed")
def test_links_tell_what_they_have_negotiated_or_why_not() -> None:
    found = {each.name: each for each in device_links.readings(torch.device("cuda", 0))}
    assert {"cuda:0.pcie.generation", "cuda:0.pcie.width"} <= set(found), found
    assert all(each.value is not None or each.reason for each in found.values())
    assert not any(each.broken for each in found.values())
    generation, width = (found[f"cuda:0.pcie.{each}"].value for each in ("generation", "width"))
    assert generation is None or 1 <= generation <= 7
    assert width is None or width in (1, 2, 4, 8, 16, 32)
