"""Start a Slurm for the tests of this folder. `make test` skips them: they take minutes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from controlplane.daemon.etcd.binary import find_binary
from controlplane.daemon.etcd.errors import PrivateEtcdError
from tests.slurm.cluster import SlurmCluster, missing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def slurm(folder: Path) -> Iterator[SlurmCluster]:
    """A Slurm of the test's own."""
    if os.environ.get("HOLDFAST_SLURM") != "1":
        pytest.skip("`make slurm` runs it: it takes minutes")
    if missing():
        pytest.skip(f"no {', '.join(missing())} here: apt-get install slurm-wlm munge")
    if os.geteuid() != 0:
        pytest.skip("slurmd needs root here")
    try:
        find_binary()
    except PrivateEtcdError as error:
        pytest.skip(str(error))
    cluster = SlurmCluster(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.end()
