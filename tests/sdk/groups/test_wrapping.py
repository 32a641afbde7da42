"""A model that is wrapped again after a failure sums its gradients in the order of before, or it is told."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.sdk.node import Node

if TYPE_CHECKING:
    from tests.sdk.zygote import Zygote

SCRIPT = Path(__file__).with_name("wrapping.py")
PLAIN = "averaged by a plain DistributedDataParallel"


def trained(zygote: Zygote, kind: str, kill: int) -> tuple[set[str], str]:
    """The digests of three ranks' weights, and what the logs say."""
    with Node(zygote, SCRIPT, 3, spares=1, KIND=kind, KILL=str(kill)) as node:
        node.run()
        assert len(node.generations) == 1 + (kill >= 0)
        said = "\n".join(member.log.read_text() for member in node.members.values())
        return {line["digest"] for line in node.results()}, said


def test_a_static_graph_sums_in_the_same_order(zygote: Zygote) -> None:
    """Its first step had other buckets than later ones: the training came out differently, without a word."""
    calm, _ = trained(zygote, "static", -1)
    struck, said = trained(zygote, "static", 6)
    assert struck == calm and len(calm) == 1
    assert PLAIN not in said


def test_a_plain_wrapper_is_named_before_anything_fails(zygote: Zygote) -> None:
    calm, said = trained(zygote, "plain", -1)
    assert said.count(PLAIN) == 1 and "tracked 'model'" in said
    struck, _ = trained(zygote, "plain", 6)
    assert struck != calm
