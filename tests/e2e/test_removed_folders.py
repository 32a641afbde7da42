"""Somebody removes what Holdfast keeps on a node, and then a rank dies: the job goes on to its end."""

from __future__ import annotations

import os
import shutil
import signal

from tests.e2e.cli_running import running, until
from tests.training import elastic

SCRIPT = elastic(
    10_000,
    before="import os, pathlib, sys, time\nhere = pathlib.Path(sys.argv[1])",
    each="""
        (here / f"at-{session.rank}-{os.getpid()}").write_text(str(step))
        time.sleep(0.02)
    """,
)


def test_a_death_after_the_run_folder_and_the_memory_were_removed() -> None:
    with running("--nproc-per-node", "2", script=SCRIPT) as run:

        def at(rank: int) -> dict[int, int]:
            found = {}
            for path in run.folder.glob(f"at-{rank}-*"):
                if text := path.read_text():
                    found[int(path.name.rpartition("-")[2])] = int(text)
            return found

        until(lambda: max(at(1).values(), default=0) > 20, "it trains")
        shutil.rmtree(run.layout.node_dir("n0"))
        shutil.rmtree(run.layout.shm("n0"))
        (dead,) = at(1)
        os.kill(dead, signal.SIGKILL)
        until(
            lambda: max((s for pid, s in at(1).items() if pid != dead), default=0) > 0, "another one trains"
        )
        assert len(list(run.folder.glob("at-0-*"))) == 1, "the survivor keeps its process"
