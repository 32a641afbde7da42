"""Nonsense under a right digest, and what is no file where one should be, are refused by name and at once."""

from __future__ import annotations

import copy
import json
import os
import stat
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.distributed.checkpoint.api import CheckpointException

from controlplane.cli.checkpoint import verifying
from holdfast.checkpoint import export
from holdfast.checkpoint.errors import CheckpointCorrupt, CheckpointError
from holdfast.checkpoint.format import envelope, names
from holdfast.checkpoint.format.manifest import KIND, decode_manifest
from holdfast.checkpoint.load import listing, load, verify
from holdfast.dcp import HoldfastReader, HoldfastWriter
from tests.checkpoint.states import JOB, arena_for, save, snapshot
from tests.sdk.plain_dcp import dcp

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from holdfast.checkpoint.storage.store import Store
    from holdfast.ipc.arena import Arena
    from tests.checkpoint.states import Shapes

SHAPES: Shapes = [("w", "float32", (20_000,)), ("b", "float32", (16,))]
HUGE = 1 << 61
Body = dict[str, Any]


@pytest.fixture
def body(store: Store, shm: Path) -> Body:
    """The body of a manifest that makes sense."""
    with arena_for(shm / "saved", SHAPES) as arena:
        result = save(store, snapshot(arena, 10, SHAPES, seed=1))
    fields: Body = json.loads(result.manifest)["manifest"]
    return fields


def tensor(fields: Body, number: int = 0) -> Body:
    found: Body = fields["shards"][0]["tensors"][number]
    return found


def doubled(fields: Body, *, shard: str = "all") -> None:
    fields["shards"].append(copy.deepcopy(fields["shards"][0]) | {"shard": shard})


def small(fields: Body, **words: Any) -> None:
    """The last tensor, with other words."""
    tensor(fields, 1).update(words)


def far(fields: Body) -> None:
    small(fields, offset=HUGE)
    fields["shards"][0]["data_bytes"] = HUGE + 64


NONSENSE: dict[str, tuple[Callable[[Body], object], str]] = {
    "a shard twice": (doubled, "shard 'all' appears twice"),
    "a tensor twice": (lambda f: small(f, name="w"), "in shard all tensor .*'w'.* appears twice"),
    "a rank twice": (lambda f: f["shards"][0].update(ranks=[0, 0]), "in shard all rank 0 appears twice"),
    "a rank without version": (lambda f: f["shards"][0].update(ranks=[7]), "rank 7, which has no version"),
    "a version twice": (lambda f: f["versions"].append([0, 10]), "the version of rank 0 appears twice"),
    "a version of another step": (lambda f: f.update(versions=[[0, 10], [1, 9]]), "rank 1 is of step 9"),
    "no shards": (lambda f: f.update(shards=[]), "it has no shards"),
    "an unknown type": (lambda f: small(f, dtype="float33"), "'b' has the unknown type float33"),
    "another type": (lambda f: small(f, dtype="float64"), "'b' has 64 bytes, which does not fit float64"),
    "another shape": (
        lambda f: small(f, shape=[8]),
        r"'b' has 64 bytes, which does not fit float32 of shape \(8,\)",
    ),
    "dimensions": (lambda f: small(f, shape=[1] * 4999 + [16]), "'b' has 5000 dimensions"),
    "an unknown kind": (lambda f: f.update(kind="partial"), "kind 'partial' does not fit id 10-1"),
    "full, of another base": (lambda f: f.update(base="9-1"), "kind 'full' does not fit .* base 9-1"),
    "incremental, its own base": (lambda f: f.update(kind="incremental"), "'incremental' does not fit"),
    "an index of a tensor": (
        lambda f: f["shards"][0].update(state={"dict": [["w", {"tensor": 2}]]}),
        "shard all has no tensor 2, which its state names",
    ),
    "no index of a tensor": (
        lambda f: f["shards"][0].update(state=[[{"tensor": "w"}]]),
        "shard all has no tensor 'w', which its state names",
    ),
    "an index of a chunk": (lambda f: tensor(f)["pieces"][0].__setitem__(0, 2), "outside of the chunks"),
    "a slot of 2^61 bytes": (
        lambda f: f["shards"][0].update(data_bytes=HUGE),
        f"shard all of {HUGE} bytes has 80064 bytes of tensors",
    ),
    "a tensor of 2^61 bytes": (
        lambda f: small(f, shape=[HUGE // 4], nbytes=HUGE),
        "is malformed",
    ),
    "a tensor 2^61 bytes away": (far, "bytes before tensor 'b' belong to no tensor"),
    "a chunk twice": (lambda f: f["chunks"].append(f["chunks"][0]), "chunk .* appears twice"),
    "a million chunks": (
        lambda f: f["chunks"].extend({**f["chunks"][0], "blake3": f"{n:064x}"} for n in range(1_000_000)),
        r"chunk number 2 belongs to no tensor \(1000000 such chunks\)",
    ),
}
"""What is wrong, how it is made, and what is said."""
MARKS = {"a million chunks": pytest.mark.slow}


def put(store: Store, body: Body) -> bytes:
    content, _ = envelope.encode(KIND, body)
    store.replace(names.manifest(JOB, "10-1"), content)
    return content


def told(store: Store) -> str:
    (found,) = verifying.verify(store, JOB, listing(store, JOB))
    return " ".join(found.errors)


@pytest.mark.parametrize("what", [pytest.param(what, marks=MARKS.get(what, ())) for what in NONSENSE])
def test_nonsense_under_a_right_digest_is_refused_by_name(store: Store, body: Body, what: str) -> None:
    assert told(store) == ""
    change, message = NONSENSE[what]
    change(body)
    content = put(store, body)
    with pytest.raises(CheckpointCorrupt, match=f"checkpoint 10-1: manifest: .*{message}"):
        decode_manifest(content, JOB, "10-1")
    assert "checkpoint 10-1: manifest: is malformed" in told(store)


def test_a_part_of_a_larger_tensor_without_the_others_is_told(store: Store, body: Body) -> None:
    small(body, global_shape=[HUGE], global_offset=[0])
    put(store, body)
    assert f"tensor 'b' of ({HUGE},) is stored in parts that have 16 elements together" in told(store)


STANDS: dict[str, tuple[Callable[[Path], object], str]] = {
    "FIFO": (os.mkfifo, "is a FIFO, not a file"),
    "socket": (lambda path: os.mknod(path, stat.S_IFSOCK | 0o600), "is a socket"),
    "folder": (os.mkdir, "is a folder, not a file"),
    "link": (lambda path: path.symlink_to("/dev/zero"), "is a link, not a file"),
}
"""What stands where a file should be."""


def spoil(path: Path, what: str) -> None:
    path.unlink()
    STANDS[what][0](path)


@pytest.mark.parametrize("what", STANDS)
def test_what_is_no_file_is_no_chunk(store: Store, folder: Path, body: Body, arena: Arena, what: str) -> None:
    path = max((folder / "storage/jobs/job/bases/10-1/chunks").rglob("*/*"), key=lambda p: p.stat().st_size)
    spoil(path, what)
    said = f"checkpoint 10-1: chunk {path.name}: .*{STANDS[what][1]}"
    for read in (
        lambda: verify(store, JOB, "10-1"),
        lambda: load(store, arena, job=JOB, checkpoint="10-1"),
        lambda: export.safetensors(store, JOB, "10-1", folder / "exported"),
    ):
        with pytest.raises(CheckpointCorrupt, match=said):
            read()
    assert STANDS[what][1] in told(store)
    assert not (folder / "exported").exists()


@pytest.mark.parametrize("what", STANDS)
def test_what_is_no_file_is_no_manifest(store: Store, folder: Path, body: Body, what: str) -> None:
    spoil(folder / "storage/jobs/job/manifests/10-1.json", what)
    with pytest.raises(CheckpointError, match=f"manifest: .*{STANDS[what][1]}"):
        verify(store, JOB, "10-1")


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("what", STANDS)
def test_what_is_no_file_ends_dcp_load(tmp_path: Path, what: str) -> None:
    url = f"file://{tmp_path}"
    dcp.save({"w": torch.ones(5)}, storage_writer=HoldfastWriter(url, job=JOB, step=3))
    (path,) = tmp_path.glob("jobs/job/bases/*/chunks/*/*")
    spoil(path, what)
    with pytest.raises(CheckpointException, match=STANDS[what][1]):
        dcp.load({"w": torch.zeros(5)}, storage_reader=HoldfastReader(url, job=JOB))
