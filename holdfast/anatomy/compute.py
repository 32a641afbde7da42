"""Know what a token costs this rank's model, and what its device can do: what MFU is made from.

One token takes 6 N + 12 L H S floating-point operations, forward and backward, with N parameters, L layers
of width H (all heads together) and sequences of S tokens: Chowdhery et al., "PaLM: Scaling Language Modeling
with Pathways" (2022), appendix B. Nothing is taken off for causal masks, nor added for recomputed
activations, as there. N counts the trained parameters of all tracked modules, each once, and of DTensors the
whole. A table of embeddings that is only looked up multiplies nothing and does not count; one whose weight
is the output layer's too does. What is not known for sure is not guessed: `note` says why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn.parameter import is_lazy

from holdfast.anatomy import peaks
from holdfast.ipc import rank_facts as notes

if TYPE_CHECKING:
    from collections.abc import Iterable

_HIDING = ("FullyShardedDataParallel",)
"""Classes of modules whose parameters are parts of others."""


@dataclass(frozen=True, slots=True)
class DeclaredCompute:
    """What the script declares of its model and device; None or "": it does not."""

    layers: int | None = None
    hidden: int | None = None
    sequence: int | None = None
    parameters: int | None = None  # of this rank's pipeline stage, whole, as a token passes them
    dtype: str = ""  # of matrix products
    peak_flops: float | None = None  # of the device, per second


@dataclass(frozen=True, slots=True)
class ComputeFacts:
    """Operations of one token, peak of the device per second (0: not known), and how or why not (NOTES)."""

    token_flops: int
    peak_flops: int
    note: int


def facts(
    modules: Iterable[torch.nn.Module],
    declared: DeclaredCompute,
    device: str | None,
    autocast: torch.dtype | None,
) -> ComputeFacts:
    """What can be known. `device`: the name of the GPU; None: it trains on a CPU. `autocast`: the type in
    which a tracked module was seen to compute; None: autocast was not on."""
    modules = list(modules)
    token_flops, note = _token_flops(modules, declared)
    peak, why = _peak(modules, declared, device, autocast)
    return ComputeFacts(token_flops, int(peak), why or note)


def _token_flops(modules: list[torch.nn.Module], declared: DeclaredCompute) -> tuple[int, int]:
    number, note = declared.parameters, notes.DECLARED
    if number is None:
        number, note = _parameters(modules)
    if not number:
        return 0, note
    if declared.layers is None or declared.hidden is None or declared.sequence is None:
        return 0, notes.NO_SHAPE
    return 6 * number + 12 * declared.layers * declared.hidden * declared.sequence, note


def _parameters(modules: list[torch.nn.Module]) -> tuple[int, int]:
    """The number of trained parameters; 0 with the note that says why it is not known."""
    found: dict[int, int] = {}
    for module in modules:
        parameters = list(module.parameters())
        if any(is_lazy(each) for each in parameters):
            return 0, notes.HIDDEN_SHARDS  # its first call decides how many there are
        trained = [each for each in parameters if each.requires_grad]
        if not trained:
            continue  # a teacher or an average: it is not trained
        if len(trained) < len(parameters):
            return 0, notes.FROZEN
        if any(each.numel() == 0 for each in trained) or any(
            base.__name__ in _HIDING for part in module.modules() for base in type(part).__mro__
        ):
            return 0, notes.HIDDEN_SHARDS
        looked_up = _looked_up(module)
        found |= {id(each): each.numel() for each in trained if id(each) not in looked_up}
    return sum(found.values()), notes.COUNTED if found else notes.NO_PARAMETERS


def _looked_up(module: torch.nn.Module) -> set[int]:
    """The tables that are only looked up: weights of embeddings that no other kind of module has."""
    tables, others = set[int](), set[int]()
    for part in module.modules():
        where = tables if isinstance(part, torch.nn.Embedding | torch.nn.EmbeddingBag) else others
        where.update(id(each) for each in part.parameters(recurse=False))
    return tables - others


def _peak(
    modules: list[torch.nn.Module],
    declared: DeclaredCompute,
    device: str | None,
    autocast: torch.dtype | None,
) -> tuple[float, int]:
    """The peak; 0 with the note that says why it is not known."""
    if declared.peak_flops is not None:
        return declared.peak_flops, 0
    if device is None:
        return 0.0, notes.ON_CPU
    dtype = declared.dtype or _dtype(modules, autocast)
    if dtype not in peaks.TYPES:
        return 0.0, notes.NO_DTYPE
    found = peaks.peak(device)
    return found, 0 if found else notes.NO_PEAK


def _dtype(modules: list[torch.nn.Module], autocast: torch.dtype | None) -> str:
    """The name of the one type in which the modules compute; "": there are several, or none."""
    types = {each.dtype for module in modules for each in module.parameters() if each.requires_grad}
    if autocast is not None and types <= {torch.float32, autocast}:
        types = {autocast}
    return str(types.pop()).removeprefix("torch.") if len(types) == 1 else ""
