from __future__ import annotations

import asyncio
import itertools
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.daemon.etcd_fixtures import etcd, etcd_server, keys, own_server
from tests.daemon.rig import Coordinator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from controlplane.daemon.etcd.server import PrivateEtcd

__all__ = ["etcd", "etcd_server", "keys", "own_server"]

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def shared_etcd(etcd_server: PrivateEtcd) -> str:
    """host:port of the session's etcd; each test uses a cluster name of its own."""
    return etcd_server.endpoint


@pytest.fixture
def cluster() -> str:
    """A cluster name that no other test has."""
    return f"c{next(_NUMBERS)}"


@pytest.fixture
def make(shared_etcd: str, cluster: str, folder: Path) -> Iterator[Callable[..., Coordinator]]:
    """A function that starts coordinators of the test's cluster. They are ended after the test."""
    made: list[Coordinator] = []

    def one(name: str = "a", **settings: Any) -> Coordinator:
        etcd = settings.pop("etcd", shared_etcd)
        made.append(Coordinator(folder, etcd, cluster, name, **settings))
        return made[-1]

    yield one
    for coordinator in made:
        coordinator.end()


@pytest.fixture(scope="module")
def shared_cluster() -> str:
    """The cluster of `shared_coordinator`."""
    return f"c{next(_NUMBERS)}"


@pytest.fixture(scope="module")
def shared_coordinator(shared_etcd: str, shared_cluster: str) -> Iterator[Coordinator]:
    """One leading coordinator, shared by the tests of a module that change nothing in it."""
    path = Path(tempfile.mkdtemp(dir="/tmp", prefix="hf-"))
    coordinator = Coordinator(path, shared_etcd, shared_cluster)

    async def begin() -> None:
        await coordinator.start()
        await coordinator.leads()

    asyncio.run(begin())
    yield coordinator
    coordinator.end()
    shutil.rmtree(path)
