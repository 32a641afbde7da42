from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.agent.support import Leader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def leader() -> AsyncIterator[Leader]:
    """A coordinator's side of the wire, that says what the test wants."""
    async with Leader() as leader:
        yield leader
