"""A user without a home folder, and a machine without a place for sockets, as containers have them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
NOBODY = 54321
"""A user id that no account has."""

BECOMES = ("unshare", "--user", f"--map-user={NOBODY}")

pytestmark = pytest.mark.skipif(
    shutil.which("unshare") is None or subprocess.run([*BECOMES, "true"], check=False).returncode != 0,
    reason="this kernel lets nobody become another user",
)


READ_ONLY = (
    *("unshare", "--user", "--map-root-user", "--mount", "sh", "-c"),
    'mount --rbind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"',
    "/tmp",
)


def holdfast(*words: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_STATE_HOME")}
    command = [*BECOMES, sys.executable, "-m", "controlplane", *words]
    return subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_a_run_says_what_is_missing_and_what_helps() -> None:
    done = holdfast("run", str(Path(__file__)))
    assert done.returncode == 1
    assert done.stderr == (
        "holdfast run: no folder for the state of this run: user 54321 has no home; set HOME, or give "
        "--state-dir\n"
    )


def test_a_read_only_tmp_is_told_before_anything_starts() -> None:
    state = Path("/dev/shm", f"hf-{os.getpid()}-state")
    words = ("run", "--state-dir", str(state), str(Path(__file__)))
    command = [*READ_ONLY, sys.executable, "-m", "controlplane", *words]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    finally:
        shutil.rmtree(state, ignore_errors=True)
    assert done.returncode == 1
    assert done.stderr.startswith("holdfast run: no sockets can be made in /tmp/holdfast-0: Read-only file")
    assert "let this user write in /tmp" in done.stderr


def test_a_question_goes_to_the_default_address() -> None:
    done = holdfast("status", "--coordinator", "")
    assert "no coordinator answers" in done.stderr, done.stderr
