"""Commands whose output cannot be written, because nothing is there or because the disk is full."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.daemon.rig import ROOT

HOLDFAST = (sys.executable, "-P", "-m", "controlplane")


def shell(line: str) -> subprocess.CompletedProcess[str]:
    """A line of a shell, in which `"$@"` is the program."""
    command = ["bash", "-c", line, "bash", *HOLDFAST]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ('"$@" --help >&-', 0),
        ('"$@" completion bash <&- >&- 2>&-', 0),
        ('"$@" no-such-command 2>&-', 2),
        ('"$@" --help | true; exit ${PIPESTATUS[0]}', 0),
    ],
)
def test_a_stream_that_is_closed_is_no_error(line: str, code: int) -> None:
    done = shell(line)
    assert (done.returncode, done.stderr) == (code, "")


def test_a_full_disk_is_told_in_a_line() -> None:
    done = shell('"$@" completion bash > /dev/full')
    assert done.returncode == 1
    assert done.stderr == "holdfast completion: cannot write what it shows: No space left on device\n"
