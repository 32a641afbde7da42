"""Estimate what one device must hold.

Formulas: section 4 of Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models
(2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.planner.shapes import BYTES_PER_VALUE, GRADIENT_BYTES, OPTIMIZER_BYTES

if TYPE_CHECKING:
    from controlplane.planner.shapes import ClusterShape, Layout, ModelShape


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Bytes of the fullest device, by what they are for."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    buffers: float  # reserved bytes, and what fragmentation loses

    @property
    def total(self) -> float:
        """All bytes together."""
        return self.weights + self.gradients + self.optimizer + self.activations + self.buffers


def of_layout(model: ModelShape, cluster: ClusterShape, layout: Layout) -> MemoryNeed:
    """The memory of the fullest device. All stages are compared: the first holds the most activations, and
    the first and the last an embedding."""
    return max(
        (_of_stage(model, cluster, layout, stage) for stage in range(layout.pp)), key=lambda m: m.total
    )


def _of_stage(model: ModelShape, cluster: ClusterShape, layout: Layout, stage: int) -> MemoryNeed:
    layers = layout.stages[stage]
    weights = layers * model.layer_parameters
    if stage in (0, layout.pp - 1):
        weights += model.vocabulary * model.hidden
    parameters = weights / layout.tp
    shards = layout.dp * layout.cp if model.optimizer_sharded else 1
    value = BYTES_PER_VALUE[model.precision]
    micro_batches = -(-model.global_batch // (layout.dp * layout.micro_batch))
    in_flight = min(micro_batches, layout.pp - stage)
    held = {
        "weights": parameters * value,
        "gradients": parameters * GRADIENT_BYTES,
        "optimizer": parameters * OPTIMIZER_BYTES[model.optimizer] / shards,
        "activations": in_flight * layers * layer_activations(model, layout)
        + (_logits(model, layout) if stage == layout.pp - 1 else 0.0),
    }
    lost = cluster.fragmentation * sum(held.values())
    return MemoryNeed(**held, buffers=cluster.reserved_bytes + lost)


def layer_activations(model: ModelShape, layout: Layout) -> float:
    """Bytes that one layer keeps of one micro-batch for the backward pass, on one device.

    Without recomputation, with and without sequence parallelism:

        s b h (34 + 5 a s / h) / t
        s b h (10 + 24 / t + 5 a s / (h t))

    Here s is the sequence length, b the micro-batch, h the hidden size, a the number of heads, and t the
    tensor-parallel size. `selective` drops the attention's 5 a s / h; `full` keeps only the layer's input of
    2 s b h. The formulas are for 2-byte values, and are scaled to others."""
    t = layout.tp
    sbh = model.sequence / layout.cp * layout.micro_batch * model.hidden
    scores = 5 * model.heads * (model.sequence / layout.cp) / model.hidden
    scale = BYTES_PER_VALUE[model.precision] / 2
    if model.recompute == "full":
        return scale * 2 * sbh / (t if model.sequence_parallel else 1)
    kept = scores if model.recompute == "none" else 0.0
    if model.sequence_parallel:
        return scale * sbh * (34 + kept) / t
    return scale * sbh * (10 + 24 / t + kept / t)


def _logits(model: ModelShape, layout: Layout) -> float:
    """Bytes of the head's output in fp32, and of its input."""
    tokens = model.sequence / layout.cp * layout.micro_batch
    return tokens * (4 * model.vocabulary + 4 * model.hidden) / layout.tp
