"""Plan which live tensor goes to which place of a slot, once for as long as the tensors stay the same.

Modules and optimizers keep their tensors from step to step, so the text of their part of the header can be
kept. Small data (options of parameter groups, schedulers, the script's own objects) is read and encoded each
time."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from holdfast.checkpoint.format import typed
from holdfast.errors import SessionError
from holdfast.ipc import layout
from holdfast.state import built, modes, shard_ids, shards
from holdfast.state import tracked as state
from holdfast.state.optimizers import parameters_of

if TYPE_CHECKING:
    from holdfast.state.tracked import TrackedState


@dataclass(slots=True)
class ObjectPlan:
    """One tracked object's tensors and header text.

    - `base`: index of its first tensor in the header.
    - `names`, `tensors`, `wholes`: for each tensor its path, this rank's memory, and its place in a DTensor
      (None: it is whole).
    - `text`: the header text of the object; if `kept`, only the part that does not change."""

    name: str
    thing: Any
    base: int
    names: list[str] = field(default_factory=list)
    tensors: list[torch.Tensor] = field(default_factory=list)
    wholes: list[shards.Place | None] = field(default_factory=list)
    text: str = ""
    now: str = ""  # the changing part of the text, as in the newest header
    # `text` is kept, and valid while `holds()` is true (an optimizer's: of its tensors' state only). False:
    # it is read each time.
    kept: bool = False
    entries: built.Entries = field(default_factory=lambda: built.Entries((), ()))
    forms: built.Forms = field(default_factory=lambda: built.Forms(()))
    owners: list[Any] = field(default_factory=list)  # an optimizer's state of each parameter
    order: list[Any] = field(default_factory=list)  # its parameters: their order names that state

    def holds(self) -> bool:
        """Whether every tensor is where it was, and has the same form."""
        if isinstance(self.thing, torch.optim.Optimizer) and not (
            built.same_objects(self.thing.state.values(), self.owners)
            and built.same_objects(parameters_of(self.thing), self.order)
        ):
            return False
        return self.entries.same() and self.forms.same()


class SnapshotPlan:
    """The tracked objects' state, ready to be copied."""

    def __init__(self, tracked: TrackedState) -> None:
        self._tracked = tracked
        self._objects, self._identity = dict(tracked.objects), tracked.identity
        self._names = tracked.names()
        self.parts: list[ObjectPlan] = []
        base = 0
        for name, thing in self._objects.items():
            part = _part(name, thing, base, self._names)
            self.parts.append(part)
            base += len(part.tensors)
        self.tensors = [tensor for part in self.parts for tensor in part.tensors]
        self.shard = shard_ids.of(tracked)
        self.placed, self.data_bytes = _placed(self.parts)
        whole = json.loads(layout.encode(self.placed, None))
        self._tensors_text = json.dumps(whole["tensors"], separators=(",", ":"))
        away = [index for index, tensor in enumerate(self.tensors) if tensor.device.type != "cpu"]
        self._away_text = json.dumps(away, separators=(",", ":"))

    def header(self, random: Any = None, functions: str = "") -> bytes | None:
        """The header for the present state, or None if the plan no longer fits it.

        `random`: the generators' states, if they are kept too. `functions`: the finished elastic
        functions."""
        if self._tracked.objects != self._objects or self._tracked.identity != self._identity:
            return None
        texts = []
        for part in self.parts:
            text = self._text(part)
            if text is None:
                return None
            texts.append(f"[{json.dumps(part.name)},{text}]")
        more = f',"random":{json.dumps(typed.encode(random))}' if random is not None else ""
        more += f',"functions":{json.dumps(functions)}' if functions else ""
        if own := shard_ids.claimed(self._tracked):
            more += f',"own":{json.dumps(own)}'
        if self._tracked.scattered:
            more += ',"scattered":true'
        modules = self._tracked.named_modules()
        every = (parameter for module in modules.values() for parameter in module.parameters())
        if graded := modes.graded(modules, self._tracked.graded(every)):
            more += f',"graded":{json.dumps(graded)}'
        contract = self._tracked.contract()
        more += f',"data":{contract}' if contract else ""
        began = self._tracked.beginnings()
        more += f',"began":{began}' if began else ""
        state_text = f'{{"objects":{{"dict":[{",".join(texts)}]}},"away":{self._away_text}{more}}}'
        shard = f',"shard":{json.dumps(self.shard)}' if self.shard != shard_ids.WHOLE else ""
        return f'{{"tensors":{self._tensors_text},"state":{state_text}{shard}}}'.encode()

    def _text(self, part: ObjectPlan) -> str | None:
        """The header text of one object; None if the plan no longer fits it."""
        if not part.kept:
            fresh = _part(part.name, part.thing, part.base, self._names)
            if _read(fresh) != _read(part):
                return None
            self.tensors[part.base : part.base + len(fresh.tensors)] = fresh.tensors
            part.now = fresh.text
            return fresh.text
        if not part.holds():
            return None
        if isinstance(part.thing, torch.optim.Optimizer):
            now = {"param_groups": _groups(part.thing), "parameters": modes.labels(part.thing, self._names)}
            part.now = _dump(now, part.name, [])[0]
            return _join(part.text, part.now)
        part.now = _dump({"modes": modes.of(part.thing)}, part.name, [])[0]
        return f"{part.text[:-2]},{part.now[len(_DICT) :]}"


def current(
    plan: SnapshotPlan | None, tracked: TrackedState, random: Any = None, functions: str = ""
) -> tuple[SnapshotPlan, bytes]:
    """This plan with its header if it still fits, else a new one."""
    header = plan.header(random, functions) if plan is not None else None
    if plan is not None and header is not None:
        return plan, header
    plan = SnapshotPlan(tracked)
    header = plan.header(random, functions)
    if header is None:
        raise SessionError(
            "the tracked tensors change while they are read: stop the thread that changes them"
        )
    return plan, header


def _part(name: str, thing: Any, base: int, names: dict[int, str]) -> ObjectPlan:
    part = ObjectPlan(name, thing, base)
    tree = state.capture(thing, names)
    indices = _collect(part, tree)
    part.text, _ = _dump(tree, name, indices)
    if isinstance(thing, torch.nn.Module):
        part.kept = modes.is_live(thing, tree["state"])
        if part.kept:
            tree.pop("modes")
            part.text, _ = _dump(tree, name, indices)
        part.entries = built.entries(thing.modules(), buffers=True)
        part.forms = _forms(part.entries)
    elif getattr(type(thing), "state_dict", None) is torch.optim.Optimizer.state_dict:
        _keep_optimizer(part, tree["state"], indices)
    return part


def _collect(part: ObjectPlan, tree: Any) -> list[int]:
    """Fill the part's tensors, each memory once. Returns the index in the header of each tensor in the
    tree."""
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


def _placed(parts: list[ObjectPlan]) -> tuple[tuple[layout.Tensor, ...], int]:
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


def _keep_optimizer(part: ObjectPlan, tree: Any, indices: list[int]) -> None:
    """Keep the text of an optimizer's state if that consists of tensors only and its options hold none."""
    inner, only_tensors = _dump(tree["state"], part.name, indices)
    options = any(
        isinstance(value, torch.Tensor) for group in tree["param_groups"] for value in group.values()
    )
    if not only_tensors or options or set(tree) != {"state", "param_groups"}:
        return
    optimizer: torch.optim.Optimizer = part.thing
    if _hooked(optimizer) or not all(isinstance(each, dict) for each in optimizer.state.values()):
        return
    part.kept, part.text = True, inner
    part.owners, part.order = list(optimizer.state.values()), list(parameters_of(optimizer))
    part.entries = built.Entries(part.owners, part.owners)
    part.forms = _forms(part.entries)


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


_DICT = '{"dict":['


def _join(state_text: str, now_text: str) -> str:
    """The text of {"state": {"state": ..., "param_groups": ...}, "parameters": ...}, as `_dump` gives it.

    It is joined from the text of the inner state and that of the other two."""
    groups, _, labels = now_text.rpartition(',["parameters",')
    inner = f'{_DICT}["state",{state_text}],{groups[len(_DICT) :]}]}}'
    return f'{_DICT}["state",{inner}],["parameters",{labels}'


def _dump(tree: Any, name: str, indices: list[int]) -> tuple[str, bool]:
    """The tree as typed JSON text, with its tensors replaced by these indices in turn; and whether it has
    tensors only."""
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


def _forms(entries: built.Entries) -> built.Forms:
    return built.Forms(thing for thing in entries.objects if isinstance(thing, torch.Tensor))


def _read(part: ObjectPlan) -> tuple[list[Any], ...]:
    """What the header says of the part's tensors; if it differs, the list of tensors is another."""
    return part.names, part.wholes, [(tensor.dtype, tensor.shape) for tensor in part.tensors]
