"""`holdfast wait` returns for the phase, for an end that excludes it, and at its timeout."""

from __future__ import annotations

import asyncio

import pytest

from controlplane.cli.errors import CliError, UnreachableError
from controlplane.cli.main import tree
from controlplane.cli.orders.wait import waited
from controlplane.wire import control_pb2 as pb
from tests.cli.logs.stage import JOB, log_stage
from tests.security.serving import asked


async def test_wait(capsys: pytest.CaptureFixture[str]) -> None:
    async with log_stage() as stage:

        async def wait(*words: str) -> int:
            where = ("--coordinator", stage.served.address)
            return await waited(tree().parse_args(["wait", *words, *where]))

        assert await wait(JOB, "--for", "running") == 0
        assert capsys.readouterr().out == f"job {JOB} is running\n"
        assert await wait(JOB, "--timeout", "200ms") == 124
        assert f"job {JOB} is still running, and not finished" in capsys.readouterr().err
        with pytest.raises(CliError, match="no job named jj; did you mean j"):
            await wait("jj")
        waiting = [asyncio.create_task(wait(JOB, "--for", phase)) for phase in ("ended", "stopped", "paused")]
        await asyncio.sleep(0)
        stop = pb.StopRequest(job=JOB, reason="enough")
        await asked(stage.served.address, "Stop", stop)
        assert await asyncio.gather(*waiting) == [0, 0, 1]
        shown = capsys.readouterr()
        assert shown.out == f"job {JOB} stopped: enough\n" * 2 and shown.err == f"job {JOB} stopped: enough\n"
        assert await wait(JOB, "--timeout", "0s") == 1
    with pytest.raises(UnreachableError):
        await wait(JOB, "--timeout", "1s")
