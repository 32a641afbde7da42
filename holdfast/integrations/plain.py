"""Turn a rank's knowledge into bytes and back, exactly and without pickle, and exchange them."""

from __future__ import annotations

import copy
import json
import zlib
from collections import Counter, OrderedDict, defaultdict, deque
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from holdfast.checkpoint.format import typed
from holdfast.errors import SessionError
from holdfast.groups.groups import carrier, gather_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_TENSOR, _DEQUE, _DEFAULTS, _SET = (f"holdfast {kind}" for kind in ("tensor", "deque", "defaults", "set"))
_FACTORIES: dict[str, Callable[[], Any] | None] = {
    "none": None,
    **{kind.__name__: kind for kind in (int, float, str, list, dict, set)},
}
"""What a defaultdict that `dumps` keeps may begin a value with."""
_FACTORY_NAMES = {kind: name for name, kind in _FACTORIES.items()}
_SHRINKS_MAX = 32
"""How much smaller tensors may become by compression, to be worth an attempt."""
_OTHERS = ""
"""In place of an attribute's name: the names of those that are not kept."""
_MAPPINGS = (dict, OrderedDict, Counter)
"""Those that `dumps` keeps. A Counter that is made of pairs counts them: each is made of a dict."""


def dumps(tree: Any, what: str) -> bytes:
    """The tree of plain data and tensors as bytes. `what` it is, for errors.

    Raises SessionError with the path to anything else in it."""
    try:
        return json.dumps(typed.encode(_without_tensors(tree), path=what)).encode()
    except typed.TypedDataError as error:
        raise SessionError(str(error)) from error


def loads(data: bytes, device: torch.device | None = None) -> Any:
    """What `dumps` was given. Tensors that were not on the CPU are moved to `device`."""
    return _with_tensors(typed.decode(json.loads(data)), device)


def squeezed(data: bytes, bytes_max: int) -> dict[str, Any]:
    """The data compressed, as `kept`; or why they are `refused`: they are larger than that."""
    kept = zlib.compress(data, 1)
    if len(kept) > bytes_max:
        return {"refused": f"it has {len(kept) >> 20} MiB, and {bytes_max >> 20} MiB are kept"}
    return {"kept": kept}


def kept(tree: Any, what: str, bytes_max: int) -> dict[str, Any]:
    """The tree of plain data and tensors compressed, as `kept`; or why it is `refused`."""
    size = _tensor_bytes(tree)
    if size > _SHRINKS_MAX * bytes_max:  # it would take long to find that out
        return {"refused": f"it has {size >> 20} MiB, and {bytes_max >> 20} MiB are kept"}
    try:
        return squeezed(dumps(tree, what), bytes_max)
    except (SessionError, TypeError, ValueError) as error:
        return {"refused": str(error)[:500]}


def _tensor_bytes(tree: Any) -> int:
    if isinstance(tree, torch.Tensor):
        return tree.nbytes
    items = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list | tuple) else ()
    return sum(map(_tensor_bytes, items))


def is_plain(value: Any) -> bool:
    """Whether `dumps` can keep it."""
    try:
        typed.encode(_without_tensors(value))
    except (typed.TypedDataError, RecursionError, TypeError):
        return False
    return True


def copied(value: Any) -> Any:
    """A copy of plain data that shares nothing with it; its tensors are detached."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if type(value) in (list, tuple):
        return type(value)(map(copied, value))
    if type(value) in _MAPPINGS:
        return type(value)({key: copied(item) for key, item in value.items()})
    if type(value) is deque:
        return deque(map(copied, value), value.maxlen)
    if type(value) is defaultdict:
        return defaultdict(value.default_factory, {key: copied(item) for key, item in value.items()})
    return copy.deepcopy(value)


def captured(kept: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The attributes of an object that are kept, and of all its `names` those of the others."""
    others = [name for name in names if name not in kept]
    return {**kept, _OTHERS: others} if others else kept


def put_back(owner: Any, found: dict[str, Any], present: Iterable[str]) -> None:
    """Make attributes of an object what `captured` has found. Of those that are `present` here and could be
    kept, the ones that were not there are removed; what was there and could not be kept stays."""
    for name in {*present} - found.keys() - {*found.get(_OTHERS, ())}:
        delattr(owner, name)
    for name in found.keys() - {_OTHERS}:
        put(owner, name, found[name])


def put(owner: Any, name: str, value: Any) -> None:
    """Make this attribute that value: in place if it is a collection, which the script may hold as well."""
    there = vars(owner).get(name)
    if type(there) is not type(value) or there is value:
        setattr(owner, name, value)
    elif isinstance(there, list | deque):
        there.clear()
        there.extend(value)
    elif isinstance(there, dict | set):
        there.clear()
        there.update(value)
    else:
        setattr(owner, name, value)


def gather(own: bytes, world_size: int, device: torch.device) -> list[bytes]:
    """Every rank's bytes. All ranks call it together, and none returns before all have called it."""
    if world_size == 1:
        return [own]
    return gather_bytes(own, carrier(dist.get_backend(), device), world_size)


def _without_tensors(value: Any) -> Any:
    kind = type(value)
    if isinstance(value, torch.Tensor):
        return _packed(value)
    if kind in (list, tuple):
        return kind(map(_without_tensors, value))
    if kind in _MAPPINGS:
        return kind({key: _without_tensors(item) for key, item in value.items()})
    if kind is deque:
        return {_DEQUE: [value.maxlen, list(map(_without_tensors, value))]}
    if kind is set:
        return {_SET: list(value)}
    name = _FACTORY_NAMES.get(value.default_factory) if kind is defaultdict else None
    return value if name is None else {_DEFAULTS: [name, _without_tensors(dict(value))]}


def _packed(tensor: torch.Tensor) -> dict[str, Any]:
    flat = tensor.detach().cpu().contiguous()
    content = flat.reshape(-1).view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    away = tensor.device.type != "cpu"
    return {_TENSOR: [str(flat.dtype).removeprefix("torch."), list(flat.shape), content, away]}


def _with_tensors(value: Any, device: torch.device | None) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_with_tensors(item, device) for item in value)
    if not isinstance(value, dict):
        return value
    found = _MADE.get(next(iter(value), None)) if len(value) == 1 else None
    if found is not None:
        (content,) = value.values()
        return found(content, device)
    return type(value)({key: _with_tensors(item, device) for key, item in value.items()})


def _tensor(packed: list[Any], device: torch.device | None) -> torch.Tensor:
    kind, shape, content, away = packed
    dtype: torch.dtype = getattr(torch, kind)
    if content:
        made = torch.frombuffer(bytearray(content), dtype=torch.uint8).view(dtype).reshape(shape).clone()
    else:
        made = torch.empty(shape, dtype=dtype)
    return made if device is None or not away else made.to(device)


def _deque(packed: list[Any], device: torch.device | None) -> deque[Any]:
    return deque(_with_tensors(packed[1], device), packed[0])


def _defaults(packed: list[Any], device: torch.device | None) -> defaultdict[Any, Any]:
    return defaultdict(_FACTORIES[packed[0]], _with_tensors(packed[1], device))


def _set(packed: list[Any], _: torch.device | None) -> set[Any]:
    return set(packed)


_MADE: dict[Any, Callable[[Any, torch.device | None], Any]] = {
    **{_TENSOR: _tensor, _DEQUE: _deque, _DEFAULTS: _defaults, _SET: _set}
}
"""How each is made again that is packed in a dict with one key."""
