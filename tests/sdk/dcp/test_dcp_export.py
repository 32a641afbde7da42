"""Exports: other people's readers find every tensor whole."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors import safe_open

from holdfast.checkpoint.errors import CheckpointCorrupt, CheckpointError
from holdfast.checkpoint.export import safetensors
from holdfast.checkpoint.format import typed
from holdfast.checkpoint.storage.store import Store
from holdfast.dcp import HoldfastWriter
from holdfast.dcp import export as dcp_export
from tests.sdk.dcp.dcp_states import (
    JOB,
    blank,
    same,
    saved_by_an_agent,
    session_state,
    sharded_by_agents,
    zoo,
)
from tests.sdk.dcp_ranks import Ranks
from tests.sdk.plain_dcp import dcp

if TYPE_CHECKING:
    from pathlib import Path

    from tests.sdk.zygote import Zygote

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def contents(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    with safe_open(path, "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()


def test_a_safetensors_file_holds_every_tensor_whole(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/storage"
    dcp.save(zoo(), storage_writer=HoldfastWriter(url, job=JOB, step=3, codec="zstd"))
    heard: list[int] = []
    size = safetensors(Store.open(url), JOB, "3-0", tmp_path / "out.safetensors", progress=heard.append)
    assert size == (tmp_path / "out.safetensors").stat().st_size
    assert sum(heard) > 12_000_000
    found, about = contents(tmp_path / "out.safetensors")
    flat = {name: value for name, value in zoo().items() if isinstance(value, torch.Tensor)}
    flat |= {"nested.list.0": torch.ones(2), "nested.list.1.deep": torch.zeros(3)}
    assert same(found, flat)
    plain = typed.decode(json.loads(about["holdfast.plain"]))
    assert plain["plain.tuple"] == (1, 2.5, b"\0")
    assert about["holdfast.checkpoint"] == "3-0"


def test_shards_by_rows_and_by_columns_are_joined(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/storage"
    rows, columns = torch.randn(8, 6), torch.randn(7, 5)
    sharded_by_agents(url, tmp_path, rows, columns)
    safetensors(Store.open(url), JOB, "9-1", tmp_path / "out")
    assert same(
        contents(tmp_path / "out")[0], {"m.rows": rows, "m.columns": columns, "m.bias": torch.arange(4.0)}
    )


def test_what_ranks_saved_is_exported_as_they_held_it(dcp_zygote: Zygote, tmp_path: Path) -> None:
    ranks = Ranks(dcp_zygote, tmp_path)
    (told, *_) = ranks.run("save", 4, kind="both")
    safetensors(Store.open(ranks.url), JOB, "7-0", tmp_path / "out")
    found, _ = contents(tmp_path / "out")
    shapes = {f".{name}": f"{tuple(tensor.shape)} {tensor.dtype}" for name, tensor in found.items()}
    wanted = {name: text.rpartition(" ")[0] for name, text in told.items() if "torch." in text}
    assert shapes == wanted


def test_a_folder_that_plain_torch_loads(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/storage"
    model, _, tracked = session_state()
    saved_by_an_agent(tracked, url, tmp_path)
    dcp_export.folder(url, JOB, "5-1", tmp_path / "folder")
    state = {"model": blank(dict(model.state_dict()))}
    dcp.load(state, checkpoint_id=tmp_path / "folder")
    assert same(state["model"], dict(model.state_dict()))
    with pytest.raises(CheckpointError, match="exists and is not overwritten"):
        dcp_export.folder(url, JOB, "5-1", tmp_path / "folder")


def test_a_spoilt_checkpoint_leaves_no_file(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/storage"
    dcp.save({"a": torch.ones(50_000)}, storage_writer=HoldfastWriter(url, job=JOB, step=3))
    (chunk,) = (tmp_path / "storage").glob("jobs/job/bases/3-0/chunks/*/*")
    chunk.write_bytes(b"x" + chunk.read_bytes()[1:])
    with pytest.raises(CheckpointCorrupt, match=chunk.name):
        safetensors(Store.open(url), JOB, "3-0", tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["storage"]


def test_what_safetensors_cannot_hold_and_files_that_exist_are_refused(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/storage"
    state = {"z": torch.zeros(3, dtype=torch.complex128)}
    dcp.save(state, storage_writer=HoldfastWriter(url, job=JOB, step=3))
    with pytest.raises(CheckpointError, match=r"tensor z of type complex128 .* export as a DCP folder"):
        safetensors(Store.open(url), JOB, "3-0", tmp_path / "out")
    (tmp_path / "out").touch()
    with pytest.raises(CheckpointError, match="exists and is not overwritten"):
        safetensors(Store.open(url), JOB, "3-0", tmp_path / "out")
