"""Copy large tensors into a slot while the next step's forward and backward run.

What an optimizer of torch owns (parameters and their state) does not change from the end of one step to the
optimizer's step in the next. A thread copies it meanwhile with memmove, which holds no GIL. Before the
optimizer moves, the copy is waited for. Everything else is copied at the boundary.

Whether the tensors did stay the same is checked. On every snapshot: their versions, and samples spread over
each tensor, at other places each time, against those taken at the boundary. On the first snapshots and on
every 100th: every byte, against a copy made at the boundary. Versions alone prove nothing: `.data`, numpy and
collectives write without moving them. What has moved is copied at the boundary from then on.

One thing can escape: a write past the versions (`.data`, numpy) into a few elements of a large tensor,
outside of the optimizer's step, that begins after the first snapshots. So lazy copies must be asked for."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

import torch

from holdfast.state import copying
from holdfast.state import tracked as state
from holdfast.state.optimizers import parameters_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.snapshots.plan import ObjectPlan, SnapshotPlan

SMALLEST_BYTES = 64 * 1024
"""Smaller tensors are copied at the boundary: to keep book on them costs more than to copy them."""
THREAD = "holdfast-snapshot"
"""Name of the thread that copies."""
_FIRST, _EVERY = 3, 100
_SAMPLES = 32
"""Elements of each tensor that are looked at again when its copy is complete. A write to the whole tensor
changes nearly all of them."""
_PRIME = 7919
"""By so many elements the samples of one snapshot begin further on than those of the one before."""

log = logging.getLogger("holdfast.sdk")


def compared(count: int) -> bool:
    """Whether the lazy snapshot number `count` (from 0) is compared byte for byte."""
    return count < _FIRST or (count + 1) % _EVERY == 0


def candidates(plan: SnapshotPlan) -> frozenset[int]:
    """Indices of the plan's tensors that only an optimizer of torch changes, in its step.

    So do shards of larger tensors (FSDP2, TP): the optimizer moves this rank's part, and collectives of
    forward and backward only read it. Left out: what other tensors share memory with, tied weights, tensors
    on devices, inference tensors, and all that belongs to an optimizer that steps in backward or is not
    torch's own."""
    known = [part for part in plan.parts if _steps_alone(part.thing)]
    owned = {state.live(parameter).data_ptr() for part in known for parameter in parameters_of(part.thing)}
    tied = set(_tied(plan.parts))
    sharers = Counter(_storage(tensor) for tensor in plan.tensors)
    found = set()
    for part in plan.parts:
        for offset, tensor in enumerate(part.tensors):
            mine = part in known or (
                isinstance(part.thing, torch.nn.Module)
                and tensor.data_ptr() in owned
                and tensor.data_ptr() not in tied
            )
            if part.kept and mine and _copies_alone(tensor, sharers):
                found.add(part.base + offset)
    return frozenset(found)


def _steps_alone(thing: object) -> bool:
    """Whether this is an optimizer of torch that moves only in its step, after its pre-step hooks."""
    if not isinstance(thing, torch.optim.Optimizer) or not type(thing).__module__.startswith("torch.optim."):
        return False
    return not any(getattr(p, "_post_accumulate_grad_hooks", None) for p in parameters_of(thing))


def _tied(parts: Iterable[ObjectPlan]) -> list[int]:
    """Addresses of the parameters that modules hold under more than one name."""
    counts = Counter(
        state.live(parameter).data_ptr()
        for part in parts
        if isinstance(part.thing, torch.nn.Module)
        for _, parameter in part.thing.named_parameters(remove_duplicate=False)
    )
    return [address for address, count in counts.items() if count > 1]


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided else 0


def _copies_alone(tensor: torch.Tensor, sharers: Counter[int]) -> bool:
    return (
        tensor.nbytes >= SMALLEST_BYTES
        and copying.is_run(tensor)
        and not tensor.is_inference()
        and sharers[_storage(tensor)] == 1
    )


class LazyCopy:
    """A copy of these (target, source) pairs under way in a thread; `names` has one name for each.

    `count`: how many lazy snapshots there were before; it decides which bytes are compared at the end."""

    def __init__(self, names: Sequence[str], pairs: Sequence[copying.Pair], count: int) -> None:
        self._names, self._pairs = names, pairs
        self._versions = [source._version for _, source in pairs]
        whole = compared(count)
        self._expected = _clones(pairs) if whole else None
        self._samples = None if whole else _Samples([source for _, source in pairs], count)
        self.copy_s = 0.0
        self._failed = False
        self._thread = threading.Thread(target=self._run, name=THREAD)
        self._thread.start()

    def _run(self) -> None:
        begun = time.perf_counter()
        try:
            copying.copy(self._pairs)
        except Exception:  # nothing here may end training: the targets are not used
            self._failed = True
            log.exception("the copy of a snapshot beside training has failed")
        self.copy_s = time.perf_counter() - begun

    def join(self) -> None:
        """Wait until the thread has ended."""
        self._thread.join()

    def moved(self) -> tuple[list[str], bool]:
        """After `join`: the names of the tensors that did not stay the same, and whether the targets hold the
        bytes of the boundary nevertheless, because they were put right from the copy made there."""
        if self._failed:
            return list(self._names), False
        if self._samples is not None:
            kept = zip(self._pairs, self._versions, self._samples.same(), strict=True)
            moved = [source._version != version or not same for (_, source), version, same in kept]
            found = [name for name, each in zip(self._names, moved, strict=True) if each]
            return found, not found
        assert self._expected is not None
        found = []
        pairs = zip(self._names, self._pairs, self._versions, self._expected, strict=True)
        for name, (target, source), version, expected in pairs:
            same = _same_bytes(target, expected)
            if not same:
                copying.copy([(target, expected)])
            if source._version != version or not same or not _same_bytes(source, expected):
                found.append(name)
        return found, True


class _Samples:
    """A few elements of each of these tensors, as they were when this was made."""

    def __init__(self, tensors: Sequence[torch.Tensor], count: int) -> None:
        by_dtype: dict[torch.dtype, list[int]] = {}
        for index, tensor in enumerate(tensors):
            by_dtype.setdefault(tensor.dtype, []).append(index)
        self._groups = list(by_dtype.values())  # read together
        self._views = [spread(tensor, count) for tensor in tensors]
        self._before = self._read()

    def same(self) -> list[bool]:
        """For each tensor, whether its samples have the same bytes still."""
        found = [True] * len(self._views)
        for indices, before, now in zip(self._groups, self._before, self._read(), strict=True):
            if not _same_bytes(before, now):
                sizes = [len(self._views[index]) for index in indices]
                parts = torch.split(before, sizes), torch.split(now, sizes)
                for index, one, other in zip(indices, *parts, strict=True):
                    found[index] = _same_bytes(one, other)
        return found

    @torch.no_grad()
    def _read(self) -> list[torch.Tensor]:
        return [torch.cat([self._views[index] for index in each]) for each in self._groups]


def spread(tensor: torch.Tensor, count: int) -> torch.Tensor:
    """A view of elements spread over a contiguous tensor; another `count` gives other elements."""
    stride = max(1, tensor.numel() // _SAMPLES)
    first = count * _PRIME % stride
    return tensor.detach().reshape(-1)[first::stride]


@torch.no_grad()
def _clones(pairs: Sequence[copying.Pair]) -> list[torch.Tensor]:
    copies = [torch.empty_like(source) for _, source in pairs]
    copying.copy([(copy, source) for copy, (_, source) in zip(copies, pairs, strict=True)])
    return copies


def _same_bytes(left: torch.Tensor, right: torch.Tensor) -> bool:
    return torch.equal(left.reshape(-1).view(torch.uint8), right.reshape(-1).view(torch.uint8))
