"""Define what is planned with: a model, a cluster, a layout. Frozen records that check themselves."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

BYTES_PER_VALUE = {"bf16": 2, "fp16": 2, "fp32": 4}
"""Bytes of a weight or activation, by the precision of the computation."""

RECOMPUTE = ("none", "selective", "full")
"""Which activations are dropped and computed again: none, the attention's scores, or all but each layer's
input."""

OPTIMIZER_BYTES = {"adam": 12, "adam-8bit": 6, "sgd-momentum": 8, "sgd": 4}
"""Bytes per parameter that the optimizer keeps, the fp32 master weight included."""

GRADIENT_BYTES = 4
"""Bytes of a gradient: gradients are summed in fp32."""


class LayoutError(ValueError):
    """A model, cluster or layout that is impossible. The message names the numbers, and what to change."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A decoder-only transformer. Counts are per model; `ffn` 0 means four times `hidden`."""

    name: str
    layers: int
    hidden: int
    heads: int
    sequence: int  # tokens per sequence
    vocabulary: int
    global_batch: int  # sequences per step
    ffn: int = 0  # width of the feed-forward block
    precision: str = "bf16"
    optimizer: str = "adam"
    optimizer_sharded: bool = False  # over the data-parallel ranks (ZeRO-1)
    recompute: str = "none"  # one of RECOMPUTE
    sequence_parallel: bool = True  # what tensor parallelism leaves whole is split along the sequence

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "heads", "sequence", "vocabulary", "global_batch"):
            _positive(f"model {self.name}: {name}", getattr(self, name))
        _one_of(f"model {self.name}: precision", self.precision, BYTES_PER_VALUE)
        _one_of(f"model {self.name}: optimizer", self.optimizer, OPTIMIZER_BYTES)
        _one_of(f"model {self.name}: recompute", self.recompute, RECOMPUTE)
        if self.hidden % self.heads:
            raise LayoutError(
                f"model {self.name}: hidden {self.hidden} is not divisible by its {self.heads} heads"
            )

    @property
    def width(self) -> int:
        """Width of the feed-forward block."""
        return self.ffn or 4 * self.hidden

    @property
    def layer_parameters(self) -> int:
        """Weights of one layer: attention 4 h^2, feed-forward 2 h f; biases and norms are left out."""
        return 4 * self.hidden**2 + 2 * self.hidden * self.width

    @property
    def parameters(self) -> int:
        """Weights of the whole model; embedding and head are tied."""
        return self.layers * self.layer_parameters + (self.vocabulary + self.sequence) * self.hidden


@dataclass(frozen=True, slots=True)
class LinkShape:
    """One device's share of a network.

    `efficiency`: the share of the bandwidth that collectives reach at the sizes that occur here."""

    bandwidth_bytes_per_s: float
    latency_s: float
    efficiency: float = 1.0

    def __post_init__(self) -> None:
        _positive("a link's bandwidth_bytes_per_s", self.bandwidth_bytes_per_s)
        if self.latency_s < 0:
            raise LayoutError(f"a link's latency_s is {self.latency_s}: give 0 or more")
        _share("a link's efficiency", self.efficiency)

    def move_s(self, nbytes: float) -> float:
        """Seconds to send `nbytes` from one device to another."""
        return self.latency_s + nbytes / (self.bandwidth_bytes_per_s * self.efficiency)

    def all_reduce_s(self, nbytes: float, ranks: int) -> float:
        """Seconds of a ring all-reduce: 2 (n-1) messages, 2 (n-1)/n of the bytes (Patarasuk, 2009)."""
        if ranks < 2:
            return 0.0
        rounds = 2 * (ranks - 1)
        return rounds * (self.latency_s + nbytes / ranks / (self.bandwidth_bytes_per_s * self.efficiency))


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """Equal nodes of equal devices. Fields with defaults are assumptions: no data sheet has them."""

    name: str
    nodes: int
    devices_per_node: int
    memory_bytes: float  # of one device
    peak_flops: float  # of one device, 1/s, dense, in the model's precision
    inside: LinkShape  # between devices of a node
    between: LinkShape  # between nodes, one device's share
    matmul_efficiency: float = 0.6  # share of the peak that the model's matrix products reach
    reserved_bytes: float = 3e9  # context, communication buffers and workspace of one device
    fragmentation: float = 0.1  # share of the allocated bytes that is lost on top of them
    gradient_overlap: float = 0.0  # share of the gradient exchange that the backward pass hides

    def __post_init__(self) -> None:
        for name in ("nodes", "devices_per_node", "memory_bytes", "peak_flops"):
            _positive(f"cluster {self.name}: {name}", getattr(self, name))
        for name in ("matmul_efficiency",):
            _share(f"cluster {self.name}: {name}", getattr(self, name))
        for name in ("fragmentation", "gradient_overlap"):
            if not 0 <= getattr(self, name) <= 1:
                raise LayoutError(f"cluster {self.name}: {name} is {getattr(self, name)}: give 0 to 1")

    @property
    def devices(self) -> int:
        """How many devices there are."""
        return self.nodes * self.devices_per_node

    def with_devices(self, devices: int) -> ClusterShape:
        """The same cluster with `devices` devices left. LayoutError when these are not whole nodes."""
        per_node = min(self.devices_per_node, devices)
        if devices < 1 or devices % per_node:
            raise LayoutError(f"{devices} devices are no whole nodes of {self.devices_per_node}")
        return dataclasses.replace(self, nodes=devices // per_node, devices_per_node=per_node)


@dataclass(frozen=True, slots=True)
class Layout:
    """How ranks divide the work: tensor, pipeline, data and context parallel sizes. Their product is the
    number of devices."""

    tp: int
    pp: int
    dp: int
    cp: int = 1
    micro_batch: int = 1  # sequences per pass through the pipeline
    stages: tuple[int, ...] = field(default=())  # layers of each pipeline stage; (): not chosen yet

    @property
    def devices(self) -> int:
        """How many devices it takes."""
        return self.tp * self.pp * self.dp * self.cp


def _positive(what: str, value: float) -> None:
    if not value > 0:
        raise LayoutError(f"{what} is {value}: give a number above 0")


def _share(what: str, value: float) -> None:
    if not 0 < value <= 1:
        raise LayoutError(f"{what} is {value}: give a share above 0, 1 at most")


def _one_of(what: str, word: str, known: Iterable[str]) -> None:
    if word not in known:
        raise LayoutError(f"{what} is {word!r}: known are {', '.join(known)}")
