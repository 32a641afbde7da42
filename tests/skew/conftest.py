from __future__ import annotations

import re
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

RELEASED = "0.0.9"
__all__ = ["cluster", "etcd_server", "make", "shared_cluster", "shared_coordinator", "shared_etcd"]


@pytest.fixture(scope="session")
def old() -> Iterator[Path]:
    """The packages of the version before, from git."""
    if not before.at_hand():
        pytest.skip(f"git has no commit {before.commit()[:12]} here: its recorded streams are played instead")
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="hf-"))
    yield before.unpack(folder)
    shutil.rmtree(folder)


@pytest.fixture
def released(old: Path, folder: Path) -> Path:
    """The same packages with a version number of their own, as a release has: commits between releases share
    one."""
    tree = folder / "released"
    shutil.copytree(old, tree)
    path = tree / "holdfast" / "version.py"
    text, found = re.subn(r'(?m)^__version__ = ".*"$', f'__version__ = "{RELEASED}"', path.read_text())
    assert found == 1
    path.write_text(text)
    return tree
