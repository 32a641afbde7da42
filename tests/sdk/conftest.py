from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.sdk import dcp_ranks
from tests.sdk.zygote import Zygote

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """One interpreter that has imported torch, for all ranks of all tests."""
    forking = Zygote()
    yield forking
    forking.close()


@pytest.fixture(scope="session")
def dcp_zygote() -> Iterator[Zygote]:
    """Likewise, with what holdfast.dcp and sharded models need."""
    forking = Zygote(*dcp_ranks.PRELOAD)
    yield forking
    forking.close()
