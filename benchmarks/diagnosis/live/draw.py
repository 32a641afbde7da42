"""Draw one job from a seed: its shape, its noise, and what is wrong. Knows nothing of the detectors."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

TRIES = 1000
"""Jobs that are drawn for one kind of fault, until one is such that it can have it."""
KINDS = (
    *("slow_rank", "slow_node", "throttled", "heavy_work", "slow_data", "slow_snapshot"),
    *("overfull_last_stage", "overfull_stage", "uneven_work", "memory_leak", "job_slowed"),
)
NOISES = ("gaussian", "lognormal", "bursts", "noisy_neighbour", "drift")


@dataclass(frozen=True, slots=True)
class Spec:
    """What jobs are drawn; pairs are the ends of a range. `default.yaml` says what each is."""

    jobs: int
    healthy_share: float
    nodes: tuple[int, int]
    ranks_per_node: tuple[int, ...]
    windows: tuple[int, int]
    steps_per_window: tuple[int, int]
    factor: tuple[float, float]
    sigma: tuple[float, float]
    lasting: tuple[float, float]
    noise_scale: float
    kinds: tuple[str, ...]
    noises: tuple[str, ...]
    onset: tuple[float, float]
    late_share: float
    pp: tuple[int, ...]
    tp: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Truth:
    """What is wrong: who must be named, and nobody else. -1: not limited to one."""

    kind: str = "none"
    rank: int = -1
    node: int = -1
    stage: int = -1
    factor: float = 1.0
    onset: int = 0  # window


@dataclass(frozen=True, slots=True)
class Shape:
    """A job, when nothing is wrong."""

    seed: int
    nodes: int
    per_node: int
    pp: int
    tp: int
    windows: int
    steps: int  # per window
    step_s: float
    devices: bool  # devices compute, and CPU time tells nothing
    tokens: bool  # the script declares them
    noise: str
    sigma: float
    lasting: float
    length_sigma: float  # all ranks alike: sequences of another length in each step
    evaluate: bool  # every 50 steps
    snapshot_every: int  # steps

    @property
    def ranks(self) -> int:
        """How many ranks it has."""
        return self.nodes * self.per_node

    @property
    def stage(self) -> np.ndarray:
        """The stage of each rank: tensor groups first, then replicas, then stages."""
        return np.arange(self.ranks) // (self.ranks // self.pp)

    @property
    def dp_rank(self) -> np.ndarray:
        """The replica of each rank."""
        return np.arange(self.ranks) % (self.ranks // self.pp) // self.tp


def draw(spec: Spec, seed: int) -> tuple[Shape, Truth]:
    """The job of this seed. The same seed always gives the same job."""
    random = np.random.default_rng(seed)
    kind = "none" if random.random() < spec.healthy_share else str(random.choice(spec.kinds))
    for _ in range(TRIES):
        shape = _shape(spec, random, seed)
        if _fits(shape, kind):
            return shape, _truth(spec, shape, kind, random)
    raise ValueError(
        f"no job of this spec can have the fault {kind} ({TRIES} were drawn): leave it out of kinds"
    )


def _shape(spec: Spec, random: np.random.Generator, seed: int) -> Shape:
    nodes = round(_between(random, spec.nodes))
    per_node = int(random.choice(spec.ranks_per_node))
    pp = int(random.choice(spec.pp))
    tp = int(random.choice(spec.tp))
    nodes, pp, tp = _fitting(spec, nodes, per_node, (pp, tp))
    steps = round(_between(random, spec.steps_per_window))
    return Shape(
        seed=seed,
        nodes=nodes,
        per_node=per_node,
        pp=pp,
        tp=tp,
        windows=int(random.integers(spec.windows[0], spec.windows[1] + 1)),
        steps=steps,
        step_s=10.0 / steps,
        devices=bool(random.random() < 0.5),
        tokens=bool(random.random() < 0.5),
        noise=str(random.choice(spec.noises)),
        sigma=spec.noise_scale * _between(random, spec.sigma),
        lasting=random.uniform(*spec.lasting),
        length_sigma=float(random.choice([0.0, 0.0, 0.1, 0.2])),
        evaluate=bool(random.random() < 0.5),
        snapshot_every=max(1, round(steps * random.uniform(0.5, 3.0))),
    )


def _fitting(spec: Spec, nodes: int, per_node: int, layout: tuple[int, int]) -> tuple[int, int, int]:
    """Nodes, stages and ranks of a tensor group that fit together. The layout is halved as far as the spec
    has the half of it, too; else the job gets another number of nodes."""
    pp, tp = layout
    while (nodes * per_node) % (pp * tp) or per_node % tp:
        half = pp // 2 if pp // 2 in spec.pp else pp, tp // 2 if tp // 2 in spec.tp else tp
        if half == (pp, tp):
            break
        pp, tp = half
    least, most = math.ceil(spec.nodes[0]), int(spec.nodes[1])
    for count in (*range(nodes, most + 1), *range(nodes - 1, least - 1, -1)):
        if not (count * per_node) % (pp * tp) and not per_node % tp:
            return count, pp, tp
    raise ValueError(f"no job of {least} to {most} nodes with {per_node} ranks each has pp {pp} and tp {tp}")


def _between(random: np.random.Generator, ends: tuple[float, float]) -> float:
    """A number between these ends, log-uniform."""
    return math.exp(random.uniform(math.log(ends[0]), math.log(ends[1])))


def _fits(shape: Shape, kind: str) -> bool:
    """Whether this can be wrong with such a job, so that one could know it."""
    measurable = shape.tokens or not shape.devices
    return {
        "slow_node": shape.per_node > 1 and shape.nodes > 1,
        "throttled": not shape.devices and shape.ranks > 1,
        "heavy_work": measurable and shape.ranks > 1,
        "overfull_last_stage": shape.pp > 1,
        "overfull_stage": shape.pp > 2,
        "uneven_work": measurable and shape.ranks > 3 and shape.steps <= 20,
        "none": True,
        "memory_leak": True,
        "job_slowed": True,
    }.get(kind, shape.ranks > 1)


def _truth(spec: Spec, shape: Shape, kind: str, random: np.random.Generator) -> Truth:
    factor = _between(random, spec.factor)
    majority = shape.ranks // shape.pp >= 3 and (kind != "slow_node" or shape.nodes // shape.pp >= 3)
    late = not majority or kind == "job_slowed" or random.random() < spec.late_share
    onset = int(random.uniform(*spec.onset) * shape.windows) if late else 0
    rank, node = int(random.integers(shape.ranks)), int(random.integers(shape.nodes))
    several = shape.per_node > 1 and shape.nodes // shape.pp >= 3
    pick = str(random.choice(_WHERE.get(kind, ("all",))))
    if pick == "node" and not several and kind != "slow_node":
        pick = "rank"
    if kind in _ALWAYS:
        onset = 0
    if kind.startswith("overfull"):
        stage = shape.pp - 1 if kind == "overfull_last_stage" else int(random.integers(shape.pp - 1))
        return Truth(kind, stage=stage, factor=factor)
    if pick == "all" and shape.ranks == 1 and kind == "memory_leak":
        pick = "rank"
    return Truth(
        kind, rank if pick == "rank" else -1, node if pick == "node" else -1, factor=factor, onset=onset
    )


_WHERE = {
    "slow_rank": ("rank",),
    "heavy_work": ("rank",),
    "slow_node": ("node",),
    "throttled": ("rank", "node"),
    "slow_data": ("rank", "node", "all"),
    "slow_snapshot": ("rank", "node"),
    "memory_leak": ("rank", "all"),
}
"""Kinds of faults that are somewhere in particular, and where; others concern the whole job, or a stage."""
_ALWAYS = ("none", "uneven_work", "memory_leak", "overfull_last_stage", "overfull_stage")
"""Kinds that are there from the beginning."""
