"""Buffers are equal on all ranks at the end of a step, also where gradients are accumulated."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.sdk.node import Node

if TYPE_CHECKING:
    from tests.sdk.zygote import Zygote


def test_buffers_are_equal_after_a_pass_without_synchronization(zygote: Zygote) -> None:
    with Node(zygote, Path(__file__).with_name("accumulating.py"), 2) as node:
        node.run()
        first, second = node.results()
        assert first["buffers"] == second["buffers"]
        assert not first["scattered"] and not second["scattered"]
        assert {member.shard for member in node.members.values()} == {"all"}
