"""Play a drawn job step by step, and give what its ranks would report per window.

In each step every rank works, and then all wait for the one that was busy longest. Half of the nodes report a
step later than the others, as agents report at different moments. Knows nothing of the detectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.diagnosis.live.draw import Shape, Truth

Columns = dict[str, np.ndarray]
PARTS = {"forward": 0.3, "backward": 0.6, "optimizer": 0.1}
TIMES = ("wall", "data", "forward", "backward", "communication", "optimizer", "snapshot", "other", "cpu")
GIB = 2.0**30


@dataclass(frozen=True, slots=True)
class Played:
    """One window: a column per quantity, with one value per rank."""

    began_s: float
    ended_s: float
    columns: Columns


class Play:
    """One job while it runs."""

    def __init__(self, shape: Shape, truth: Truth) -> None:
        self._shape, self._truth = shape, truth
        self._random = np.random.default_rng([shape.seed, 1])
        random, ranks = self._random, shape.ranks
        self._node = np.arange(ranks) // shape.per_node
        self._late = (random.random(shape.nodes) < 0.5)[self._node]
        spread = np.exp(random.normal(0.0, shape.lasting, ranks))
        stages = np.exp(random.normal(0.0, 0.01, shape.pp))[shape.stage]
        self._own_s = 0.75 * shape.step_s * spread * stages
        self._cpu = random.uniform(0.1, 0.3) if shape.devices else random.uniform(0.8, 0.98)
        self._transfer = random.uniform(0.02, 0.12)
        self._memory = random.uniform(4.0, 40.0) * GIB * np.exp(random.normal(0.0, 0.02, ranks))
        self._phase = random.uniform(0.0, 6.3)
        self._spell = np.zeros(shape.nodes, dtype=int)  # steps for which a neighbour goes on making noise
        self._burst = np.zeros(ranks, dtype=int)
        self._step = 0
        self._longest = np.zeros(ranks)
        self._hit = self._whom()

    def _whom(self) -> np.ndarray:
        truth, shape = self._truth, self._shape
        hit = np.ones(shape.ranks, dtype=bool)
        if truth.rank >= 0:
            hit = np.arange(shape.ranks) == truth.rank
        if truth.node >= 0:
            hit = self._node == truth.node
        if truth.stage >= 0:
            hit = shape.stage == truth.stage
        return hit

    def windows(self) -> Iterator[Played]:
        """All windows, in order."""
        now_s, last = 0.0, self._one(0)
        for window in range(self._shape.windows):
            count = max(1, self._shape.steps + int(self._random.integers(-1, 2)))
            steps = [self._one(window) for _ in range(count)]
            early = _sum(steps)
            late = _sum([last, *steps[:-1]])
            last = steps[-1]
            columns = {name: np.where(self._late, late[name], early[name]) for name in early}
            newest = np.where(self._late, self._step - 2, self._step - 1)
            columns |= self._state(window, newest, count)
            began_s, now_s = now_s, now_s + float(np.median(early["wall"]))
            yield Played(began_s, now_s, columns)

    def _state(self, window: int, newest: np.ndarray, count: int) -> Columns:
        ranks = self._shape.ranks
        part = window / self._shape.windows
        grown = 0.05 * (1.0 - np.exp(-window / 4.0)) * self._memory  # warm-up
        if self._truth.kind == "memory_leak":
            grown = grown + np.where(self._hit, 0.3 * (self._truth.factor - 1.0) * part, 0.0) * self._memory
        memory = (self._memory + grown) * (1.0 + self._random.normal(0.0, 0.003, ranks))
        return {
            "steps": np.full(ranks, count),
            "last_step": newest,
            "longest": self._longest.copy(),
            "memory": memory,
            "limit": 2.5 * self._memory,
        }

    def _one(self, window: int) -> Columns:
        """One step of all ranks, in s."""
        shape, truth, random, ranks = self._shape, self._truth, self._random, self._shape.ranks
        on = truth.kind != "none" and window >= truth.onset
        common = np.exp(random.normal(0.0, shape.length_sigma)) * self._drift(window)
        noise = self._noise()
        compile_s = shape.step_s * random.uniform(5.0, 20.0) if self._step < 3 else 0.0
        lengths = np.full(ranks, common)
        if on and truth.kind == "uneven_work":
            sigma = 0.15 * truth.factor
            lengths = lengths * np.exp(random.normal(0.0, sigma, shape.ranks))
        if on and truth.kind == "heavy_work":
            lengths = np.where(self._hit, lengths * truth.factor, lengths)
        work_s = self._own_s * lengths * noise
        slow = on & self._hit
        if truth.kind in ("overfull_last_stage", "overfull_stage"):
            work_s = np.where(self._hit, work_s * truth.factor, work_s)
        cpu_s = self._cpu * work_s * np.exp(random.normal(0.0, 0.02, ranks))
        if truth.kind == "slow_node" and not shape.devices:  # its clock is low: CPU time lasts longer, too
            cpu_s = np.where(slow, cpu_s * truth.factor, cpu_s)
        if truth.kind in ("slow_rank", "slow_node", "throttled", "job_slowed"):
            slowed_s = np.where(slow, work_s * truth.factor, work_s)
        else:
            slowed_s = work_s
        found = self._parts(work_s, slowed_s)
        own_s = slowed_s
        found["cpu"] = cpu_s
        found["other"] = np.full(ranks, 0.01 * shape.step_s + compile_s)
        found["other"][0] += 0.01 * shape.step_s  # rank 0 writes logs
        if shape.evaluate and self._step % 50 == 49:
            found["other"] = found["other"] + shape.step_s * 4.0 * noise
        found["data"] = 0.02 * shape.step_s * np.exp(random.normal(0.0, 0.5, ranks))
        if slow.any() and truth.kind == "slow_data":
            found["data"] = np.where(
                slow, found["data"] + (truth.factor - 1.0) * 0.75 * shape.step_s * noise, found["data"]
            )
        found["snapshot"] = np.zeros(ranks)
        if self._step % shape.snapshot_every == 0:
            found["snapshot"] = 0.02 * shape.step_s * np.exp(random.normal(0.0, 0.2, ranks))
            if slow.any() and truth.kind == "slow_snapshot":
                extra_s = (truth.factor - 1.0) * 0.75 * shape.step_s * shape.snapshot_every
                found["snapshot"] = np.where(slow, found["snapshot"] + extra_s, found["snapshot"])
        busy_s = own_s + found["other"] + found["data"] + found["snapshot"]
        bubble = 1.0 + (shape.pp - 1) / 16.0
        transfer_s = self._transfer * shape.step_s * np.exp(random.normal(0.0, 0.1))
        wall_s = float(busy_s.max()) * bubble + transfer_s
        found["communication"] = wall_s - busy_s
        found["wall"] = np.full(ranks, wall_s)
        found["tokens"] = lengths * 8192.0 if shape.tokens else np.zeros(ranks)
        self._longest = np.maximum(self._longest, wall_s)
        self._step += 1
        return found

    def _parts(self, work_s: np.ndarray, slowed_s: np.ndarray) -> Columns:
        """The phases of the work. A slow rank whose CPU computes is held up in one phase; others in all."""
        if self._truth.kind == "slow_rank" and not self._shape.devices:
            found = {name: part * work_s for name, part in PARTS.items()}
            found["backward"] = found["backward"] + slowed_s - work_s
            return found
        return {name: part * slowed_s for name, part in PARTS.items()}

    def _drift(self, window: int) -> float:
        if self._shape.noise != "drift":
            return 1.0
        return 1.0 + 0.1 * float(np.sin(self._phase + 6.3 * window / self._shape.windows))

    def _noise(self) -> np.ndarray:
        """The factor of each rank's work in one step."""
        shape, random, ranks = self._shape, self._random, self._shape.ranks
        sigma = shape.sigma
        if shape.noise in ("gaussian", "drift"):
            return np.maximum(0.3, 1.0 + random.normal(0.0, sigma, ranks))
        noise = np.exp(random.normal(0.0, sigma, ranks))
        if shape.noise == "bursts":
            begin = random.random(ranks) < min(0.004, 0.1 / ranks) / max(1, shape.steps)
            self._burst = np.where(begin, 2 * shape.steps, np.maximum(0, self._burst - 1))
            single = np.where(
                random.random(ranks) < min(0.01, 0.1 / ranks), 1.0 + random.pareto(2.0, ranks), 1.0
            )
            return noise * np.minimum(single, 10.0) * np.where(self._burst > 0, 1.5, 1.0)
        if shape.noise == "noisy_neighbour":
            begin = random.random(shape.nodes) < min(0.02, 0.2 / shape.nodes) / max(1, shape.steps)
            self._spell = np.where(begin, 2 * shape.steps, np.maximum(0, self._spell - 1))
            return noise * np.where(self._spell > 0, 1.4, 1.0)[self._node]
        return noise


def _sum(steps: list[Columns]) -> Columns:
    return {name: np.sum([step[name] for step in steps], axis=0) for name in steps[0]}
