"""Name the bits of a state: tensors, numbers and plain trees as {path: digest}."""

from __future__ import annotations

import hashlib
from typing import Any

import torch


def of(tree: Any, path: str = "") -> dict[str, str]:
    """Each leaf of a tree by its path. A tensor's digest covers its dtype, its shape and every bit."""
    if isinstance(tree, torch.Tensor):
        return {path: _tensor(tree)}
    if isinstance(tree, dict):
        found: dict[str, str] = {}
        for key, value in tree.items():
            found |= of(value, f"{path}.{key}" if path else str(key))
        return found
    if isinstance(tree, list | tuple):
        return of(dict(enumerate(tree)), path)
    return {path: tree.hex() if isinstance(tree, float) else repr(tree)}


def _tensor(tensor: torch.Tensor) -> str:
    plain = tensor.detach().cpu().contiguous()
    bits = plain.reshape(-1).view(torch.uint8).numpy().tobytes()
    return hashlib.sha256(f"{plain.dtype} {tuple(plain.shape)} ".encode() + bits).hexdigest()[:16]
