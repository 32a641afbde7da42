"""What tests of every folder use."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of the test's own, whose name is short enough for Unix sockets."""
    path = Path(tempfile.mkdtemp(dir="/tmp", prefix="hf-"))
    yield path
    shutil.rmtree(path)
