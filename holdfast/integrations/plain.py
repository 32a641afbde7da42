"""Turn a rank's knowledge into bytes and back, exactly and without pickle, and exchange them."""

from __future__ import annotations

import copy
import json
import zlib
from collections import Counter, OrderedDict
from typing import Any

import torch
import torch.distributed as dist

from holdfast.checkpoint.format import typed
from holdfast.errors import SessionError
from holdfast.groups.groups import carrier, gather_numbers

_TENSOR = "holdfast tensor"
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
    return copy.deepcopy(value)


def gather(own: bytes, world_size: int, device: torch.device) -> list[bytes]:
    """Every rank's bytes. All ranks call it together, and none returns before all have called it."""
    if world_size == 1:
        return [own]
    device = carrier(dist.get_backend(), device)
    sizes = [size for (size,) in gather_numbers([len(own)], device, world_size)]
    room = torch.zeros(world_size, max(sizes), dtype=torch.uint8, device=device)
    row = torch.zeros(max(sizes), dtype=torch.uint8, device=device)
    row[: len(own)] = torch.frombuffer(bytearray(own), dtype=torch.uint8).to(device) if own else row[:0]
    dist.all_gather(list(room.unbind()), row)
    return [each[:size].numpy().tobytes() for each, size in zip(room.cpu().unbind(), sizes, strict=True)]


def _without_tensors(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        flat = value.detach().cpu().contiguous()
        content = flat.reshape(-1).view(torch.uint8).numpy().tobytes() if flat.numel() else b""
        away = value.device.type != "cpu"
        return {_TENSOR: [str(flat.dtype).removeprefix("torch."), list(flat.shape), content, away]}
    if type(value) in (list, tuple):
        return type(value)(map(_without_tensors, value))
    if type(value) in _MAPPINGS:
        return type(value)({key: _without_tensors(item) for key, item in value.items()})
    return value


def _with_tensors(value: Any, device: torch.device | None) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_with_tensors(item, device) for item in value)
    if not isinstance(value, dict):
        return value
    if value.keys() == {_TENSOR}:
        kind, shape, content, away = value[_TENSOR]
        return _tensor(kind, shape, content, device if away else None)
    return type(value)({key: _with_tensors(item, device) for key, item in value.items()})


def _tensor(kind: str, shape: list[int], content: bytes, device: torch.device | None) -> torch.Tensor:
    dtype: torch.dtype = getattr(torch, kind)
    if content:
        made = torch.frombuffer(bytearray(content), dtype=torch.uint8).view(dtype).reshape(shape).clone()
    else:
        made = torch.empty(shape, dtype=dtype)
    return made if device is None else made.to(device)
