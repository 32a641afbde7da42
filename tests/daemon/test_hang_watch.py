"""A hung event loop is told from one that has much to do."""

from __future__ import annotations

import asyncio
import time

from controlplane.daemon.loop.hang_watch import hang_watch

LIMIT_S = 1.2


async def test_a_loop_that_hangs_is_told_and_where() -> None:
    told: list[str] = []
    async with hang_watch(LIMIT_S, told.append):
        _wait_for_ever(told)
    (reason,) = told
    assert "hangs" in reason and "_wait_for_ever" in reason


async def test_a_loop_with_too_much_to_do_does_not_hang() -> None:
    told: list[str] = []
    async with hang_watch(LIMIT_S, told.append):
        for _ in range(6):
            time.sleep(LIMIT_S / 2)  # noqa: ASYNC251 -- that is what is tested
            await asyncio.sleep(0)
    assert not told


def _wait_for_ever(told: list[str]) -> None:
    while not told:
        time.sleep(0.01)
