"""What of a model is no tensor, and how it trains, comes back as it was; what does not fit is named."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.nn.utils import prune

from holdfast import SessionError
from holdfast.agreement import proof
from holdfast.ipc import layout
from holdfast.ipc.arena import Arena
from holdfast.snapshots import plan, snapshot
from holdfast.state.tracked import TrackedState

if TYPE_CHECKING:
    from collections.abc import Callable

GOLDEN = Path(__file__).with_name("golden_header.json")


class Counting(torch.nn.Module):
    """Keeps what is neither parameter nor buffer, as plain data and as a tensor that is made when asked."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
        self.form, self.seen = form, 0

    def get_extra_state(self) -> Any:
        return torch.tensor([self.seen] * (self.seen + 1)) if self.form == "tensor" else {"seen": self.seen}

    def set_extra_state(self, state: Any) -> None:
        self.seen = int(state[0]) if self.form == "tensor" else state["seen"]


class Scaled(torch.nn.Module):
    """Its state_dict gives copies, in another form."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
        self._register_state_dict_hook(self._halve)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_pre_hook(self._double)  # type: ignore[no-untyped-call]

    @staticmethod
    def _halve(_: Any, state: dict[str, Any], *__: Any) -> None:
        state["layer.weight"] = state["layer.weight"] / 2

    @staticmethod
    def _double(_: Any, state: dict[str, Any], *__: Any) -> None:
        state["layer.weight"] = state["layer.weight"] * 2


def tracked(**objects: Any) -> TrackedState:
    made = TrackedState()
    for name, thing in objects.items():
        made.add(name, thing)
    return made


def through(folder: Path, source: TrackedState, target: TrackedState, change: Callable[[], None]) -> None:
    """The second of two snapshots, taken after a change, into other objects."""
    own = snapshot.SnapshotWriter(source)
    with Arena.create(folder / "a.arena", own.needs() + (1 << 16)) as arena:
        own.attach(str(arena.path))
        assert own.write(1, 1, released_step=-1) == 0
        change()
        assert own.write(2, 1, released_step=1) == 1
        snapshot.load(str(arena.path), 2, target)
        own.detach()


def nothing() -> None:
    """No change."""


@pytest.mark.parametrize("form", ["plain", "tensor"])
def test_extra_state_is_the_newest_and_comes_back(tmp_path: Path, form: str) -> None:
    source, target = Counting(form), Counting(form)

    def count() -> None:
        source.seen = 3

    through(tmp_path, tracked(model=source), tracked(model=target), count)
    assert target.seen == 3 and torch.equal(target.layer.weight, source.layer.weight)


def test_a_state_dict_that_gives_copies(tmp_path: Path) -> None:
    source, target = Scaled(), Scaled()

    def move() -> None:
        with torch.no_grad():
            source.layer.weight += 1

    through(tmp_path, tracked(model=source), tracked(model=target), move)
    assert torch.equal(target.layer.weight, source.layer.weight)


def test_a_state_with_more_tensors_than_the_model_is_refused(tmp_path: Path) -> None:
    source, target = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2, bias=False)
    before = target.weight.detach().clone()
    with pytest.raises(SessionError, match=r"the state has model\.state\.bias"):
        through(tmp_path, tracked(model=source), tracked(model=target), nothing)
    assert torch.equal(target.weight, before)


def test_a_buffer_that_is_registered_later_is_kept(tmp_path: Path) -> None:
    source, target = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    target.register_buffer("late", torch.zeros(3))
    through(
        tmp_path,
        tracked(model=source),
        tracked(model=target),
        lambda: source.register_buffer("late", torch.ones(3)),
    )
    assert isinstance(target.late, torch.Tensor) and target.late.all()


class Agent(torch.nn.Module):
    """A net, and one that is now and then a copy of it."""

    def __init__(self) -> None:
        super().__init__()
        self.online = torch.nn.Linear(2, 2)
        self.target = torch.nn.Linear(2, 2)


def test_a_submodule_that_is_replaced_by_another_is_kept(tmp_path: Path) -> None:
    source, target = Agent(), Agent()

    def copy_net() -> None:
        source.target = copy.deepcopy(source.online)

    through(tmp_path, tracked(model=source), tracked(model=target), copy_net)
    assert torch.equal(target.target.weight, source.online.weight)


def test_a_weight_that_is_transposed_in_its_place_is_kept_so(tmp_path: Path) -> None:
    source, target = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)

    def turn() -> None:
        source.weight.data = source.weight.data.t()

    through(tmp_path, tracked(model=source), tracked(model=target), turn)
    assert torch.equal(target.weight, source.weight)


def test_a_buffer_that_takes_more_of_its_memory_is_kept_whole() -> None:
    memory = torch.arange(10.0)
    model = torch.nn.Module()
    model.register_buffer("queue", memory[:2])
    queue: torch.Tensor = model.queue  # type: ignore[assignment]
    objects = tracked(model=model)
    known, _ = plan.current(None, objects)
    queue.data = memory[:5]
    seen, _ = plan.current(known, objects)
    assert seen.tensors[0].tolist() == [0, 1, 2, 3, 4] and seen.placed[0].shape == (5,)


def two() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Dropout(), torch.nn.Linear(3, 2))


def test_training_flags_and_frozen_parameters(tmp_path: Path) -> None:
    source, target = two(), two()
    target[2].requires_grad_(False)
    target.eval()

    def change() -> None:
        source[0].requires_grad_(False)
        source[1].eval()

    through(tmp_path, tracked(model=source), tracked(model=target), change)
    assert [value.requires_grad for value in target.parameters()] == [False, False, True, True]
    assert [part.training for part in target.modules()] == [True, True, False, True]


def square() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(), torch.nn.Linear(2, 2))


def grouped(model: Any, *, both: bool = False) -> torch.optim.Optimizer:
    optimizer = torch.optim.Adam(model[0].parameters(), lr=0.1)
    if both:
        optimizer.add_param_group({"params": list(model[2].parameters()), "lr": 0.5})
    return optimizer


def test_a_group_that_was_added_later(tmp_path: Path) -> None:
    source, target = two(), two()
    moving, taking = grouped(source), grouped(target)

    def add() -> None:
        moving.add_param_group({"params": list(source[2].parameters()), "lr": 0.5})
        source(torch.randn(4, 2)).sum().backward()
        moving.step()

    through(tmp_path, tracked(model=source, o=moving), tracked(model=target, o=taking), add)
    assert [group["lr"] for group in taking.param_groups] == [0.1, 0.5]
    assert taking.param_groups[1]["params"][0] is target[2].weight
    assert torch.equal(taking.state[target[2].weight]["exp_avg"], moving.state[source[2].weight]["exp_avg"])


def test_parameters_in_another_order_are_found_by_name(tmp_path: Path) -> None:
    source, target = two(), two()
    moving = torch.optim.Adam([source[0].weight, source[2].bias, source[2].weight, source[0].bias])
    taking = torch.optim.Adam([target[0].bias, target[2].weight, target[0].weight, target[2].bias])
    source(torch.randn(4, 2)).sum().backward()
    moving.step()
    through(tmp_path, tracked(model=source, o=moving), tracked(model=target, o=taking), nothing)
    for (name, own), theirs in zip(source.named_parameters(), target.parameters(), strict=True):
        assert torch.equal(moving.state[own]["exp_avg"], taking.state[theirs]["exp_avg"]), name


def test_a_weight_that_moves_to_another_group_takes_its_moments_along(tmp_path: Path) -> None:
    source, target = square(), square()
    moving, taking = grouped(source, both=True), grouped(target, both=True)
    source(torch.randn(4, 2)).sum().backward()
    moving.step()

    def regroup() -> None:
        first, second = (group["params"] for group in moving.param_groups)
        first.insert(0, second.pop(0))

    through(tmp_path, tracked(model=source, o=moving), tracked(model=target, o=taking), regroup)
    for (name, own), theirs in zip(source.named_parameters(), target.parameters(), strict=True):
        assert torch.equal(moving.state[own]["exp_avg"], taking.state[theirs]["exp_avg"]), name


class Steps:
    """Keeps a tensor for each of the newest steps."""

    def __init__(self) -> None:
        self.kept = {0: torch.zeros(2), 1: torch.zeros(2)}

    def state_dict(self) -> dict[str, Any]:
        return {"kept": dict(self.kept)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.kept = dict(state["kept"])


def test_ranks_that_looked_at_other_times_say_the_same_of_the_same() -> None:
    old, new = Steps(), Steps()
    early = tracked(steps=old)
    known, _ = plan.current(None, early)
    for steps in (old, new):
        steps.kept = {1: torch.zeros(2), 2: torch.ones(2)}
    late = tracked(steps=new)
    seen, _ = plan.current(known, early)
    fresh, _ = plan.current(None, late)
    assert proof.Proof(early).rows(seen, None) == proof.Proof(late).rows(fresh, None)


def test_groups_that_do_not_fit_are_named(tmp_path: Path) -> None:
    source, target = two(), two()
    with pytest.raises(SessionError, match=r"o: this optimizer has model\.2\.(weight|bias), which no group"):
        through(
            tmp_path,
            tracked(model=source, o=grouped(source)),
            tracked(model=target, o=grouped(target, both=True)),
            nothing,
        )


def test_parameters_that_nobody_names_must_come_in_the_same_groups(tmp_path: Path) -> None:
    source, target = two(), two()
    with pytest.raises(SessionError, match=r"o: the state's parameter groups have \[2, 2\] parameters"):
        through(tmp_path, tracked(o=grouped(source, both=True)), tracked(o=grouped(target)), nothing)


def test_what_the_steps_have_added_to_a_module_is_refused_with_the_cure(tmp_path: Path) -> None:
    source, target = two(), two()
    prune.identity(next(source.children()), "weight")  # type: ignore[no-untyped-call]
    with pytest.raises(SessionError, match=r"weight_.* does not have.* before session.track"):
        through(tmp_path, tracked(model=source), tracked(model=target), nothing)


def test_a_state_of_an_older_release_is_read() -> None:
    """It has neither modes nor names; written by the release before them."""
    golden = json.loads(GOLDEN.read_text())
    entries, plain = layout.decode(json.dumps(golden["header"]).encode(), 1 << 20)
    values = [
        torch.tensor(numbers, dtype=getattr(torch, entry.dtype)).view(entry.shape)
        for entry, numbers in zip(entries, golden["tensors"], strict=True)
    ]
    model: Any = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    made = tracked(model=model, optimizer=optimizer, scheduler=scheduler)
    made.adopt(entries, plain, values)
    assert model[0].weight.flatten().tolist() == values[0].flatten().tolist()
    assert optimizer.param_groups[0]["lr"] == 0.1 and scheduler.last_epoch == 1
    assert optimizer.state[model[1].bias]["momentum_buffer"].tolist() == [4.0, 4.0, 4.0]
