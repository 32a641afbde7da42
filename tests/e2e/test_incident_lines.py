"""One name of an incident in the lines of every process that had a part in it."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

from tests.e2e.cli_running import running, until
from tests.training import elastic

if TYPE_CHECKING:
    from pathlib import Path

BEFORE = """
import logging, os, pathlib, sys, time
logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
folder = pathlib.Path(sys.argv[1])
torch.manual_seed(0)
"""
EACH = """
    (folder / f"pid-{session.rank}-{session.generation}").write_text(str(os.getpid()))
    flag = torch.tensor([float((folder / "done").exists())])
    torch.distributed.broadcast(flag, 0)
    if bool(flag):
        break
    time.sleep(0.02)
"""
SCRIPT = elastic(100_000, before=BEFORE, each=EACH)


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The lines of JSON in a daemon's log."""
    return [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]


def test_one_name_from_the_verdict_to_the_ranks_first_step() -> None:
    flags = ("--nproc-per-node", "2", "--log-format", "json")
    with running(*flags, script=SCRIPT) as run:
        first = run.folder / "pid-1-1"
        until(lambda: first.exists() and first.read_text(), lambda: run.output[-3000:])
        os.kill(int(first.read_text()), signal.SIGKILL)
        until((run.folder / "pid-1-2").exists, lambda: run.output[-3000:])
        launcher = run.layout.run_dir.glob("**/launcher.log")
        launched = [line for path in launcher for line in lines_of(path)]
        (run.folder / "done").touch()
        assert run.end() == 0, run.output[-3000:]
        name, logs = f"{run.job}/1", run.layout.logs()
        told = {each: [line for line in lines_of(logs / f"{each}.log") if line.get("incident") == name]
                for each in ("coordinator", "n0")}  # fmt: skip
        assert any("SIGKILL" in line["message"] for line in told["coordinator"])
        assert any("recovered in" in line["message"] for line in told["coordinator"])
        agent = [line["message"] for line in told["n0"]]
        assert any("generation 1 is broken" in message for message in agent), agent
        assert sum("forms generation 2 as rank" in message for message in agent) == 2, agent
        spawned = [line for line in launched if "spawned" in line["message"]]
        assert any(line.get("incident") == name for line in spawned), spawned
        ranks = [line for line in run.output.splitlines() if f"[incident {name}]" in line]
        assert sum("in generation 2 as rank" in line for line in ranks) == 2, ranks
        assert sum("trains again" in line for line in ranks) == 2, ranks
        before = [line for line in spawned if "incident" not in line]
        assert len(before) == 2, "what was spawned before it is no part of it"
