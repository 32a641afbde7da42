"""Checkpoints that agents made of snapshots, read by holdfast.dcp."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from holdfast.dcp import HoldfastReader, load_into
from holdfast.errors import RestoreError
from holdfast.groups import transfer
from tests.sdk.dcp.dcp_states import JOB, blank, same, saved_by_an_agent, session_state, sharded_by_agents
from tests.sdk.plain_dcp import dcp

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/storage"


def test_an_agents_checkpoint_loads_through_dcp(url: str, tmp_path: Path) -> None:
    model, optimizer, tracked = session_state()
    saved_by_an_agent(tracked, url, tmp_path)
    wanted = {"model": dict(model.state_dict()), "optimizer": optimizer.state_dict()}
    state = blank(wanted)
    groups = wanted["optimizer"]["param_groups"]
    state["optimizer"]["param_groups"] = [dict.fromkeys(group) for group in groups]
    dcp.load(state, storage_reader=HoldfastReader(url, job=JOB))
    assert same(state["model"], wanted["model"])
    assert same(state["optimizer"]["state"], wanted["optimizer"]["state"])
    assert state["optimizer"]["param_groups"] == groups


def test_an_agents_checkpoint_is_read_into_tensors_by_the_names_of_its_slots(
    url: str, tmp_path: Path
) -> None:
    _, _, tracked = session_state()
    saved_by_an_agent(tracked, url, tmp_path)
    flat = tracked.flatten()
    targets = {name: torch.zeros_like(tensor) for name, tensor in zip(flat.names, flat.tensors, strict=True)}
    header = load_into(targets, url, JOB, "5-1")
    assert same(targets, dict(zip(flat.names, flat.tensors, strict=True)))
    entries, _ = transfer.read(header, "the checkpoint")
    assert [entry.name for entry in entries] == list(flat.names)
    with pytest.raises(RestoreError, match=r"has no tensor 'model\.other'"):
        load_into({"model.other": torch.zeros(1)}, url, JOB)
    with pytest.raises(RestoreError, match="another model"):
        load_into({flat.names[0]: torch.zeros(3)}, url, JOB)


def test_shards_of_the_agents_are_joined(url: str, tmp_path: Path) -> None:
    rows, columns = torch.randn(8, 6), torch.randn(7, 5)
    sharded_by_agents(url, tmp_path, rows, columns)
    state = {"m": {"rows": torch.zeros(8, 6), "columns": torch.zeros(7, 5), "bias": torch.zeros(4)}}
    dcp.load(state, storage_reader=HoldfastReader(url, job=JOB))
    assert same(state["m"], {"rows": rows, "columns": columns, "bias": torch.arange(4.0)})
