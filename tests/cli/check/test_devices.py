"""How many devices a node has: torch is asked, but not imported if its build knows none.

Stands in for torch: a package that says what it is built for, and how many devices it sees."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

SEES_THREE = """
class cuda:
    def device_count():
        return 3
"""


@pytest.mark.parametrize(
    ("version", "devices"),
    [
        ("cuda = None\nhip = None\n", 0),
        ("cuda = '12.8'\nhip = None\n", 3),
        ("cuda = None\nhip = '6.4'\n", 3),
        ("cuda = None\n", 3),
        ("", 3),
        (None, 3),
    ],
)
def test_a_build_that_may_know_devices_is_asked(tmp_path: Path, version: str | None, devices: int) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(SEES_THREE)
    if version is not None:
        (tmp_path / "torch" / "version.py").write_text(version)
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.node_check", "devices", "1", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        check=True,
        text=True,
    )
    assert json.loads(done.stdout) == {"devices": devices}
