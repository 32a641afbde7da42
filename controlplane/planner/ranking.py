"""Rank the layouts with which a cluster can train a model, best first, each with its reasons.

All sizes that divide evenly are tried: there are few enough of them. A layout is judged by the estimated
time of a step (`cost.py`) and dropped when it does not fit into memory (`memory.py`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from controlplane.planner import cost, memory
from controlplane.planner.shapes import Layout, LayoutError
from controlplane.planner.stages import balance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controlplane.planner.cost import Cost
    from controlplane.planner.memory import MemoryNeed
    from controlplane.planner.shapes import ClusterShape, ModelShape

MICRO_BATCH_MAX = 16
"""Larger micro-batches are not tried."""
CONTEXT_MAX = 16
"""Larger context-parallel sizes are not tried."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One layout, and what it would cost."""

    layout: Layout
    memory: MemoryNeed
    cost: Cost
    memory_ratio: float  # of one device's memory; over 1: it does not fit
    reasons: tuple[str, ...]

    @property
    def communication_ratio(self) -> float:
        """Share of the step that is spent on communication."""
        return self.cost.communication_s / self.cost.step_s

    @property
    def bubble_ratio(self) -> float:
        """Share of the step in which the pipeline waits."""
        return self.cost.bubble_s / self.cost.step_s


def plan(model: ModelShape, cluster: ClusterShape, most: int = 10) -> list[Candidate]:
    """The best `most` layouts that fit, best first; of each (tp, pp, dp, cp) the best micro-batch.

    LayoutError when none fits: it says which came nearest, and what would have to change."""
    best: dict[tuple[int, int, int, int], Candidate] = {}
    nearest: Candidate | None = None
    for layout in layouts(model, cluster):
        candidate = judge(model, cluster, layout)
        if candidate.memory_ratio > 1:
            nearest = min(nearest or candidate, candidate, key=lambda c: c.memory_ratio)
            continue
        sizes = (layout.tp, layout.pp, layout.dp, layout.cp)
        if sizes not in best or candidate.cost.step_s < best[sizes].cost.step_s:
            best[sizes] = candidate
    if not best:
        raise LayoutError(_nothing_fits(model, cluster, nearest))
    return sorted(best.values(), key=lambda c: (c.cost.step_s, c.memory_ratio))[:most]


def judge(model: ModelShape, cluster: ClusterShape, layout: Layout) -> Candidate:
    """Judge one layout. LayoutError when it is impossible, naming the sizes that do not divide."""
    check(model, cluster, layout)
    if not layout.stages:
        stages = balance(model.layers, layout.pp, cost.head_in_layers(model))
        layout = replace(layout, stages=stages)
    held = memory.of_layout(model, cluster, layout)
    spent = cost.of_layout(model, cluster, layout)
    ratio = held.total / cluster.memory_bytes
    return Candidate(layout, held, spent, ratio, _reasons(cluster, layout, held, spent, ratio))


def check(model: ModelShape, cluster: ClusterShape, layout: Layout) -> None:
    """Raise LayoutError when a size does not divide what it cuts, naming both."""
    for what, whole, part, size in (
        ("heads", model.heads, "tp", layout.tp),
        ("hidden", model.hidden, "tp", layout.tp),
        ("sequence", model.sequence, "cp", layout.cp),
    ):
        if size < 1 or whole % size:
            raise LayoutError(f"{what} {whole} is not divisible by {part} {size}")
    if not 1 <= layout.pp <= model.layers:
        raise LayoutError(f"{model.layers} layers cannot fill pp {layout.pp} stages")
    if layout.stages and (len(layout.stages) != layout.pp or sum(layout.stages) != model.layers):
        raise LayoutError(f"stages {layout.stages} are not {model.layers} layers in pp {layout.pp} parts")
    if layout.dp < 1 or layout.dp * layout.micro_batch > model.global_batch:
        raise LayoutError(
            f"global batch {model.global_batch} is less than dp {layout.dp} x "
            f"micro-batch {layout.micro_batch}"
        )
    if layout.devices > cluster.devices:
        raise LayoutError(
            f"tp {layout.tp} x pp {layout.pp} x dp {layout.dp} x cp {layout.cp} are {layout.devices} "
            f"devices, cluster {cluster.name} has {cluster.devices}"
        )


def layouts(model: ModelShape, cluster: ClusterShape) -> Iterator[Layout]:
    """Every layout that uses the whole cluster.

    Tensor groups stay inside a node, all sizes divide what they cut, and the global batch is divided
    evenly."""
    devices = cluster.devices
    for tp in _divisors(devices, min(cluster.devices_per_node, model.heads)):
        if cluster.devices_per_node % tp or model.heads % tp:
            continue
        for pp in _divisors(devices // tp, model.layers):
            for cp in _divisors(devices // (tp * pp), CONTEXT_MAX):
                dp = devices // (tp * pp * cp)
                if model.sequence % cp or model.global_batch % dp:
                    continue
                for micro_batch in _divisors(model.global_batch // dp, MICRO_BATCH_MAX):
                    yield Layout(tp, pp, dp, cp, micro_batch)


def shrink(model: ModelShape, cluster: ClusterShape, layout: Layout, devices: int) -> Candidate:
    """The layout for the `devices` that are left.

    Data-parallel replicas go first. Tensor and pipeline groups stay whole and keep their layers. The
    global batch stays, so that the replicas' shares may differ by one micro-batch; gradients are weighted
    by what each replica saw. Only when not one replica fits is all planned anew. LayoutError when nothing
    fits."""
    group = layout.tp * layout.pp * layout.cp
    replicas = min(devices // group, model.global_batch // layout.micro_batch)
    if replicas >= 1:
        return judge(model, cluster, replace(layout, dp=replicas))
    return plan(model, cluster.with_devices(devices), most=1)[0]


def _divisors(number: int, most: int) -> list[int]:
    return [size for size in range(1, min(number, most) + 1) if number % size == 0]


def _reasons(
    cluster: ClusterShape, layout: Layout, held: MemoryNeed, spent: Cost, ratio: float
) -> tuple[str, ...]:
    """What this layout costs and why, in sentences for people."""
    gigabytes = " + ".join(
        f"{name} {getattr(held, name) / 1e9:.1f}"
        for name in ("weights", "gradients", "optimizer", "activations", "buffers")
    )
    inside = "inside one node" if layout.tp <= cluster.devices_per_node else "across nodes"
    talk = " + ".join(
        f"{name} {getattr(spent, f'{name}_s') / spent.step_s:.1%}"
        for name in ("tensor", "pipeline", "context", "data")
        if getattr(spent, f"{name}_s")
    )
    least, largest = min(layout.stages), max(layout.stages)
    stages = f"{largest} layers" if least == largest else f"{least} to {largest} layers"
    return (
        f"memory {ratio:.0%} of {cluster.memory_bytes / 1e9:.0f} GB: {gigabytes} GB",
        f"tensor groups of {layout.tp} {inside}",
        f"talking: {talk or 'nothing'} of the step",
        f"bubble {spent.bubble_s / spent.step_s:.1%}: {layout.pp} stages of {stages}, "
        f"micro-batch {layout.micro_batch}",
    )


def _nothing_fits(model: ModelShape, cluster: ClusterShape, nearest: Candidate | None) -> str:
    """Why no layout fits, and what to change."""
    what = f"model {model.name} does not fit cluster {cluster.name} of {cluster.devices} devices"
    if nearest is None:
        return (
            f"{what}: no sizes divide it: heads {model.heads} by tp, {model.layers} layers by pp, "
            f"global batch {model.global_batch} by dp; use another number of devices or another batch"
        )
    layout = nearest.layout
    return (
        f"{what}: the nearest, tp {layout.tp} pp {layout.pp} dp {layout.dp} cp {layout.cp}, needs "
        f"{nearest.memory_ratio:.0%} of a device's memory ({nearest.reasons[0]}); recompute more, shard the "
        "optimizer, or use more devices"
    )
