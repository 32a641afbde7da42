"""Estimate how long one step takes: compute, communication, and the pipeline's bubble.

Communication is added to compute as if nothing overlapped, except for the part of the gradient exchange
that `gradient_overlap` hides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.planner.shapes import BYTES_PER_VALUE, GRADIENT_BYTES

if TYPE_CHECKING:
    from controlplane.planner.shapes import ClusterShape, Layout, ModelShape


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of one step on the slowest device's path, by what they are spent on."""

    step_s: float  # the whole step: the sum of the others
    compute_s: float
    tensor_s: float  # all-reduces of tensor parallelism
    pipeline_s: float  # sends between pipeline stages
    context_s: float  # ring attention's sends of keys and values
    data_s: float  # all-reduce of the gradients
    bubble_s: float  # the pipeline fills and drains: the slowest stage waits
    mfu: float  # model FLOPs utilization: model_flops over what the devices could do in step_s

    @property
    def communication_s(self) -> float:
        """All communication together."""
        return self.tensor_s + self.pipeline_s + self.context_s + self.data_s


def layer_flops(model: ModelShape, backward: bool = True) -> float:
    """FLOPs of one layer for one sequence: products of weights and of attention, the backward pass twice
    the forward.

    Narayanan et al., 2021, equation 3: 72 s h^2 (1 + s / 6 h) with f = 4 h."""
    s, h = model.sequence, model.hidden
    forward = 2 * s * model.layer_parameters + 4 * s * s * h
    return forward * (3 if backward else 1)


def head_flops(model: ModelShape) -> float:
    """FLOPs of the output layer for one sequence, forward and backward."""
    return 6.0 * model.sequence * model.hidden * model.vocabulary


def model_flops(model: ModelShape) -> float:
    """FLOPs of one step as MFU counts them: without recomputation."""
    return model.global_batch * (model.layers * layer_flops(model) + head_flops(model))


def of_layout(model: ModelShape, cluster: ClusterShape, layout: Layout) -> Cost:
    """The cost of one step by the 1F1B schedule: m passes of the slowest stage, and one of each other
    stage."""
    flops = cluster.peak_flops * cluster.matmul_efficiency
    micro_batches = -(-model.global_batch // (layout.dp * layout.micro_batch))
    per_pass = layout.micro_batch / (layout.tp * layout.cp) / flops
    again = {"none": 0.0, "selective": _scores(model), "full": layer_flops(model, backward=False)}
    layer_s = (layer_flops(model) + again[model.recompute]) * per_pass
    head_s = head_flops(model) * per_pass
    tensor_s = _tensor_s(model, cluster, layout)
    context_s = _context_s(model, cluster, layout)
    hop_s = _hop_s(model, cluster, layout)
    computes = [layers * layer_s for layers in layout.stages]
    computes[-1] += head_s
    talks = [layers * (tensor_s + context_s) + hop_s for layers in layout.stages]
    slow = max(range(layout.pp), key=lambda stage: computes[stage] + talks[stage])
    passing = computes[slow] + talks[slow]
    bubble_s = sum(computes) + sum(talks) - passing
    data_s = _data_s(model, cluster, layout)
    step_s = micro_batches * passing + bubble_s + data_s
    share = micro_batches * layout.stages[slow]
    return Cost(
        step_s=step_s,
        compute_s=micro_batches * computes[slow],
        tensor_s=share * tensor_s,
        pipeline_s=micro_batches * hop_s,
        context_s=share * context_s,
        data_s=data_s,
        bubble_s=bubble_s,
        mfu=model_flops(model) / (step_s * layout.devices * cluster.peak_flops),
    )


def head_in_layers(model: ModelShape) -> float:
    """The cost of the output layer, in layers."""
    return head_flops(model) / layer_flops(model)


def _scores(model: ModelShape) -> float:
    """FLOPs that selective recomputation repeats: the attention's products."""
    return 4.0 * model.sequence**2 * model.hidden


def _tensor_s(model: ModelShape, cluster: ClusterShape, layout: Layout) -> float:
    """Seconds of tensor parallelism per layer and pass.

    Four all-reduces (two forward, two backward; Shoeybi et al., 2019). With sequence parallelism each is a
    reduce-scatter and an all-gather, of the same bytes. Full recomputation adds two more."""
    link = cluster.inside if layout.tp <= cluster.devices_per_node else cluster.between
    times = 6 if model.recompute == "full" else 4
    return times * link.all_reduce_s(_activation_bytes(model, layout), layout.tp)


def _context_s(model: ModelShape, cluster: ClusterShape, layout: Layout) -> float:
    """Seconds of ring attention per layer and pass: keys and values go round once forward, and, with their
    gradients, twice backward."""
    if layout.cp == 1:
        return 0.0
    inside = layout.tp * layout.cp <= cluster.devices_per_node
    link = cluster.inside if inside else cluster.between
    return 3 * (layout.cp - 1) * link.move_s(2 * _activation_bytes(model, layout) / layout.tp)


def _hop_s(model: ModelShape, cluster: ClusterShape, layout: Layout) -> float:
    """Seconds of the sends to the next stage and back per pass; each tensor rank sends its part of the
    sequence."""
    if layout.pp == 1:
        return 0.0
    inside = layout.tp * layout.cp * layout.pp <= cluster.devices_per_node
    link = cluster.inside if inside else cluster.between
    return 2 * link.move_s(_activation_bytes(model, layout) / layout.tp)


def _data_s(model: ModelShape, cluster: ClusterShape, layout: Layout) -> float:
    """Seconds of the gradients' all-reduce, once per step, over data and context ranks."""
    ranks = layout.dp * layout.cp
    weights = max(layout.stages) * model.layer_parameters + model.vocabulary * model.hidden
    inside = layout.devices <= cluster.devices_per_node
    link = cluster.inside if inside else cluster.between
    whole = link.all_reduce_s(weights / layout.tp * GRADIENT_BYTES, ranks)
    return whole * (1 - cluster.gradient_overlap)


def _activation_bytes(model: ModelShape, layout: Layout) -> float:
    """Bytes of one layer's output for one micro-batch."""
    tokens = model.sequence / layout.cp * layout.micro_batch
    return tokens * model.hidden * BYTES_PER_VALUE[model.precision]
