"""What one process shows of holdfast.dcp: types, corruption, ids, staging, increments."""

from __future__ import annotations

import os
import re
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.planner import SavePlanner
from torch.distributed.checkpoint.staging import AsyncStager

from holdfast.checkpoint.errors import CheckpointCorrupt, CheckpointRefused
from holdfast.checkpoint.format import names
from holdfast.checkpoint.load import listing, read_manifest
from holdfast.checkpoint.storage.store import Store
from holdfast.dcp import HoldfastReader, HoldfastStager, HoldfastWriter, load
from holdfast.errors import SessionError
from tests.sdk.dcp.dcp_states import JOB, StateDict, blank, same, zoo
from tests.sdk.plain_dcp import dcp

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/storage"


def chunk_files(tmp_path: Path) -> list[Path]:
    files = (tmp_path / "storage").glob("jobs/job/bases/*/chunks/*/*")
    return sorted(files, key=lambda path: (path.stat().st_size, path))


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_every_kind_of_tensor_and_of_plain_data_comes_back(url: str, codec: str) -> None:
    dcp.save(zoo(), storage_writer=HoldfastWriter(url, job=JOB, step=3, codec=codec))
    state = blank(zoo())
    dcp.load(state, storage_reader=HoldfastReader(url, job=JOB))
    assert same(state, zoo())


def test_equal_bytes_are_stored_once(url: str, tmp_path: Path) -> None:
    values = torch.randn(100_000)
    dcp.save({"a": values, "b": values.clone()}, storage_writer=HoldfastWriter(url, job=JOB, step=3))
    assert [path.stat().st_size for path in chunk_files(tmp_path)] == [values.nbytes]


def test_what_cannot_be_kept_is_refused_by_name(url: str) -> None:
    state = {"model": {"weight": torch.ones(3)}, "optimizer": {"hook": {"f": print}}}
    with pytest.raises(CheckpointException, match=r"optimizer\.hook\.f.*cannot be kept"):
        dcp.save(state, storage_writer=HoldfastWriter(url, job=JOB, step=3))
    assert listing(Store.open(url), JOB) == []


def test_an_id_is_never_overwritten(url: str) -> None:
    writer = HoldfastWriter(url, job=JOB)
    dcp.save({"a": torch.ones(3)}, storage_writer=writer, checkpoint_id="3")
    with pytest.raises(CheckpointException, match=r"3-0 of job job exists .* another step or generation"):
        dcp.save({"a": torch.zeros(3)}, storage_writer=writer, checkpoint_id="3")
    state = {"a": torch.zeros(3)}
    dcp.load(state, storage_reader=HoldfastReader(url, job=JOB))
    assert state["a"].tolist() == [1, 1, 1]


def test_of_saves_of_one_id_at_once_one_wins(url: str) -> None:
    def attempt(value: float) -> str:
        try:
            state = {"a": torch.full((50_000,), value)}
            dcp.save(state, storage_writer=HoldfastWriter(url, job=JOB, step=3), no_dist=True)
        except CheckpointException as error:
            assert re.search("3-0 of job job exists|3-0: another save of it is already published", str(error))
            return ""
        return str(value)

    outcomes: list[str] = []
    threads = [threading.Thread(target=lambda v=v: outcomes.append(attempt(v))) for v in (1.0, 2.0, 3.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [outcome for outcome in outcomes if outcome]
    state = {"a": torch.zeros(50_000)}
    dcp.load(state, storage_reader=HoldfastReader(url, job=JOB))
    assert set(state["a"].tolist()) == {float(winner)}


def two_checkpoints(url: str) -> None:
    for step in (1, 2):
        state = {"weight": torch.full((400_000,), float(step)) + torch.arange(400_000) % 7}
        dcp.save(state, storage_writer=HoldfastWriter(url, job=JOB, step=step))


def spoil_newest(tmp_path: Path, how: str) -> str:
    (path,) = (tmp_path / "storage").glob("jobs/job/bases/2-0/chunks/*/*")
    content = bytearray(path.read_bytes())
    content[1234] ^= 8
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes(content if how == "flipped" else content[:-1])
    return path.name


@pytest.mark.parametrize("how", ["flipped", "short", "missing"])
def test_a_spoilt_chunk_is_named_and_reaches_no_tensor(url: str, tmp_path: Path, how: str) -> None:
    two_checkpoints(url)
    name = spoil_newest(tmp_path, how)
    state = {"weight": torch.zeros(400_000)}
    with pytest.raises(CheckpointException, match=f"checkpoint 2-0: chunk {name}") as raised:
        dcp.load(state, storage_reader=HoldfastReader(url, job=JOB))
    assert isinstance(raised.value.failures[0][0], CheckpointCorrupt)
    assert not state["weight"].any()
    with pytest.raises(CheckpointException, match="2-0"):
        load(state, url, job=JOB)
    assert load(state, url, job=JOB, fallback=True) == "1-0"
    assert state["weight"][0] == 1


def test_a_spoilt_manifest_is_passed_over_unless_it_was_named(url: str, tmp_path: Path) -> None:
    two_checkpoints(url)
    path = tmp_path / "storage/jobs/job/manifests/2-0.json"
    path.write_bytes(path.read_bytes().replace(b'"step":2', b'"step":3', 1))
    state = {"weight": torch.zeros(400_000)}
    dcp.load(state, storage_reader=HoldfastReader(url, job=JOB))
    assert state["weight"][0] == 1
    with pytest.raises(CheckpointException, match="2-0: manifest: its content has digest"):
        dcp.load(state, storage_reader=HoldfastReader(url, job=JOB), checkpoint_id="2-0")
    with pytest.raises(CheckpointRefused, match="has no checkpoint to load"):
        load(state, url, job="other")


def test_an_increment_writes_what_changed(url: str, tmp_path: Path) -> None:
    state: StateDict = {"a": torch.randn(200_000), "b": torch.randn(300_000)}
    dcp.save(state, storage_writer=HoldfastWriter(url, job=JOB, step=1))
    before = set(chunk_files(tmp_path))
    state["b"] += 1
    dcp.save(state, storage_writer=HoldfastWriter(url, job=JOB, step=2, kind="incremental"))
    assert [path.stat().st_size for path in set(chunk_files(tmp_path)) - before] == [1_200_000]
    manifest = read_manifest(Store.open(url), JOB, "2-0")
    assert (manifest.kind, manifest.base) == ("incremental", "1-0")
    found = {"a": torch.zeros(200_000), "b": torch.zeros(300_000)}
    dcp.load(found, storage_reader=HoldfastReader(url, job=JOB))
    assert same(found, state)


def test_plans_that_are_cached_serve_later_saves(url: str) -> None:
    state: StateDict = {"a": torch.zeros(100), "n": 0}
    for step in (1, 2, 3):
        state["a"] += 1
        state["n"] = step
        planner = DefaultSavePlanner(enable_plan_caching=True)
        dcp.save(state, storage_writer=HoldfastWriter(url, job=JOB, step=step), planner=planner)
        found = {"a": torch.zeros(100), "n": 0}
        dcp.load(found, storage_reader=HoldfastReader(url, job=JOB))
        assert same(found, state)
    SavePlanner._cached_save_plan.clear()
    SavePlanner._cached_all_plans.clear()


def test_an_increment_on_nothing_is_refused(url: str) -> None:
    with pytest.raises(CheckpointException, match="no full one to build on"):
        dcp.save(
            {"a": torch.ones(2)}, storage_writer=HoldfastWriter(url, job=JOB, step=1, kind="incremental")
        )


# ---------------------------------------------------------------------- staging


def test_staging_reuses_its_memory_once_the_save_is_over(url: str) -> None:
    stager = HoldfastStager(arenas=1, wait_s=0.0)
    assert isinstance(stager, AsyncStager)
    state: StateDict = {"w": torch.randn(100_000), "n": {"step": 1}}
    addresses = set()
    for step in (1, 2, 3):
        state["w"] += 1
        staged = stager.stage(state)
        addresses.add(staged["w"].data_ptr())
        with pytest.raises(SessionError, match="earlier saves still read their copies"):
            stager.stage(state)
        dcp.save(staged, storage_writer=HoldfastWriter(url, job=JOB, step=step))
        del staged
    assert len(addresses) == 1
    found = {"w": torch.zeros(100_000), "n": {"step": 0}}
    dcp.load(found, storage_reader=HoldfastReader(url, job=JOB))
    assert same(found, {"w": state["w"], "n": {"step": 1}})
    stager.close()


def test_a_grown_state_gets_more_memory_and_tied_tensors_are_copied_once() -> None:
    with_stager = HoldfastStager(arenas=1)
    small = with_stager.stage({"w": torch.ones(10)})
    assert small["w"].tolist() == [1] * 10
    del small
    values = torch.arange(1_000_000.0)
    staged = with_stager.stage({"w": values, "again": values, "part": values[::2]})
    assert staged["w"].data_ptr() == staged["again"].data_ptr()
    assert torch.equal(staged["part"], values[::2])
    with_stager.close()
    assert torch.equal(staged["w"], values)  # closed, but still looked at


class Slow(HoldfastWriter):
    """A save that waits before it reads the state."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.go = threading.Event()

    def write_data(self, plan: Any, planner: Any) -> Any:
        assert self.go.wait(30)
        return super().write_data(plan, planner)


def test_the_writer_stages_too_and_later_steps_do_not_reach_what_it_saves(url: str) -> None:
    state = {"w": torch.zeros(200_000)}
    writer = Slow(url, job=JOB)
    futures = []
    for step in (1, 2):
        state["w"].fill_(step)
        future = dcp.async_save(state, storage_writer=writer, checkpoint_id=str(step), no_dist=True)
        assert isinstance(future, Future)
        state["w"].fill_(-1)
        assert not future.done()
        writer.go.set()
        future.result()
        futures.append(future)
        writer.go.clear()
    for step in (1, 2):
        found = {"w": torch.zeros(200_000)}
        dcp.load(found, storage_reader=HoldfastReader(url, job=JOB, checkpoint=f"{step}-0"))
        assert set(found["w"].tolist()) == {step}
    writer.close()


def test_a_failed_save_gives_its_memory_back(url: str) -> None:
    stager = HoldfastStager(arenas=1, wait_s=10.0)
    for _ in range(2):
        future = dcp.async_save(
            {"w": torch.ones(1000), "f": print},
            storage_writer=HoldfastWriter(url, job=JOB, step=1),
            async_stager=stager,
            no_dist=True,
        )
        with pytest.raises(CheckpointException, match="cannot be kept"):
            future.result()
        del future
    stager.close()


def test_what_cannot_be_staged_is_named() -> None:
    with pytest.raises(SessionError, match=r"model\.w of layout torch\.sparse_coo"):
        HoldfastStager().stage({"model": {"w": torch.eye(3).to_sparse()}})


def test_a_checkpoint_in_memory(tmp_path: Path) -> None:
    """Any fsspec URL will do."""
    url = f"memory://{tmp_path.name}-{os.getpid()}-{time.monotonic_ns()}"
    dcp.save({"a": torch.arange(5)}, storage_writer=HoldfastWriter(url, job=JOB, step=0))
    state = {"a": torch.zeros(5, dtype=torch.int64)}
    dcp.load(state, storage_reader=HoldfastReader(url, job=JOB))
    assert state["a"].tolist() == [0, 1, 2, 3, 4]
    assert names.manifest(JOB, "0-0")
