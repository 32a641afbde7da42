"""A hung event loop is told from one that has much to do."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time

from controlplane.daemon.loop.hang_watch import EXIT_HANGS, hang_watch
from tests.daemon.rig import ROOT
from tests.leashed import leashed

LIMIT_S = 1.2
LOGS_FOR_EVER = """
import asyncio, logging
from controlplane.daemon.loop.hang_watch import ends_when_it_hangs

async def main():
    async with ends_when_it_hangs(1.2):
        while True:
            logging.error("a line " * 100)
            await asyncio.sleep(0)

asyncio.run(main())
"""


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
    assert not told and signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)


def test_a_process_whose_log_nobody_reads_ends() -> None:
    command = leashed([sys.executable, "-c", LOGS_FOR_EVER])
    process = subprocess.Popen(command, stderr=subprocess.PIPE, cwd=ROOT)
    try:
        assert process.wait(60) == EXIT_HANGS
    finally:
        process.kill()
        process.communicate()


def _wait_for_ever(told: list[str]) -> None:
    while not told:
        time.sleep(0.01)
