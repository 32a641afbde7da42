"""What is told of a script without the SDK whose rank was killed: that it was started again, and no more."""

from __future__ import annotations

import os
import signal

from tests.e2e.cli_running import running, until
from tests.e2e.test_cli_run import finish, holdfast

SLOW = """
import os, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
name = f"{os.environ['RANK']}-{os.environ['TORCHELASTIC_RESTART_COUNT']}"
(folder / f"{name}.part").write_text(str(os.getpid()))
(folder / f"{name}.part").rename(folder / f"{name}.pid")
while name.endswith("-1") and not (folder / "write").exists():
    time.sleep(0.02)
print("iteration 60", flush=True)
while not (folder / "done").exists():
    time.sleep(0.02)
"""
AGAIN = "what is repeated depends on the script's own checkpoints"


def test_it_is_told_to_have_started_again_and_only_once_it_writes() -> None:
    with running("--nproc-per-node", "2", script=SLOW) as run:
        run.rank_pid(0)
        os.kill(run.rank_pid(1), signal.SIGKILL)
        run.rank_pid(0, restart=1), run.rank_pid(1, restart=1)
        until(lambda: _outcomes(run.journal("IncidentChanged"))[-1:] == ["open"], lambda: run.output)
        assert "recovered" not in _outcomes(run.journal("IncidentChanged"))
        (run.folder / "write").touch()
        until(lambda: AGAIN in run.output, lambda: run.output)
        (last,) = [
            b["incident"] for b in run.journal("IncidentChanged") if b["incident"]["outcome"] == "recovered"
        ]
        assert [name for name, _ in last["phases_s"]][-2:] == ["reform", "first_step"]
        address = run.layout.read_card()["coordinator"]
        told = holdfast("why", run.job, "--coordinator", address).stdout
        told += holdfast("events", "--coordinator", address).stdout
        assert finish(run) == 0, run.output
        assert AGAIN in told and "first output" in told, told
        for text in (run.output, told):
            assert "before its first step" not in text
            assert "steps lost" not in text and "no step was lost" not in text


def _outcomes(bodies: list[dict[str, dict[str, str]]]) -> list[str]:
    return [body["incident"]["outcome"] for body in bodies]
