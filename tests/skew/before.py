"""Get the version before this one: its commit, and its files from git, where the history is there."""

from __future__ import annotations

import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = Path(__file__).with_name("before.txt")
PACKAGES = ("agent", "controlplane", "holdfast")


def commit() -> str:
    """The hash in before.txt. Raises ValueError when there is not one line with one."""
    lines = [line for line in NAMED.read_text().splitlines() if line and not line.startswith("#")]
    if len(lines) != 1 or len(lines[0]) != 40:
        raise ValueError(
            f"{NAMED.name} names the version before by one line with a commit of 40 digits: {lines}"
        )
    return lines[0]


def at_hand() -> bool:
    """Whether git can give that version here. It cannot in a shallow clone, or in sources without git."""
    try:
        return _git("cat-file", "-e", f"{commit()}^{{commit}}").returncode == 0
    except FileNotFoundError:
        return False  # no git on this machine


def unpack(folder: Path) -> Path:
    """Put that version's packages into this folder, and return the folder."""
    done = _git("archive", "--format=tar", commit(), "--", *PACKAGES)
    if done.returncode != 0:
        raise RuntimeError(f"git archive {commit()}: {done.stderr.decode()}")
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        if hasattr(tarfile, "data_filter"):  # since Python 3.11.4
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(folder)
    return folder


def _git(*words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, check=False)
