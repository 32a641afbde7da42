"""Read and restore what changes how models and optimizers train without being a tensor.

That is which submodules are in training mode, which parameters require gradients, which have one that counts
although it is zero, and which parameters are in which group of an optimizer."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

import torch

from holdfast.errors import RestoreError
from holdfast.state import built, shards

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Labels = list[list[str | None]]
"""For each group of an optimizer, the names of its parameters; None: no tracked module names it."""


def of(module: torch.nn.Module) -> dict[str, list[str]]:
    """The submodules that are not in training mode, and the parameters that require no gradient."""
    return {
        "eval": [name for name, part in module.named_modules() if not part.training],
        "frozen": [name for name, value in module.named_parameters() if not value.requires_grad],
    }


def apply(module: torch.nn.Module, found: Any, path: str) -> None:
    """Give a module these modes. Raises RestoreError naming what the module does not have."""
    still, frozen = set(found["eval"]), set(found["frozen"])
    parts, parameters = dict(module.named_modules()), dict(module.named_parameters())
    if lost := [*(still - parts.keys()), *(frozen - parameters.keys())]:
        raise RestoreError(f"the state has {path}.{sorted(lost)[0]}, which this model does not have")
    for name, part in parts.items():
        part.training = name not in still
    for name, parameter in parameters.items():
        if parameter.requires_grad != (name not in frozen):
            parameter.requires_grad_(name not in frozen)


def graded(modules: Mapping[str, torch.nn.Module], chosen: Iterable[torch.Tensor]) -> list[str] | bool:
    """The names of these parameters, whose gradients count although they are zero, as a state keeps them:
    True for all that require gradients, False for none."""
    ids = {id(parameter) for parameter in chosen}
    if not ids:
        return False
    every = [
        (f"{name}.{path}", each) for name, part in modules.items() for path, each in part.named_parameters()
    ]
    if all((id(each) in ids) == each.requires_grad for _, each in every):
        return True
    return [path for path, each in every if id(each) in ids]


def put_gradients_back(modules: Mapping[str, torch.nn.Module], kept: list[str] | bool | None) -> None:
    """Give these parameters gradients of zeros, and all others none. `kept`: as `graded` gives it."""
    wanted = set(kept) if isinstance(kept, list) else set()
    for name, module in modules.items():
        for path, parameter in module.named_parameters():
            stays = f"{name}.{path}" in wanted or (kept is True and parameter.requires_grad)
            if stays:
                zero_gradient(parameter)
            else:
                parameter.grad = None


@torch.no_grad()
def zero_gradient(parameter: torch.Tensor) -> None:
    """Give a parameter a gradient of zeros: in place where it has a plain one, because a script may hold it
    (gradients as views of one flat tensor that it reduces itself)."""
    gradient = parameter.grad
    if type(gradient) is torch.Tensor and gradient.layout is torch.strided and not gradient.requires_grad:
        gradient.zero_()
    else:
        parameter.grad = torch.zeros_like(parameter)


def is_live(module: torch.nn.Module, state: Mapping[str, Any]) -> bool:
    """Whether the module's state_dict is nothing but the memory of its parameters and buffers.

    If not (extra state, hooks that return copies), state_dict is called again each time, and load_state_dict
    takes it back."""
    own = storages(module)
    return all(
        isinstance(value, torch.Tensor) and (not value.numel() or storage(value) in own)
        for value in state.values()
    )


def storages(module: torch.nn.Module) -> set[int]:
    """The addresses of the memory of a module's parameters and buffers."""
    return {storage(tensor) for tensors in (module.parameters(), module.buffers()) for tensor in tensors}


def storage(tensor: torch.Tensor) -> int:
    """The address of the memory that a tensor is a view of."""
    return shards.local(tensor).untyped_storage().data_ptr()


def names(objects: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """The parameters of the tracked modules by name; one with several names appears under each."""
    return {
        f"{name}.{path}": parameter
        for name, thing in objects.items()
        if isinstance(thing, torch.nn.Module)
        for path, parameter in thing.named_parameters(remove_duplicate=False)
    }


def labels(optimizer: torch.optim.Optimizer, known: Mapping[int, str]) -> Labels:
    """The names of the parameters in the optimizer's groups. `known`: names by id."""
    return [[known.get(id(parameter)) for parameter in group["params"]] for group in optimizer.param_groups]


def regroup(
    optimizer: torch.optim.Optimizer, given: Labels | None, own: Mapping[str, torch.Tensor], path: str
) -> None:
    """Give an optimizer's groups the parameters that they hold in the state. Raises RestoreError naming the
    culprit.

    `given`: the labels in the state, None in old states. `own`: the script's parameters by name."""
    mine = labels(optimizer, {id(own[name]): name for name in reversed(list(own))})
    if given is None or given == mine:
        return
    if any(name is None for group in (*given, *mine) for name in group):
        _check_alike(given, mine, path)
        return
    wanted, held = set(_flat(given)), set(_flat(mine))
    if lost := sorted(wanted - own.keys()):
        raise RestoreError(
            f"{path}: the state has {lost[0]} in a parameter group, but no tracked module has it; "
            "is it another model?"
        )
    kept = {id(own[name]) for name in wanted}
    if new := sorted(name for name in held if id(own[name]) not in kept):
        raise RestoreError(f"{path}: this optimizer has {new[0]}, which no group of the state has")
    groups = optimizer.param_groups
    del groups[len(given) :]
    for at, chosen in enumerate(given):
        if at == len(groups):
            groups.append(dict(optimizer.defaults))
        groups[at]["params"] = [own[name] for name in chosen if name is not None]


def _check_alike(given: Labels, mine: Labels, path: str) -> None:
    """Check that groups match if some parameters have no names: then only their order identifies them."""
    if list(map(len, given)) != list(map(len, mine)):
        raise RestoreError(
            f"{path}: the state's parameter groups have {list(map(len, given))} parameters, this optimizer's "
            f"{list(map(len, mine))}, and some have no name: track the modules that they belong to"
        )
    for theirs, name in zip(_flat(given), _flat(mine), strict=True):
        if theirs is not None and name is not None and theirs != name:
            raise RestoreError(
                f"{path}: the state has {theirs} where this optimizer has {name}; is their order different?"
            )


def _flat(groups: Labels) -> list[Any]:
    return [name for group in groups for name in group]


_training, _requires_grad = attrgetter("training"), attrgetter("requires_grad")


class ModesAtStart:
    """The modes and groups at a step's start, for a step that is undone.

    `parts`: modules and all below them. `parameters`: theirs."""

    def __init__(
        self,
        parts: Sequence[torch.nn.Module] = (),
        parameters: Sequence[torch.Tensor] = (),
        optimizers: Iterable[torch.optim.Optimizer] = (),
    ) -> None:
        self._parts, self._training = parts, list(map(_training, parts))
        self._parameters, self._grads = parameters, list(map(_requires_grad, parameters))
        self._groups = [
            (optimizer, [(group, list(group["params"])) for group in optimizer.param_groups])
            for optimizer in optimizers
        ]

    def same(self) -> bool:
        """Whether modes and groups are as they were then."""
        groups = (
            len(optimizer.param_groups) == len(kept)
            and all(built.same_objects(group["params"], parameters) for group, parameters in kept)
            for optimizer, kept in self._groups
        )
        modes = (list(map(_training, self._parts)), list(map(_requires_grad, self._parameters)))
        return modes == (self._training, self._grads) and all(groups)

    def restore(self) -> None:
        """Put the modes and groups back."""
        for part, training in zip(self._parts, self._training, strict=True):
            part.training = training
        for value, wanted in zip(self._parameters, self._grads, strict=True):
            if value.requires_grad != wanted:
                value.requires_grad_(wanted)
        for optimizer, groups in self._groups:
            optimizer.param_groups[:] = [group for group, _ in groups]
            for group, parameters in groups:
                group["params"] = parameters
