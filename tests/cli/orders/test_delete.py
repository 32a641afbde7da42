"""`holdfast delete job`: refused while the job trains, by role, and gone for every command afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from controlplane.cli.errors import UnreachableError, UsageError
from controlplane.cli.main import tree
from controlplane.cli.orders.delete import deleted
from controlplane.wire import control_pb2 as pb
from tests.cli.logs.stage import JOB, LogStage, log_stage
from tests.daemon.rig import until
from tests.security.serving import asked

if TYPE_CHECKING:
    from controlplane.daemon.leadership.leader_term import LeaderTerm


def _term(stage: LogStage) -> LeaderTerm:
    found = stage.served.front.leader_term
    assert found is not None
    return found


async def test_delete(capsys: pytest.CaptureFixture[str]) -> None:
    async with log_stage() as stage:

        async def delete(*words: str) -> int:
            where = ("--coordinator", stage.served.address)
            return await deleted(tree().parse_args(["delete", "job", *words, *where]))

        assert await delete(JOB) == 1
        refused = capsys.readouterr()
        assert refused.out == "" and f"`holdfast stop {JOB}`" in refused.err
        assert await delete("jj") == 1
        assert "there is no job of this name; did you mean j?" in capsys.readouterr().err

        await asked(stage.served.address, "Stop", pb.StopRequest(job=JOB, reason="enough"))
        jobs = _term(stage).core.state.jobs
        await until(lambda: jobs[JOB].ended)
        assert await delete(JOB) == 1
        assert "still being removed on n0, n1: try again" in capsys.readouterr().err
        for hand in stage.hands:
            for member in list(hand.members):
                await hand.die(member)
        await until(lambda: not any(each.alive for each in jobs[JOB].members.values()))
        assert await delete("nobody", JOB) == 1, "one of them is not there"
        shown = capsys.readouterr()
        assert shown.out == f"job {JOB}: deleted; it has no checkpoints\n" and "nobody" in shown.err
        assert JOB not in jobs and _term(stage).observer.account(JOB) is None
        assert not _term(stage).status("").jobs
        with pytest.raises(UsageError, match="unknown value 'node'"):
            tree().parse_args(["delete", "node", "n0"])
    with pytest.raises(UnreachableError):
        await delete(JOB)
