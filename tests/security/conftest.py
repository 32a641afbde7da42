from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.daemon.etcd_fixtures import etcd_server
from tests.security.authority import Authority

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["etcd_server"]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short-named folder of the test's own."""
    path = Path(tempfile.mkdtemp(dir="/tmp", prefix="hf-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def authority(folder: Path) -> Authority:
    return Authority(folder)
