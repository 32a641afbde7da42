from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.daemon.conftest import cluster, make, shared_cluster, shared_coordinator, shared_etcd
from tests.daemon.etcd_fixtures import etcd_server
from tests.skew import before

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["cluster", "etcd_server", "make", "shared_cluster", "shared_coordinator", "shared_etcd"]


@pytest.fixture(scope="session")
def old() -> Iterator[Path]:
    """The packages of the version before, from git."""
    if not before.at_hand():
        pytest.skip(f"git has no commit {before.commit()[:12]} here: its recorded streams are played instead")
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="hf-"))
    yield before.unpack(folder)
    shutil.rmtree(folder)
