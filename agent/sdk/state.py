"""What a session keeps: the tracked objects, as one list of tensors and one tree of plain data, and back.

The header that names the tensors is the same in a snapshot (agent/checkpoint/layout.py) and between ranks."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import torch

from agent.checkpoint import layout, typed
from agent.sdk.errors import RestoreError, SessionError

Tree = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Flat:
    """All tensors of the state, live, by name."""

    names: tuple[str, ...]
    tensors: tuple[torch.Tensor, ...]


class Tracked:
    """The objects a user named. A name given again replaces what it stood for."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}

    def add(self, name: str, thing: Any) -> None:
        """Track an object. Raises SessionError when its state cannot be had."""
        if "." in name or not name:
            raise SessionError(f"track: {name!r} will not do as a name: letters, digits and _")
        if not isinstance(thing, torch.Generator) and not (
            callable(getattr(thing, "state_dict", None)) and callable(getattr(thing, "load_state_dict", None))
        ):
            raise SessionError(
                f"track({name}=...): {type(thing).__name__} has no state_dict and load_state_dict; "
                "give it both or track what holds its state"
            )
        self.objects[name] = thing

    @property
    def modules(self) -> list[torch.nn.Module]:
        """The modules among them."""
        return [thing for thing in self.objects.values() if isinstance(thing, torch.nn.Module)]

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """The optimizers among them."""
        return [thing for thing in self.objects.values() if isinstance(thing, torch.optim.Optimizer)]

    @property
    def small(self) -> dict[str, Any]:
        """All others: schedulers, scalers, generators, the user's own."""
        kinds = (torch.nn.Module, torch.optim.Optimizer)
        return {name: thing for name, thing in self.objects.items() if not isinstance(thing, kinds)}

    def flatten(self) -> Flat:
        """The tensors now, no copies. Raises SessionError on what cannot be kept."""
        names: list[str] = []
        tensors: list[torch.Tensor] = []
        for name, thing in self.objects.items():
            walk(capture(thing), name, names, tensors)
        return Flat(tuple(names), tuple(tensors))

    @torch.no_grad()
    def adopt(self, entries: tuple[layout.Tensor, ...], plain: Any, values: list[torch.Tensor]) -> None:
        """Take over a state: in place where a tensor of that name, type and shape is there, else a new one.

        Raises RestoreError, naming what does not fit, before anything but optimizer state has changed."""
        flat = self.flatten()
        mine = dict(zip(flat.names, flat.tensors, strict=True))
        away = set(plain.get("away", ())) if isinstance(plain, dict) else set()
        final: list[torch.Tensor] = []
        targets, sources = [], []
        for index, (entry, value) in enumerate(zip(entries, values, strict=True)):
            target = mine.get(entry.name)
            if target is not None and target.shape == value.shape and target.dtype == value.dtype:
                targets.append(target)
                sources.append(value)
            else:
                target = value.to(self._device(), copy=True) if index in away else value.cpu().clone()
            final.append(target)
        try:
            trees = typed.decode(plain["objects"], final.__getitem__)
        except (typed.TypedDataError, LookupError, TypeError) as error:
            raise RestoreError(f"the state's header cannot be read: {error!r}") from error
        self._check(trees, mine, {id(tensor) for tensor in targets})
        _copy(targets, sources)
        for name, thing in self.objects.items():
            apply(thing, trees[name])

    def _device(self) -> torch.device:
        for module in self.modules:
            for parameter in module.parameters():
                return parameter.device
        return torch.device("cpu")

    def _check(self, trees: Any, mine: dict[str, torch.Tensor], filled: set[int]) -> None:
        if not isinstance(trees, dict) or trees.keys() != self.objects.keys():
            theirs = sorted(trees) if isinstance(trees, dict) else trees
            raise RestoreError(
                f"the state holds {theirs}, this script tracks {sorted(self.objects)}: track the same objects"
            )
        modules = {name for name, thing in self.objects.items() if isinstance(thing, torch.nn.Module)}
        for name, tensor in mine.items():
            if name.partition(".")[0] in modules and id(tensor) not in filled:
                raise RestoreError(
                    f"the state has no {name} of {tuple(tensor.shape)} {tensor.dtype}: another model?"
                )


def capture(thing: Any) -> Tree:
    """The state of one object as a tree; tensors are live where the object gives them out live."""
    if isinstance(thing, torch.Generator):
        return {"generator": thing.get_state()}
    if isinstance(thing, torch.nn.Module):
        state = dict(thing.state_dict())
        rest = {name: buffer for name, buffer in thing.named_buffers() if name not in state}
        return {"state": state, "rest": rest}
    return {"state": thing.state_dict()}


def apply(thing: Any, tree: Tree) -> None:
    """Give an object its state. Tensors of modules and optimizers have been filled in place before."""
    if isinstance(thing, torch.Generator):
        thing.set_state(tree["generator"])
    elif isinstance(thing, torch.nn.Module):
        if not all(isinstance(value, torch.Tensor) for value in tree["state"].values()):
            thing.load_state_dict(OrderedDict(tree["state"]))
    elif isinstance(thing, torch.optim.Optimizer):
        _apply_optimizer(thing, tree["state"])
    else:
        thing.load_state_dict(tree["state"])


def _apply_optimizer(optimizer: torch.optim.Optimizer, state: Tree) -> None:
    if type(optimizer).state_dict is not torch.optim.Optimizer.state_dict:
        optimizer.load_state_dict(state)
        return
    groups = state["param_groups"]
    if [len(group["params"]) for group in groups] != [len(g["params"]) for g in optimizer.param_groups]:
        raise RestoreError("the optimizer's state has other parameter groups: another model or optimizer?")
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for own, given in zip(optimizer.param_groups, groups, strict=True):
        own.update({key: value for key, value in given.items() if key != "params"})
    optimizer.state.clear()
    for index, values in state["state"].items():
        optimizer.state[parameters[index]] = dict(values)


_ATOMS = frozenset((float, int, bool, str, type(None)))


def copy_plain(value: Any) -> Any:
    """A copy of a small tree that shares no container and no tensor with it."""
    if type(value) in _ATOMS:
        return value
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        copied = {key: copy_plain(item) for key, item in value.items()}
        return copied if type(value) is dict else type(value)(copied)
    if isinstance(value, list):
        return [copy_plain(item) for item in value]
    return tuple(copy_plain(item) for item in value) if type(value) is tuple else value


def same(left: Any, right: Any) -> bool:
    """Whether two small trees are equal, tensors by value."""
    if isinstance(left, torch.Tensor) or isinstance(right, torch.Tensor):
        return isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor) and torch.equal(left, right)
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def walk(tree: Any, path: str, names: list[str], tensors: list[torch.Tensor]) -> None:
    """Collect the tensors of a tree and their paths, in the order in which typed.encode meets them."""
    if isinstance(tree, torch.Tensor):
        if type(tree) not in (torch.Tensor, torch.nn.Parameter) or tree.layout != torch.strided:
            raise SessionError(f"{path}: a {type(tree).__name__} of layout {tree.layout} cannot be kept yet")
        names.append(path)
        tensors.append(tree.detach())
    elif isinstance(tree, dict):
        for key, item in tree.items():
            walk(item, f"{path}.{key}", names, tensors)
    elif isinstance(tree, list | tuple):
        for index, item in enumerate(tree):
            walk(item, f"{path}.{index}", names, tensors)


def _copy(targets: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
    if targets:
        torch._foreach_copy_(targets, sources)


def dtype_of(name: str) -> torch.dtype:
    """torch's type of a header's dtype. Raises RestoreError."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise RestoreError(f"this torch knows no dtype {name!r:.80}")
    return dtype
