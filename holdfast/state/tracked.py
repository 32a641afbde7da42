"""Hold the tracked objects, read them as one list of tensors and one tree of plain data, and restore them.

The header that names the tensors is the same in a snapshot (holdfast.ipc.layout) and between ranks."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from holdfast.checkpoint.format import typed
from holdfast.coordinates import Coordinates
from holdfast.errors import RestoreError, SessionError
from holdfast.state import copying, modes, randomness, shards, wrapped
from holdfast.state.claims import REPLICATED, Claim
from holdfast.state.optimizers import parameters_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from holdfast.ipc import layout

Tree = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Flat:
    """All tensors of the state by name, live.

    `tensors` has this rank's memory, for a DTensor its local part; `given` has the tensors as the objects
    gave them."""

    names: tuple[str, ...]
    tensors: tuple[torch.Tensor, ...]
    given: tuple[torch.Tensor, ...]


class TrackedState:
    """The objects that a script tracks, by name. A name that is given again replaces its object."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}
        self.claims: dict[str, Claim] = {}  # what the script claims of each
        self.at = Coordinates(0, 1)  # this rank's coordinates in the current generation
        self.scattered = False  # buffers differ between ranks: each rank keeps its own
        # Generator states that came with the newest restored state, as typed data; None: none.
        self.random: Any = None
        # The data contract that came with it, as typed data; None: it had none; False: nothing was restored.
        self.data: Any = False
        self.contract: Callable[[], str] = str  # gives the present contract, as JSON
        # What the script had made when that state was trained (see beginnings); False: nothing was restored.
        self.began: Any = False
        self.beginnings: Callable[[], str] = str  # gives what it has made now, as JSON
        # Of these parameters, those whose gradient counts although it is zero.
        self.graded: Callable[[Iterable[torch.Tensor]], list[torch.Tensor]] = lambda parameters: []

    def add(self, name: str, thing: Any, claim: Claim = REPLICATED) -> None:
        """Track an object. Raises SessionError if its state cannot be read or kept."""
        if "." in name or not name:
            raise SessionError(f"track: {name!r} is not a valid name: use letters, digits and _")
        if not randomness.is_generator(thing) and not (
            callable(getattr(thing, "state_dict", None)) and callable(getattr(thing, "load_state_dict", None))
        ):
            raise SessionError(
                f"track({name}=...): {type(thing).__name__} has no state_dict and load_state_dict; "
                "give it both, or track the object that holds its state"
            )
        wrapped.check(name, thing)
        _check_keepable(name, thing)
        self.objects[name], self.claims[name] = thing, wrapped.claim(thing, claim)

    @property
    def identity(self) -> tuple[Any, ...]:
        """What decides, besides the objects, which part of the state this rank holds."""
        return self.at, self.scattered, *(self.claims[name] for name in self.objects)

    @property
    def modules(self) -> list[torch.nn.Module]:
        """The modules among the objects."""
        return [thing for thing in self.objects.values() if isinstance(thing, torch.nn.Module)]

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """The optimizers among the objects."""
        return [thing for thing in self.objects.values() if isinstance(thing, torch.optim.Optimizer)]

    @property
    def small(self) -> dict[str, Any]:
        """All other objects: schedulers, scalers, generators, the script's own."""
        kinds = (torch.nn.Module, torch.optim.Optimizer)
        return {name: thing for name, thing in self.objects.items() if not isinstance(thing, kinds)}

    def names(self) -> dict[int, str]:
        """The names of the tracked modules' parameters, by id; the first one if there are several."""
        found = modes.names(self.objects)
        return {id(found[name]): name for name in reversed(list(found))}

    def homeless(self) -> tuple[str, torch.Tensor | None]:
        """An optimizer's name and a parameter of it that no other tracked object holds; ("", None) if
        none."""
        held = {id(value) for module in self.modules for value in module.parameters()}
        small: list[torch.Tensor] = []
        for name, thing in self.small.items():
            walk(capture(thing), name, [], small)
        memory = {modes.storage(tensor) for tensor in small}
        for name, thing in self.objects.items():
            for value in parameters_of(thing) if isinstance(thing, torch.optim.Optimizer) else ():
                if id(value) not in held and value.numel() and modes.storage(value) not in memory:
                    return name, value
        return "", None

    def flatten(self) -> Flat:
        """The tensors as they are now, without copies. Raises SessionError for what cannot be kept."""
        names: list[str] = []
        given: list[torch.Tensor] = []
        known = self.names()
        for name, thing in self.objects.items():
            walk(capture(thing, known), name, names, given)
        return Flat(tuple(names), tuple(live(tensor) for tensor in given), tuple(given))

    @torch.no_grad()
    def adopt(self, entries: tuple[layout.Tensor, ...], plain: Any, values: list[torch.Tensor]) -> None:
        """Restore a state: in place if a tensor of that name, dtype and shape exists, else with a new tensor.

        An object of the script's is given new ones: what it holds now may be others', too (a constant that it
        begins with). But what an optimizer steps is filled. Raises RestoreError, naming what does not fit.
        Other objects, or other tensors of a module, are found before anything has changed; other modes or
        parameter groups only when tensors are filled already."""
        filling = _Filling(self.flatten(), self._device(), self._loaded())
        away = set(plain.get("away", ())) if isinstance(plain, dict) else set()
        final = [
            filling.take(entry, value, away=index in away)
            for index, (entry, value) in enumerate(zip(entries, values, strict=True))
        ]
        try:
            trees = typed.decode(plain["objects"], final.__getitem__)
        except (typed.TypedDataError, LookupError, TypeError) as error:
            raise RestoreError(f"the state's header cannot be read: {error!r}") from error
        self._check(trees)
        for name, thing in self.objects.items():
            if isinstance(thing, torch.nn.Module):
                filling.complete(name, trees[name], thing)
        filling.copy()
        self._apply(trees, filling.parts)
        self._adopt_rest(plain)

    def adopt_plain(self, names: list[str], plain: Any, tensors: dict[str, torch.Tensor]) -> None:
        """Restore the plain data of a state whose tensors have been filled already.

        `names`: the names that its tensor indices stand for. Raises RestoreError."""
        try:
            trees = typed.decode(plain["objects"], lambda index: tensors[names[index]])
        except (typed.TypedDataError, LookupError, TypeError) as error:
            raise RestoreError(f"the state's header cannot be read: {error!r}") from error
        self._check(trees)
        self._apply(trees, {})
        self._adopt_rest(plain)

    def named_modules(self) -> dict[str, torch.nn.Module]:
        """The modules among the objects, by name."""
        return {name: thing for name, thing in self.objects.items() if isinstance(thing, torch.nn.Module)}

    def _adopt_rest(self, plain: Any) -> None:
        self.random, self.data = plain.get("random") or typed.encode({}), plain.get("data")
        self.began = plain.get("began")
        modes.put_gradients_back(self.named_modules(), plain.get("graded"))

    def _apply(self, trees: Any, parts: dict[int, torch.Tensor]) -> None:
        own = modes.names(self.objects)
        for name, thing in self.objects.items():
            if isinstance(thing, torch.optim.Optimizer):
                _apply_optimizer(thing, trees[name], parts, name, own)
            else:
                apply(thing, trees[name], name)

    def _loaded(self) -> Callable[[str, torch.Tensor], bool]:
        """Whether the tensor of this name is an object's own affair: no optimizer steps it there."""
        small = self.small
        stepped = {modes.storage(value) for each in self.optimizers for value in parameters_of(each)}
        stepped -= {address for module in self.modules for address in modes.storages(module)}
        return lambda name, tensor: name.partition(".")[0] in small and modes.storage(tensor) not in stepped

    def _device(self) -> torch.device:
        for module in self.modules:
            for parameter in module.parameters():
                return parameter.device
        return torch.device("cpu")

    def _check(self, trees: Any) -> None:
        if not isinstance(trees, dict) or trees.keys() != self.objects.keys():
            theirs = sorted(trees) if isinstance(trees, dict) else trees
            raise RestoreError(
                f"the state has {theirs}, this script tracks {sorted(self.objects)}: track the same objects"
            )


def _check_keepable(name: str, thing: Any) -> None:
    """Raise SessionError if an object gives no state, or one that cannot be kept."""
    try:
        tree = capture(thing)
        walk(tree, name, [], [])
        typed.encode(tree, lambda value: 0 if isinstance(value, torch.Tensor) else None, name)
    except SessionError:
        raise
    except Exception as error:  # a user's state_dict may raise anything
        raise SessionError(f"track({name}=...): its state cannot be kept: {error!r}") from error


class _Filling:
    """The copies to be made when a state is restored. `loaded`: whether a tensor is not filled, but replaced
    by an object that loads its state."""

    def __init__(self, mine: Flat, device: torch.device, loaded: Callable[[str, torch.Tensor], bool]) -> None:
        self._mine = dict(zip(mine.names, zip(mine.tensors, mine.given, strict=True), strict=True))
        self._device, self._loaded = device, loaded
        self._targets: dict[str, torch.Tensor] = {}
        # The values to copy, by the id of the tensor that takes their place in the trees.
        self._sources: dict[int, torch.Tensor] = {}
        self._pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.parts: dict[int, torch.Tensor] = {}  # by id: local parts of DTensors that do not exist yet

    def take(self, entry: layout.Tensor, value: torch.Tensor, *, away: bool) -> torch.Tensor:
        """The tensor that stands for this one in the trees: my own, to be filled later, or a copy."""
        target, given = self._mine.get(entry.name, (None, value))
        if target is None or target.shape != value.shape or target.dtype != value.dtype:
            given = value.to(self._device, copy=True) if away else value.cpu().clone()
            if entry.global_shape is not None:
                self.parts[id(given)] = given
        elif self._loaded(entry.name, target):
            part = value.to(target.device, copy=True)
            own = shards.like(part, given, entry.name) if shards.is_dtensor(given) else part
            given = made_like(given, own)
        else:
            self._put(entry.name, target, value)
        self._sources[id(given)] = value
        return given

    def complete(self, name: str, tree: Any, module: torch.nn.Module) -> None:
        """Fill a module's tensors that no entry has named: they are tied to others in the state, or missing.

        Tensors that state_dict makes for each call are left to load_state_dict. Raises RestoreError."""
        own, strict = modes.storages(module), modes.is_live(module, module.state_dict())
        names: list[str] = []
        given: list[torch.Tensor] = []
        walk({key: tree[key] for key in ("state", "rest")}, name, names, given)
        if strict and (more := [path for path in names if path not in self._mine]):
            raise RestoreError(
                f"the state has {more[0]}, which this script's {name} does not have; is it another model? A "
                "new process has nothing that steps add to a module (prune, register_parametrization): add "
                "it before session.track, and let the steps change its values only"
            )
        theirs = dict(zip(names, given, strict=True))
        for path, (target, _) in self._mine.items():
            if path.partition(".")[0] != name or path in self._targets:
                continue
            if target.numel() and modes.storage(target) not in own:
                continue
            source = self._sources.get(id(theirs.get(path)))
            if source is None or source.shape != target.shape or source.dtype != target.dtype:
                held = f", but one of {tuple(source.shape)} {source.dtype}" if source is not None else ""
                raise RestoreError(
                    f"the state has no {path} of {tuple(target.shape)} {target.dtype}{held}; is it another "
                    "model, or a buffer that grows with the steps? Make that with its full size before "
                    "session.track"
                )
            if live(theirs[path]).data_ptr() != target.data_ptr():
                self._put(path, target, source)

    def copy(self) -> None:
        """Fill my tensors."""
        copying.copy_at_once(self._pairs)

    def _put(self, path: str, target: torch.Tensor, source: torch.Tensor) -> None:
        self._targets[path] = target
        self._pairs.append((target, source))


def capture(thing: Any, known: Mapping[int, str] | None = None) -> Tree:
    """The state of one object as a tree. Tensors are live if the object gives them live.

    `known`: names of parameters by id."""
    if randomness.is_generator(thing):
        return {"generator": randomness.state_of(thing)}
    if isinstance(thing, torch.nn.Module):
        state = dict(thing.state_dict())
        rest = {name: buffer for name, buffer in thing.named_buffers() if name not in state}
        return {"state": state, "rest": rest, "modes": modes.of(thing)}
    if isinstance(thing, torch.optim.Optimizer):
        inner = wrapped.local(thing)
        return {"state": inner.state_dict(), "parameters": modes.labels(inner, known or {})}
    return {"state": thing.state_dict()}


def apply(thing: Any, tree: Tree, name: str = "") -> None:
    """Give an object its state (not an optimizer). A module's live tensors have been filled before."""
    if randomness.is_generator(thing):
        randomness.set_state(thing, tree["generator"])
    elif isinstance(thing, torch.nn.Module):
        if not modes.is_live(thing, thing.state_dict()):
            _load(thing, OrderedDict(tree["state"]), name)
        if "modes" in tree:  # states of older releases have none
            modes.apply(thing, tree["modes"], name)
    else:
        thing.load_state_dict(tree["state"])


def _load(thing: Any, given: Any, name: str) -> None:
    try:
        thing.load_state_dict(given)
    except (RuntimeError, LookupError, TypeError, ValueError) as error:
        raise RestoreError(f"{name} cannot load its state: {error}") from error


def _apply_optimizer(
    tracked_: torch.optim.Optimizer,
    tree: Tree,
    parts: dict[int, torch.Tensor],
    name: str,
    own: Mapping[str, torch.Tensor],
) -> None:
    """Give an optimizer its state.

    `parts`: by id, local parts from which its DTensors are made. `own`: the script's parameters by name."""
    optimizer, state = wrapped.local(tracked_), tree["state"]
    modes.regroup(optimizer, tree.get("parameters"), own, name)
    if type(optimizer).state_dict is not torch.optim.Optimizer.state_dict:
        _load(optimizer, state, name)
        return
    groups = state["param_groups"]
    if [len(group["params"]) for group in groups] != [len(g["params"]) for g in optimizer.param_groups]:
        raise RestoreError(f"{name}: the state has other parameter groups; is it another model or optimizer?")
    parameters = list(parameters_of(optimizer))
    for group, given in zip(optimizer.param_groups, groups, strict=True):
        group.update({key: value for key, value in given.items() if key != "params"})
    optimizer.state.clear()
    for index, values in state["state"].items():
        if type(index) is not int:  # what the optimizer keeps besides its parameters, as torch loads it
            optimizer.state[index] = values
            continue
        parameter = parameters[index]
        optimizer.state[parameter] = {
            key: shards.like(value, parameter, f"{name}.state.{index}.{key}") if id(value) in parts else value
            for key, value in values.items()
        }
    wrapped.aligned(tracked_)


def made_like(model: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
    """A new tensor as a parameter, or one that requires a gradient, if that is what `model` is."""
    if isinstance(model, torch.nn.Parameter):
        return torch.nn.Parameter(made, requires_grad=model.requires_grad)
    return made.requires_grad_(model.requires_grad and model.is_leaf)


def walk(tree: Any, path: str, names: list[str], tensors: list[torch.Tensor]) -> None:
    """Collect the tensors of a tree and their paths, in the order in which typed.encode meets them."""
    if isinstance(tree, torch.Tensor):
        plain = type(tree) in (torch.Tensor, torch.nn.Parameter) and tree.layout is torch.strided
        if not plain and not shards.is_dtensor(tree):
            raise SessionError(
                f"{path}: a {type(tree).__name__} of layout {tree.layout} cannot be kept; "
                "make it a plain tensor or a DTensor"
            )
        names.append(path)
        tensors.append(tree)
    elif isinstance(tree, dict):
        for key, item in tree.items():
            walk(item, f"{path}.{key}", names, tensors)
    elif isinstance(tree, list | tuple):
        for index, item in enumerate(tree):
            walk(item, f"{path}.{index}", names, tensors)


def live(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's memory of a tensor, detached."""
    return shards.local(tensor).detach()


def dtype_of(name: str) -> torch.dtype:
    """The torch dtype of this name in a header. Raises RestoreError."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise RestoreError(f"this version of torch does not have the dtype {name!r:.80}")
    return dtype
