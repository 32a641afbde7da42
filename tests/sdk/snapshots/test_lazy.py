"""Snapshots that are copied beside the next step hold the bytes of their boundary, or are given up."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

from holdfast.environment import Environment
from holdfast.errors import SessionError
from holdfast.ipc import layout
from holdfast.ipc.arena import Arena, SlotState
from holdfast.snapshots import lazy, snapshot
from holdfast.snapshots.plan import SnapshotPlan
from holdfast.state.tracked import TrackedState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SIDE = 256  # a weight of this side squared is large enough to be copied late
_COMPARED = 3  # snapshots at the beginning are compared byte for byte


class Rig:
    """A model and its optimizer, with an arena of their own."""

    def __init__(self, path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.optimizer = model, optimizer
        self.step()
        self.tracked = _tracked(model, optimizer)
        self.writer = snapshot.SnapshotWriter(self.tracked)
        self.arena = Arena.create(path, self.writer.needs() + (1 << 16))
        self.writer.attach(str(path))
        self.taken = 0

    def step(self) -> None:
        rows = torch.randn(4, SIDE)
        self.optimizer.zero_grad()
        self.model(rows).square().mean().backward()
        self.optimizer.step()

    def begin(self) -> list[torch.Tensor]:
        """Begin a lazy snapshot. Returns the state of its boundary."""
        expected = [tensor.clone() for tensor in self.writer.look()[0]]
        self.taken += 1
        outcome = self.writer.write(self.taken, 1, released_step=self.taken - 1, lazily=True)
        assert isinstance(outcome, int), outcome
        return expected

    def after_compared(self) -> None:
        """Take as many snapshots as are compared byte for byte at the beginning."""
        for _ in range(_COMPARED):
            self.begin()
            ended = self.writer.settle()
            assert ended is not None and ended.whole and not ended.moved

    def holds(self, expected: list[torch.Tensor]) -> bool:
        """Whether the newest slot has these bytes."""
        slot = self.arena.find(self.taken, generation=1)
        if slot is None:
            return False
        entries, _ = layout.decode(slot.header, slot.data_bytes)
        found = [snapshot.view(slot.memory, entry) for entry in entries]
        return all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def _tracked(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> TrackedState:
    tracked = TrackedState()
    tracked.add("model", model)
    tracked.add("optimizer", optimizer)
    return tracked


def _model() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(SIDE, SIDE), torch.nn.BatchNorm1d(SIDE))


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    model = _model()
    made = Rig(tmp_path / "a.arena", model, torch.optim.AdamW(model.parameters(), fused=True))
    yield made
    made.writer.detach()
    made.arena.close()


def _late(tracked: TrackedState) -> set[str]:
    plan = SnapshotPlan(tracked)
    return {plan.placed[index].name for index in lazy.candidates(plan)}


def test_it_is_not_ready_before_it_is_settled_and_then_has_the_bytes_of_the_boundary(rig: Rig) -> None:
    for _ in range(5):
        expected = rig.begin()
        assert rig.writer.under_way and rig.arena.find(rig.taken) is None
        rig.model(torch.randn(4, SIDE)).sum().backward()  # moves the statistics of BatchNorm
        ended = rig.writer.settle()
        assert ended is not None and ended.whole and not ended.moved
        rig.step()
        assert rig.holds(expected)


def test_the_other_slot_stays_whole_while_one_is_under_way(rig: Rig) -> None:
    first = rig.begin()
    rig.writer.settle()
    assert rig.holds(first)
    rig.step()
    rig.begin()
    newest = rig.arena.newest()
    assert newest is not None and newest.step == 1


def test_a_second_one_is_refused_while_one_is_under_way(rig: Rig) -> None:
    rig.begin()
    with pytest.raises(SessionError, match="under way"):
        rig.writer.write(9, 1, released_step=1)


def test_detaching_gives_up_what_is_under_way(rig: Rig) -> None:
    rig.begin()
    rig.writer.detach()
    assert not rig.writer.under_way and {slot.state for slot in rig.arena.slots} == {SlotState.FREE}


def _in_place(weight: torch.Tensor) -> None:
    with torch.no_grad():
        weight.mul_(2)


def _through_data(weight: torch.Tensor) -> None:
    weight.data.mul_(2)


def _through_numpy(weight: torch.Tensor) -> None:
    weight.detach().numpy()[:] *= 2


@pytest.mark.parametrize("write", [_in_place, _through_data, _through_numpy])
def test_what_moves_is_named_put_right_and_copied_at_the_boundary_from_then_on(
    rig: Rig, write: Callable[[torch.Tensor], None]
) -> None:
    expected = rig.begin()
    write(rig.model[0].weight)  # type: ignore[index]
    ended = rig.writer.settle()
    assert ended is not None and ended.whole and len(ended.moved) == 1 and "weight" in ended.moved[0]
    assert rig.holds(expected)
    expected = rig.begin()
    write(rig.model[0].weight)  # type: ignore[index]
    ended = rig.writer.settle()
    assert ended is not None and not ended.moved and rig.holds(expected)


def test_a_tensor_whose_version_moves_later_costs_that_snapshot(rig: Rig) -> None:
    rig.after_compared()
    rig.begin()
    _in_place(rig.model[0].weight)  # type: ignore[index]
    ended = rig.writer.settle()
    assert ended is not None and not ended.whole and len(ended.moved) == 1
    newest = rig.arena.newest()
    assert newest is not None and newest.step == _COMPARED


@pytest.mark.parametrize("write", [_through_data, _through_numpy])
def test_a_write_past_the_versions_costs_a_snapshot_that_is_not_compared_whole(
    rig: Rig, write: Callable[[torch.Tensor], None]
) -> None:
    rig.after_compared()
    rig.begin()
    write(rig.model[0].weight)  # type: ignore[index]
    ended = rig.writer.settle()
    assert ended is not None and not ended.whole and "weight" in ended.moved[0]
    expected = rig.begin()
    write(rig.model[0].weight)  # type: ignore[index]
    ended = rig.writer.settle()
    assert ended is not None and ended.whole and not ended.moved and rig.holds(expected)


def test_numbers_that_are_not_numbers_stay_the_same(rig: Rig) -> None:
    rig.after_compared()
    rig.model[0].weight.data.fill_(float("nan"))  # type: ignore[index]
    rig.begin()
    ended = rig.writer.settle()
    assert ended is not None and ended.whole and not ended.moved


def test_samples_lie_at_other_places_each_time() -> None:
    tensor = torch.arange(100_000)
    places = [set(lazy.spread(tensor, count).tolist()) for count in range(4)]
    assert all(len(each) >= 32 for each in places) and not set.intersection(*places)
    assert set(lazy.spread(torch.arange(7), 5).tolist()) == set(range(7))


def test_the_first_three_and_every_hundredth_are_compared() -> None:
    assert [count for count in range(250) if lazy.compared(count)] == [0, 1, 2, 99, 199]


def test_parameters_and_state_of_an_optimizer_of_torch_are_late_and_buffers_are_not(rig: Rig) -> None:
    rig.model.register_buffer("table", torch.zeros(SIDE, SIDE))
    late = _late(rig.tracked)
    assert len(late) == 3 and not any("table" in name or "running" in name for name in late)


@pytest.fixture
def group() -> Iterator[None]:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def _fsdp2() -> torch.nn.Module:
    halves = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    model = torch.nn.Sequential(torch.nn.Linear(SIDE, SIDE), torch.nn.Tanh())
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)), mp_policy=halves)
    return model


def _tensor_parallel() -> torch.nn.Module:
    return parallelize_module(_model(), init_device_mesh("cpu", (1,)), {"0": ColwiseParallel()})


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("build", [_fsdp2, _tensor_parallel])
def test_shards_and_their_state_are_late_and_hold_the_bytes_of_the_boundary(
    tmp_path: Path, build: Callable[[], torch.nn.Module]
) -> None:
    model = build()
    rig = Rig(tmp_path / "a.arena", model, torch.optim.AdamW(model.parameters()))
    assert len(_late(rig.tracked)) == 3  # a weight, and both of its moments
    for _ in range(_COMPARED + 2):
        expected = rig.begin()
        rig.model(torch.randn(4, SIDE)).square().mean().backward()
        ended = rig.writer.settle()
        assert ended is not None and ended.whole and not ended.moved
        rig.optimizer.step()
        assert rig.holds(expected)
    rig.begin()
    next(rig.model.parameters()).to_local().data.mul_(2)  # type: ignore[attr-defined]
    ended = rig.writer.settle()
    assert ended is not None and not ended.whole and "weight" in ended.moved[0]
    rig.writer.detach()
    rig.arena.close()


def test_the_target_of_a_momentum_encoder_is_not_late() -> None:
    online, target = torch.nn.Linear(SIDE, SIDE), torch.nn.Linear(SIDE, SIDE)
    tracked = _tracked(online, torch.optim.SGD(online.parameters(), lr=0.1))
    tracked.add("target", target)
    assert {name.split(".")[0] for name in _late(tracked)} == {"model"}


def test_tied_weights_are_not_late() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(SIDE, SIDE), torch.nn.Linear(SIDE, SIDE))
    model[1].weight = model[0].weight
    assert not _late(_tracked(model, torch.optim.SGD(model.parameters(), lr=0.1)))


def test_an_optimizer_in_backward_is_not_late() -> None:
    model = torch.nn.Linear(SIDE, SIDE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.weight.register_post_accumulate_grad_hook(lambda _: None)  # type: ignore[no-untyped-call]
    assert not _late(_tracked(model, optimizer))


def test_an_unknown_optimizer_is_not_late() -> None:
    class Own(torch.optim.SGD):
        pass

    model = torch.nn.Linear(SIDE, SIDE)
    assert not _late(_tracked(model, Own(model.parameters(), lr=0.1)))


def test_inference_tensors_are_not_late() -> None:
    with torch.inference_mode():
        model = torch.nn.Linear(SIDE, SIDE)
    tracked = TrackedState()
    tracked.add("model", model)
    assert not _late(tracked)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=0.1)
    optimizer.param_groups[0]["params"] = list(model.parameters())
    assert not _late(_tracked(model, optimizer))


_DIES = """
import os, signal, sys, torch
from holdfast.snapshots import snapshot
from holdfast.state.tracked import TrackedState
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.BatchNorm1d(256))
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
model(torch.randn(4, 256)).sum().backward()
optimizer.step()
tracked = TrackedState()
tracked.add("model", model)
tracked.add("optimizer", optimizer)
writer = snapshot.SnapshotWriter(tracked)
writer.attach(sys.argv[1])
assert isinstance(writer.write(2, 1, released_step=1, lazily=True), int) and writer.under_way
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_killed_before_it_settles_leaves_the_other_slot_whole(rig: Rig) -> None:
    expected = rig.begin()
    rig.writer.settle()
    ended = subprocess.run([sys.executable, "-c", _DIES, str(rig.arena.path)], check=False, timeout=120)
    assert ended.returncode == -signal.SIGKILL
    assert sorted(slot.state for slot in rig.arena.slots) == sorted([SlotState.READY, SlotState.WRITING])
    assert rig.holds(expected)
    restored = _model()
    fresh = torch.optim.AdamW(restored.parameters(), fused=True)
    snapshot.load(str(rig.arena.path), 1, _tracked(restored, fresh))
    assert torch.equal(restored[0].weight, rig.model[0].weight)  # type: ignore[index]
    assert isinstance(rig.writer.write(2, 2, released_step=1), int)


def test_the_setting_is_read_and_checked() -> None:
    assert not Environment.read({}).snapshot_lazily
    assert Environment.read({"HOLDFAST_SNAPSHOT_COPY": "lazy"}).snapshot_lazily
    with pytest.raises(SessionError, match="eager or lazy"):
        Environment.read({"HOLDFAST_SNAPSHOT_COPY": "later"})
