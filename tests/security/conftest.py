from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.daemon.etcd_fixtures import etcd_server
from tests.security.authority import Authority

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["etcd_server"]


@pytest.fixture
def authority(folder: Path) -> Authority:
    return Authority(folder)
