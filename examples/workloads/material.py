"""Share what the workloads of this folder need: flags, data, samples for a plain loop, digests of the result.

Every workload is one file with two modes: under `holdfast run` it trains with a session; `--reference` is the
same training in plain torch, under torchrun. Both must end with the same bits, which `finish` records for
comparison."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from holdfast.data.sampling import indices

WIDTH, CLASSES, SAMPLES, GLOBAL_BATCH = 8, 4, 96, 16
ONE_EACH = 1e-6
"""A bucket size for DDP, in MB, that gives each parameter a bucket of its own.

Then the order in which the gradients of four ranks are summed does not depend on the order of the parameters,
and plain DDP can be compared with session.ddp bit by bit. Only the comparison needs it."""

_generator = torch.Generator().manual_seed(7)
X = torch.randn(SAMPLES, WIDTH, generator=_generator)
Y = (X @ torch.randn(WIDTH, CLASSES, generator=_generator)).argmax(dim=1)
_shares: list[tuple[int, list[int]]] = []
_inner = [16]


def arguments(**flags: dict[str, Any]) -> argparse.Namespace:
    """The flags of every workload and those of this one. Also sets torch up to give the same bits each
    time."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--reference", action="store_true", help="plain torch, without Holdfast")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--out", default="", help="a folder for what each rank came to")
    parser.add_argument("--inner", type=int, default=_inner[0], help="width of the models' inner layers")
    for name, options in flags.items():
        parser.add_argument(f"--{name.replace('_', '-')}", **options)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    args = parser.parse_args()
    _inner[0] = args.inner
    return args


def mlp(inner: int = 0, out: int = CLASSES, into: int = WIDTH) -> nn.Sequential:
    """A small network. `inner`: its width; 0: that of the flag --inner."""
    inner = inner or _inner[0]
    return nn.Sequential(nn.Linear(into, inner), nn.Tanh(), nn.Linear(inner, out))


def noise(step: int, *shape: int, seed: int = 0) -> torch.Tensor:
    """Random numbers that depend on the step alone (and on `seed`)."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1000 * seed + step))


def share(step: int, place: int | None = None, places: int | None = None, *, seed: int = 0) -> torch.Tensor:
    """The samples of a step for one of `places` ranks, in the plain loop.

    A function of the step alone, the same that session.sample_indices uses."""
    place = dist.get_rank() if place is None else place
    places = dist.get_world_size() if places is None else places
    first, end = place * GLOBAL_BATCH // places, (place + 1) * GLOBAL_BATCH // places
    found = indices(SAMPLES, step * GLOBAL_BATCH, GLOBAL_BATCH, seed)[first:end]
    _shares.append((step, found.tolist()))
    return found


def average(tensors: Any, group: Any = None, weight: float | None = None) -> None:
    """Replace each tensor by its mean over the ranks of a group, one after the other.

    With `weight`: by the sum of all ranks' tensors, each times the weight of its rank."""
    with torch.no_grad():
        for tensor in tensors:
            own = tensor.to_local() if hasattr(tensor, "to_local") else tensor
            own.mul_(1 / dist.get_world_size(group) if weight is None else weight)
            dist.all_reduce(own, group=group)


def gradients(*modules: nn.Module) -> list[torch.Tensor]:
    """The gradients of all parameters that have one, in order."""
    return [p.grad for module in modules for p in module.parameters() if p.grad is not None]


def begin() -> int:
    """Join the process group that torchrun's variables name, in the plain loop. Returns this rank."""
    dist.init_process_group("gloo")
    return dist.get_rank()


def finish(args: argparse.Namespace, rank: int, **objects: Any) -> None:
    """Write what this rank ended with: a digest of every tensor and number in these objects' states, by name.

    Also, for the plain loop, the samples that it took."""
    found: dict[str, str] = {}
    for name, thing in objects.items():
        tree = thing.state_dict() if hasattr(thing, "state_dict") else thing
        if isinstance(thing, nn.Module):
            tree = dict(tree) | dict(thing.named_buffers())
        _digest(name, tree, found)
    if args.out:
        told = {"rank": rank, "digests": found, "shares": _shares if args.reference else []}
        path = Path(args.out) / f"{rank}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(told))
        partial.replace(path)
    print(f"rank {rank}:", hashlib.blake2b(repr(sorted(found.items())).encode(), digest_size=8).hexdigest())


def _digest(path: str, value: Any, found: dict[str, str]) -> None:
    if isinstance(value, torch.Tensor):
        own = value.to_local() if hasattr(value, "to_local") else value
        data = own.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        found[path] = hashlib.blake2b(data, digest_size=8).hexdigest() + f" {tuple(own.shape)} {own.dtype}"
    elif isinstance(value, dict):
        for key, item in value.items():
            _digest(f"{path}.{key}", item, found)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _digest(f"{path}.{index}", item, found)
    elif not callable(value):
        found[path] = repr(value)
