"""Tasks that run together: who waits for them is left as it was."""

from __future__ import annotations

import asyncio
import contextlib
import gc

import pytest

from controlplane.background_tasks import together


async def _fails() -> None:
    await asyncio.sleep(0)
    raise OSError("broken")


async def _waits(ends: list[str]) -> None:
    try:
        await asyncio.sleep(60)
    finally:
        ends.append("cancelled")


async def test_who_waits_for_one_that_fails_does_not_count_as_cancelled() -> None:
    ends: list[str] = []
    with pytest.raises(ExceptionGroup) as failed:
        await together(_fails(), _waits(ends))
    assert isinstance(failed.value.exceptions[0], OSError) and ends == ["cancelled"]
    task = asyncio.current_task()
    assert task is not None and task.cancelling() == 0
    with pytest.raises(TimeoutError):  # before Python 3.11.4 a cancelled task gets CancelledError here
        async with asyncio.timeout(0.01):
            await asyncio.sleep(60)


async def test_to_cancel_who_waits_cancels_all() -> None:
    ends: list[str] = []
    waiting = asyncio.ensure_future(together(_waits(ends), _waits(ends)))
    await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ends == ["cancelled"] * 2


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning", "error::RuntimeWarning")
async def test_to_cancel_who_has_just_begun_to_wait_leaves_nothing_that_never_ran() -> None:
    """As an agent by SIGTERM, at the moment at which its stream stands."""
    begun = asyncio.Event()

    async def begins() -> None:
        begun.set()
        await together(_waits([]), _waits([]))

    waiting = asyncio.ensure_future(begins())
    await begun.wait()  # its works have not had their turn yet
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    gc.collect()


async def test_who_is_cancelled_while_the_others_end_is_cancelled() -> None:
    """As an agent by SIGTERM, at the moment at which its stream breaks: it tried again, and never ended."""
    ending = asyncio.Event()

    async def ends_slowly() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ending.set()
            await asyncio.sleep(0.05)

    async def tries_again() -> None:
        while True:
            with contextlib.suppress(ExceptionGroup):
                await together(_fails(), ends_slowly())
            await asyncio.sleep(60)

    trying = asyncio.ensure_future(tries_again())
    await ending.wait()
    trying.cancel()
    await asyncio.wait([trying], timeout=10)
    assert trying.cancelled()
