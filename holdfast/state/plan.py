"""The state made ready to be copied, kept while the same tensors are there: what a snapshot does not redo.

Modules and optimizers keep their tensors from step to step, so their part of the header is text that stays.
What is small (options of parameter groups, schedulers, the user's own) is read and encoded each time."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from holdfast.checkpoint import layout, typed
from holdfast.errors import SessionError
from holdfast.state import shards
from holdfast.state import tracked as state

if TYPE_CHECKING:
    from holdfast.state.tracked import Tracked

_Place = tuple[dict[Any, Any], Any, int]  # a container, the key in it, the address of the tensor there


@dataclass(slots=True)
class _Part:
    """One tracked object's tensors and header text."""

    name: str
    thing: Any
    base: int
    names: list[str] = field(default_factory=list)
    tensors: list[torch.Tensor] = field(default_factory=list)
    wholes: list[shards.Place | None] = field(default_factory=list)
    places: list[_Place] = field(default_factory=list)
    text: str = ""
    kept: bool = False  # `text` holds while the places do (for an optimizer: of its tensors' state)
    entries: int = 0  # of an optimizer's state

    def holds(self) -> bool:
        """Whether every tensor is still where it was."""
        if isinstance(self.thing, torch.optim.Optimizer) and len(self.thing.state) != self.entries:
            return False
        return all(
            (tensor := container.get(key)) is not None and _address(tensor) == address
            for container, key, address in self.places
        )


class Plan:
    """The tracked objects' state, ready to be copied."""

    def __init__(self, tracked: Tracked) -> None:
        self._tracked = tracked
        self._objects = dict(tracked.objects)
        self._parts: list[_Part] = []
        base = 0
        for name, thing in self._objects.items():
            part = _part(name, thing, base)
            self._parts.append(part)
            base += len(part.tensors)
        self.tensors = [tensor for part in self._parts for tensor in part.tensors]
        self.shard = shards.word(tracked)
        self.placed, self.data_bytes = _placed(self._parts)
        whole = json.loads(layout.encode(self.placed, None))
        self._tensors_text = json.dumps(whole["tensors"], separators=(",", ":"))
        away = [index for index, tensor in enumerate(self.tensors) if tensor.device.type != "cpu"]
        self._away_text = json.dumps(away, separators=(",", ":"))

    def header(self, random: Any = None) -> bytes | None:
        """The header for the state as it is now, or None when the plan no longer fits it. `random`: the
        generators' states, when they are to be kept too."""
        if self._tracked.objects != self._objects:
            return None
        texts = []
        for part in self._parts:
            text = self._text(part)
            if text is None:
                return None
            texts.append(f"[{json.dumps(part.name)},{text}]")
        more = f',"random":{json.dumps(typed.encode(random))}' if random is not None else ""
        contract = self._tracked.contract()
        more += f',"data":{contract}' if contract else ""
        state_text = f'{{"objects":{{"dict":[{",".join(texts)}]}},"away":{self._away_text}{more}}}'
        shard = f',"shard":{json.dumps(self.shard)}' if self.shard != shards.WHOLE else ""
        return f'{{"tensors":{self._tensors_text},"state":{state_text}{shard}}}'.encode()

    def _text(self, part: _Part) -> str | None:
        if not part.kept:
            fresh = _part(part.name, part.thing, part.base)
            if [_form(tensor) for tensor in fresh.tensors] != [_form(tensor) for tensor in part.tensors]:
                return None
            self.tensors[part.base : part.base + len(fresh.tensors)] = fresh.tensors
            return fresh.text
        if not part.holds():
            return None
        if isinstance(part.thing, torch.optim.Optimizer):
            return _join(part.text, _dump(_groups(part.thing), part.name, [])[0])
        return part.text


def current(plan: Plan | None, tracked: Tracked, random: Any = None) -> tuple[Plan, bytes]:
    """This plan with its header if it still fits, else a new one."""
    header = plan.header(random) if plan is not None else None
    if plan is not None and header is not None:
        return plan, header
    plan = Plan(tracked)
    header = plan.header(random)
    if header is None:
        raise SessionError("the tracked state changes its tensors while it is read: stop the other thread")
    return plan, header


def _part(name: str, thing: Any, base: int) -> _Part:
    part = _Part(name, thing, base)
    tree = state.capture(thing)
    indices = _collect(part, tree)
    part.text, only_tensors = _dump(tree, name, indices)
    if isinstance(thing, torch.nn.Module):
        part.kept = only_tensors and all(type(tree[key]) is dict for key in tree)
        part.places = [
            (container, key, _address(tensor))
            for module in thing.modules()
            for container in (module._parameters, module._buffers)
            for key, tensor in container.items()
            if tensor is not None
        ]
    elif type(thing).state_dict is torch.optim.Optimizer.state_dict:
        _keep_optimizer(part, tree["state"], indices)
    return part


def _collect(part: _Part, tree: Any) -> list[int]:
    """Fill the part's tensors, each memory once; for each tensor met in the tree its index in the header."""
    names: list[str] = []
    given: list[torch.Tensor] = []
    state.walk(tree, part.name, names, given)
    known: dict[Any, int] = {}
    indices = []
    for name, tensor in zip(names, given, strict=True):
        memory = state.live(tensor)
        key = (memory.data_ptr(), memory.shape, memory.stride(), memory.dtype) if memory.numel() else name
        index = known.setdefault(key, len(known))
        indices.append(part.base + index)
        if index == len(part.tensors):
            part.names.append(name)
            part.tensors.append(memory)
            part.wholes.append(shards.place(tensor, name))
    return indices


def _placed(parts: list[_Part]) -> tuple[tuple[layout.Tensor, ...], int]:
    """Every tensor's place in a slot, and the bytes they take together."""
    placed, data_bytes = layout.place(
        (name, str(tensor.dtype).removeprefix("torch."), tensor.shape, tensor.nbytes)
        for part in parts
        for name, tensor in zip(part.names, part.tensors, strict=True)
    )
    wholes = [whole for part in parts for whole in part.wholes]
    return tuple(
        replace(entry, global_shape=whole[0], global_offset=whole[1]) if whole else entry
        for entry, whole in zip(placed, wholes, strict=True)
    ), data_bytes


def _keep_optimizer(part: _Part, tree: Any, indices: list[int]) -> None:
    """An optimizer whose options hold no tensors keeps the text of its tensors' state."""
    inner, only_tensors = _dump(tree["state"], part.name, indices)
    options = any(
        isinstance(value, torch.Tensor) for group in tree["param_groups"] for value in group.values()
    )
    if not only_tensors or options or set(tree) != {"state", "param_groups"}:
        return
    optimizer: torch.optim.Optimizer = part.thing
    if _hooked(optimizer):
        return
    part.kept, part.text, part.entries = True, inner, len(optimizer.state)
    part.places = [
        (values, key, _address(tensor))
        for values in optimizer.state.values()
        for key, tensor in values.items()
    ]


def _hooked(optimizer: torch.optim.Optimizer) -> bool:
    return bool(optimizer._optimizer_state_dict_pre_hooks or optimizer._optimizer_state_dict_post_hooks)


def _groups(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """The parameter groups as state_dict gives them."""
    start, packed = 0, []
    for group in optimizer.param_groups:
        count = len(group["params"])
        options = {key: value for key, value in group.items() if key != "params"}
        packed.append({**options, "params": list(range(start, start + count))})
        start += count
    return packed


def _join(state_text: str, groups_text: str) -> str:
    """What _dump gives for {"state": {"state": ..., "param_groups": ...}}."""
    inner = f'{{"dict":[["state",{state_text}],["param_groups",{groups_text}]]}}'
    return f'{{"dict":[["state",{inner}]]}}'


def _dump(tree: Any, name: str, indices: list[int]) -> tuple[str, bool]:
    """The tree as typed JSON text, its tensors by these indices in turn; whether it has tensors only."""
    rest = iter(indices)

    def leaf(value: Any) -> int | None:
        return next(rest) if isinstance(value, torch.Tensor) else None

    try:
        data = typed.encode(tree, leaf, name)
    except typed.TypedDataError as error:
        raise SessionError(f"a tracked object's state cannot be kept: {error}") from error
    return json.dumps(data, separators=(",", ":"), allow_nan=False), _only_tensors(tree)


def _only_tensors(tree: Any) -> bool:
    if isinstance(tree, dict):
        return all(_only_tensors(value) for value in tree.values())
    return isinstance(tree, torch.Tensor)


def _address(tensor: torch.Tensor) -> int:
    return shards.local(tensor).data_ptr()


def _form(tensor: torch.Tensor) -> tuple[torch.dtype, torch.Size]:
    return tensor.dtype, tensor.shape
