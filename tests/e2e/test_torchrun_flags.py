"""torchrun's flags of output and role, on a run of real processes."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tests.e2e.cli_running import running

SCRIPT = """
import os, sys
print("output of rank", os.environ["RANK"], "role", os.environ["ROLE_NAME"], flush=True)
print("errors of rank", os.environ["RANK"], file=sys.stderr, flush=True)
"""


def logs(folder: Path) -> str:
    """All that ranks have written into a folder of logs."""
    return "".join(path.read_text() for path in sorted(folder.glob("*/*.log")))


def test_redirected_output_is_in_the_files_only(tmp_path: Path) -> None:
    words = ("--redirects", "0:3", "--role", "trainer", "--log-dir", str(tmp_path), "--nproc-per-node", "2")
    with running(*words, script=SCRIPT) as run:
        assert run.end() == 0, run.output
        assert "output of rank 1 role trainer" in run.output and "errors of rank 1" in run.output
        assert "of rank 0" not in run.output
        for rank in range(2):
            assert f"output of rank {rank} role trainer\nerrors of rank {rank}\n" in logs(tmp_path)


def test_the_filter_shows_these_local_ranks_of_every_node(tmp_path: Path) -> None:
    words = (
        "--local-ranks-filter",
        "1",
        "--nproc-per-node",
        "2",
        "--nnodes",
        "2",
        "--log-dir",
        str(tmp_path),
    )
    with running(*words, script=SCRIPT) as run:
        assert run.end() == 0, run.output
        shown = {rank for rank in range(4) if f"output of rank {rank} " in run.output}
        assert shown == {1, 3}, run.output
        assert all(f"output of rank {rank} role default" in logs(tmp_path) for rank in range(4))


def test_nothing_is_shown_and_the_folder_is_named() -> None:
    with running("--redirects", "3", "--start-method", "fork", script=SCRIPT) as run:
        assert run.end() == 0, run.output
        assert "of rank 0" not in run.output
        assert "holdfast: --start-method has no effect" in run.output
        found = re.search(r"the ranks' output is in (\S+); name another folder", run.output)
        assert found is not None, run.output
        try:
            assert "output of rank 0 role default" in logs(Path(found[1]))
        finally:
            shutil.rmtree(found[1])
