"""holdfast.dcp on an object store, where chunks go into bundles: each waits until its own is written."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
import torch

from holdfast.checkpoint.load import read_manifest, verify
from holdfast.checkpoint.storage.store import Store
from holdfast.dcp import HoldfastReader, HoldfastWriter
from tests.checkpoint.s3 import s3, s3_bucket, s3_server
from tests.sdk.dcp.dcp_states import JOB, blank, same, zoo
from tests.sdk.plain_dcp import dcp

if TYPE_CHECKING:
    from tests.sdk.dcp.dcp_states import StateDict

__all__ = ["s3", "s3_bucket", "s3_server"]

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def unaligned() -> StateDict:
    """Thirty tensors of 3 MiB, none of which begins at a page."""
    whole = torch.frombuffer(bytearray(os.urandom(31 * 3 << 20)), dtype=torch.float32)
    each = 3 << 18
    return {f"w{number}": whole[number * each + 1 : (number + 1) * each + 1] for number in range(30)}


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_what_is_saved_to_bundles_comes_back(s3: str, codec: str) -> None:
    state = unaligned() | {"zoo": zoo()}
    dcp.save(state, storage_writer=HoldfastWriter(s3, job=JOB, step=3, codec=codec))
    store = Store.open(s3)
    verify(store, JOB, "3-0")
    assert all(chunk.bundle for chunk in read_manifest(store, JOB, "3-0").chunks)
    store.close()
    found = blank(state)
    dcp.load(found, storage_reader=HoldfastReader(s3, job=JOB))
    assert same(found, state)
