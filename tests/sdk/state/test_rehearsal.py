"""A spare rehearses torch.compile once another process of its node has compiled with inductor."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.state import rehearsal
from tests.sdk.node import Node

if TYPE_CHECKING:
    from tests.sdk.zygote import Zygote

SCRIPT = Path(__file__).with_name("rehearsing.py")
TIMEOUT_S = 400.0  # inductor and the C++ compiler may have nothing on disk


@pytest.mark.parametrize("backend", ["inductor", "eager"])
def test_a_spare_rehearses_what_others_compile(zygote: Zygote, backend: str) -> None:
    """And its random numbers stay as they are."""
    with Node(zygote, SCRIPT, 1, COMPILE=backend, HOLDFAST_ROLE="rank") as node:
        node.run(until=lambda: node.generation == 1)
        node.env["HOLDFAST_ROLE"] = "spare"
        node.start()
        node.run(timeout_s=TIMEOUT_S)
        assert (node.folder / "compiled.rank").exists()
        rehearsed = (node.folder / "compiled.spare").exists()
        assert rehearsed == (node.folder / rehearsal.MARK).exists() == (backend == "inductor")
        assert not rehearsed or (node.folder / "same.spare").read_text() == "True"
