"""What a state may hold besides plain tensors of plain models: all of it goes through an arena and back."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from holdfast import SessionError
from holdfast.clean.putting_back import copy_plain
from holdfast.ipc.arena import Arena
from holdfast.snapshots import snapshot
from holdfast.state import randomness
from holdfast.state.tracked import TrackedState

if TYPE_CHECKING:
    from pathlib import Path

ODD: dict[str, torch.Tensor] = {
    "empty": torch.empty(0, 3),
    "scalar": torch.tensor(2.5),
    "turned": torch.arange(6.0).view(2, 3).t(),
    "strided": torch.arange(40.0)[::3],
    "bool": torch.tensor([True, False, True]),
    "bf16": torch.arange(7.0).bfloat16(),
    "fp8": torch.arange(8.0).to(torch.float8_e4m3fn),
    "half": torch.arange(3.0).half(),
    "complex": torch.complex(torch.arange(3.0), torch.arange(3.0) + 1),
    "conjugate": torch.complex(torch.arange(3.0), torch.arange(3.0) + 1).conj(),
    "long": torch.arange(5),
    "large": torch.arange(100_000.0),
    "large and turned": torch.arange(90_000.0).view(300, 300).t(),
}


class Own:
    """A user's object: it gives out what it holds."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    def state_dict(self) -> dict[str, Any]:
        return self.state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state = state


class Tied(torch.nn.Module):
    def __init__(self, *, tie: bool = True) -> None:
        super().__init__()
        self.first = torch.nn.Linear(300, 300)
        self.second = torch.nn.Linear(300, 300)
        if tie:
            self.second.weight = self.first.weight


def through(folder: Path, source: TrackedState, target: TrackedState) -> int:
    """One state into an arena and out of it into other objects; the bytes of data it took."""
    own = snapshot.SnapshotWriter(source)
    with Arena.create(folder / "a.arena", own.needs()) as arena:
        own.attach(str(arena.path))
        assert own.write(3, 1, released_step=-1) == 0
        snapshot.load(str(arena.path), 3, target)
        own.detach()
        found = arena.find(3)
        assert found is not None
        return found.data_bytes


def tracked(**objects: Any) -> TrackedState:
    made = TrackedState()
    for name, thing in objects.items():
        made.add(name, thing)
    return made


def equal(left: torch.Tensor, right: torch.Tensor) -> bool:
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    if left.is_complex():
        return torch.equal(left.resolve_conj(), right.resolve_conj())
    return torch.equal(left.float(), right.float())


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("there", [True, False])
def test_odd_tensors(tmp_path: Path, name: str, there: bool) -> None:
    """Put in place where a tensor of that form is there, else made anew."""
    value = ODD[name]
    target = Own({"it": torch.zeros_like(value)} if there else {})
    through(tmp_path, tracked(own=Own({"it": value})), tracked(own=target))
    assert equal(target.state["it"], value)


def test_tied_weights_are_written_once_and_tied_again(tmp_path: Path) -> None:
    source, target, free = Tied(), Tied(), Tied(tie=False)
    one = source.first.weight.nbytes
    assert through(tmp_path, tracked(model=source), tracked(model=target)) < 2 * one
    assert target.second.weight is target.first.weight
    assert torch.equal(target.first.weight, source.first.weight)
    through(tmp_path, tracked(model=source), tracked(model=free))
    assert torch.equal(free.second.weight, source.first.weight)
    assert torch.equal(free.first.weight, source.first.weight)


def test_views_of_one_storage(tmp_path: Path) -> None:
    block = torch.arange(12.0)
    target = Own({})
    through(tmp_path, tracked(own=Own({"left": block[:8], "right": block[4:]})), tracked(own=target))
    assert torch.equal(target.state["left"], block[:8]) and torch.equal(target.state["right"], block[4:])


def test_a_state_that_changes_shape_between_snapshots(tmp_path: Path) -> None:
    own = Own({"it": torch.arange(3.0)})
    source, target = tracked(own=own), Own({})
    snapshots = snapshot.SnapshotWriter(source)
    with Arena.create(tmp_path / "a.arena", snapshots.needs()) as arena:
        snapshots.attach(str(arena.path))
        assert snapshots.write(1, 1, released_step=-1) == 0
        own.state = {"it": torch.arange(5.0), "more": torch.ones(2, dtype=torch.bool)}
        assert snapshots.write(2, 1, released_step=1) == 1
        snapshot.load(str(arena.path), 2, tracked(own=target))
        assert torch.equal(target.state["it"], torch.arange(5.0)) and target.state["more"].all()
        own.state = {"it": torch.zeros(1 << 20)}
        assert "too large for its slot" in str(snapshots.write(3, 1, released_step=2))
        snapshots.detach()


def test_another_model_is_refused_before_anything_has_changed(tmp_path: Path) -> None:
    source, target = torch.nn.Linear(3, 2), torch.nn.Linear(4, 2)
    before = target.weight.detach().clone()
    with pytest.raises(SessionError, match=r"no model\.state\.weight of \(2, 4\)"):
        through(tmp_path, tracked(model=source), tracked(model=target))
    assert torch.equal(target.weight, before)


class Refusing(Own):
    def state_dict(self) -> dict[str, Any]:
        raise ValueError("not now")


def test_a_state_that_cannot_be_kept_is_refused_when_it_is_tracked() -> None:
    with pytest.raises(SessionError, match=r"track\(own=\.\.\.\): .*not now"):
        tracked(own=Refusing({}))
    with pytest.raises(SessionError, match=r"own.*a builtins\.set cannot be kept"):
        tracked(own=Own({"x": {1, 2}}))
    sparse = torch.eye(3).to_sparse()
    with pytest.raises(SessionError, match=r"layout torch\.sparse_coo cannot be kept"):
        tracked(own=Own({"x": sparse}))


def test_random_generators_go_on_where_they_were() -> None:
    found = randomness.capture(0)
    drawn = [float(torch.rand(())), random.random(), float(np.random.rand())]
    randomness.apply(found)
    assert [float(torch.rand(())), random.random(), float(np.random.rand())] == drawn


def stepped(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for parameter in model.parameters():
        parameter.grad = torch.rand_like(parameter)
    optimizer.step()


def test_an_optimizer_that_begins_anew_is_not_snapshotted_as_it_was(tmp_path: Path) -> None:
    model, other = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    optimizer, target = torch.optim.AdamW(model.parameters()), torch.optim.AdamW(other.parameters())
    stepped(model, optimizer)
    snapshots = snapshot.SnapshotWriter(tracked(model=model, optimizer=optimizer))
    with Arena.create(tmp_path / "a.arena", snapshots.needs()) as arena:
        snapshots.attach(str(arena.path))
        assert snapshots.write(1, 1, released_step=-1) == 0
        optimizer.state.clear()
        stepped(model, optimizer)
        assert snapshots.write(2, 1, released_step=1) == 1
        snapshot.load(str(arena.path), 2, tracked(model=other, optimizer=target))
        snapshots.detach()
    for ours, theirs in zip(optimizer.state.values(), target.state.values(), strict=True):
        assert all(torch.equal(ours[key], theirs[key]) for key in ours)


class Growing(torch.nn.Module):
    """Gets a buffer, a parameter and a module when it has trained for a while."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(2, 2)
        self.register_buffer("later", None)

    def grow(self) -> None:
        self.later = torch.full((3,), 7.0)
        self.register_buffer("other", torch.full((2,), 8.0))
        self.register_parameter("scale", torch.nn.Parameter(torch.full((1,), 9.0)))
        self.first.add_module("inner", torch.nn.Linear(1, 1))


def test_what_a_module_gets_later_is_in_the_next_snapshot(tmp_path: Path) -> None:
    model, other = Growing(), Growing()
    snapshots = snapshot.SnapshotWriter(tracked(model=model))
    with Arena.create(tmp_path / "a.arena", 1 << 16) as arena:
        snapshots.attach(str(arena.path))
        assert snapshots.write(1, 1, released_step=-1) == 0
        model.grow()
        assert snapshots.write(2, 1, released_step=1) == 1
        other.grow()
        for tensor in other.state_dict().values():
            tensor.zero_()
        snapshot.load(str(arena.path), 2, tracked(model=other))
        snapshots.detach()
    pairs = zip(model.state_dict().values(), other.state_dict().values(), strict=True)
    assert all(torch.equal(ours, theirs) for ours, theirs in pairs)


class Scaled(torch.optim.SGD):
    """An optimizer that keeps more than a state for each parameter, as Lookahead and D-Adaptation do."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        state: dict[Any, Any] = self.state
        shared = state["shared"]
        shared["count"] = shared.get("count", 0) + 1
        shared.setdefault("scale", torch.ones(())).mul_(0.5)
        state["norm"] = torch.tensor(float(shared["count"]))
        return super().step(closure)


def test_state_of_an_optimizer_that_belongs_to_no_parameter(tmp_path: Path) -> None:
    def made() -> tuple[torch.nn.Linear, Scaled]:
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2)
        return model, Scaled(model.parameters(), lr=0.1, momentum=0.9)

    (model, optimizer), (other, new) = made(), made()
    for _ in range(3):
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
    through(tmp_path, tracked(m=model, o=optimizer), tracked(m=other, o=new))
    got: dict[Any, Any] = new.state
    assert got["shared"]["count"] == 3
    assert float(got["shared"]["scale"]) == 0.125
    assert float(got["norm"]) == 3.0
    assert equal(new.state[other.weight]["momentum_buffer"], optimizer.state[model.weight]["momentum_buffer"])


def test_an_optimizer_that_hides_its_steps_is_refused_when_it_is_tracked() -> None:
    class Lookahead(torch.optim.Optimizer):
        """Takes the place of another optimizer, and never calls Optimizer.__init__, as published ones do."""

        def __init__(self, inner: torch.optim.Optimizer) -> None:
            self.inner, self.param_groups, self.state = inner, inner.param_groups, inner.state

    inner = torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.1)
    with pytest.raises(SessionError, match=r"optimizer=\.\.\.\): Lookahead is an Optimizer and has not"):
        TrackedState().add("optimizer", Lookahead(inner))


def test_a_constant_that_an_object_begins_with_is_not_written(tmp_path: Path) -> None:
    """In a process that takes the state, the object still holds what the script gave it."""
    zero = torch.zeros(4)
    source, target = Own({"hidden": torch.arange(4.0)}), Own({"hidden": zero})
    through(tmp_path, tracked(own=source), tracked(own=target))
    assert equal(target.state["hidden"], source.state["hidden"]) and not zero.any()


def test_best_weights_that_begin_as_those_of_the_model_do_not_take_their_place(tmp_path: Path) -> None:
    source, target = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    best, others = Own({"best": {"weight": torch.ones(2, 2)}}), Own({"best": {**target.state_dict()}})
    optimizer, own = (torch.optim.SGD(each.parameters(), 0.1) for each in (source, target))
    del others.state["best"]["bias"]
    through(
        tmp_path,
        tracked(model=source, optimizer=optimizer, best=best),
        tracked(model=target, optimizer=own, best=others),
    )
    assert equal(target.weight, source.weight) and others.state["best"]["weight"].eq(1).all()


def test_what_an_optimizer_steps_in_an_object_stays_the_same_tensor(tmp_path: Path) -> None:
    source, target = (Own({"alpha": torch.full((2,), at, requires_grad=True)}) for at in (1.0, 2.0))
    alpha = target.state["alpha"]
    optimizer, own = (torch.optim.SGD([each.state["alpha"]], 0.1) for each in (source, target))
    through(tmp_path, tracked(a=source, optimizer=optimizer), tracked(a=target, optimizer=own))
    assert target.state["alpha"].data_ptr() == alpha.data_ptr() and equal(alpha, source.state["alpha"])


@pytest.mark.parametrize("kind", [torch.nn.Parameter, torch.Tensor.requires_grad_])
def test_a_tensor_that_requires_a_gradient_does_so_afterwards(tmp_path: Path, kind: Any) -> None:
    """A script may step it by hand."""
    source, target = Own({"a": kind(torch.ones(2))}), Own({"a": kind(torch.zeros(2))})
    through(tmp_path, tracked(own=source), tracked(own=target))
    assert target.state["a"].requires_grad and type(target.state["a"]) is type(source.state["a"])
    assert equal(target.state["a"], source.state["a"])
    copied = copy_plain(source.state)
    assert copied["a"].requires_grad and type(copied["a"]) is type(source.state["a"])
    assert not copy_plain({"hidden": source.state["a"] * 2})["hidden"].requires_grad
