"""The page on porting: its diff is that of its two scripts, and both do what the page says."""

from __future__ import annotations

import difflib
import os
import subprocess
import sys
from pathlib import Path

import torch

from tests.e2e.standing import submitted

ROOT = Path(__file__).resolve().parents[2]
BEFORE, AFTER = (ROOT / "examples" / "porting" / name for name in ("train_torchrun.py", "train.py"))
PAGE = ROOT / "docs" / "porting.md"
BEGIN, END = "<!-- diff: begin -->\n", "<!-- diff: end -->"


def shown() -> str:
    """The two scripts as a diff, without its head."""
    before, after = (path.read_text().splitlines(keepends=True) for path in (BEFORE, AFTER))
    return "".join(list(difflib.unified_diff(before, after, n=2))[2:])


def test_the_page_shows_the_diff_of_the_two_scripts() -> None:
    found = PAGE.read_text().partition(f"{BEGIN}```diff\n")[2].partition(f"```\n{END}")[0]
    assert found == shown(), "write it anew: python -m tests.e2e.test_porting"


def test_both_scripts_run_and_save_the_average(tmp_path: Path) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*torchrun, str(BEFORE), str(tmp_path)], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "step 80: error" in done.stdout, done.stderr
    with submitted("--nproc-per-node", "2", "--spares", "1", script=AFTER.read_text()) as run:
        assert run.end() == 0, run.output
        assert "step 80: error" in run.output
        assert torch.load(tmp_path / "average.pt").keys() == torch.load(run.folder / "average.pt").keys()


def write() -> None:
    """Put the diff into the page."""
    head, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{head}{BEGIN}```diff\n{shown()}```\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    write()
