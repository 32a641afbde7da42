"""`train_gpt.py` with faults of its own making, for `holdfast demo --doctor --plant`.

Only this script reads the plan (`plan.py`): what is found out about the job is found out by how it behaves.
The faults happen where a step takes its samples. What makes the job stand still happens in its first
generation only, so that it can recover."""

from __future__ import annotations

import json
import math
import os
import random
import statistics
import time
from collections import deque
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from holdfast import Session
from holdfast.examples import plan, train_gpt

LEAK_STEPS = 100
"""After so many steps a leaking process has `factor` times the memory that it had."""
EVALUATE_EVERY, EVALUATED = 50, 20
"""The model is evaluated after so many steps, on so many batches."""
USUAL_STEPS = 16
"""How long a step usually takes is the median of so many."""

WATCH_EVERY = 10
NAN_MODULE = "blocks.1.network"


class PlantedSession(Session):
    """A session whose steps begin with the faults that are planted in this rank."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.faults = plan.faults()
        self._durations_s: deque[float] = deque(maxlen=USUAL_STEPS)
        self._began_s = self._planted_s = 0.0
        self._kept: list[bytearray] = []
        self._resident_bytes = 0
        self._grouped, self._group = 0, None
        self._model: Any = None
        self._optimizer: Any = None

    def track(self, *unnamed: Any, **objects: Any) -> None:
        super().track(*unnamed, **objects)
        self._model, self._optimizer = objects["model"], objects["optimizer"]
        if any(fault["kind"] == "compile" for fault in self.faults):
            self._model.compile(backend="aot_eager")  # it needs no C++ compiler
        spoilt = any(fault["kind"] == "nan" for fault in self.faults)
        if spoilt:
            self._model.get_submodule(NAN_MODULE).register_forward_hook(self._spoil)
        if spoilt or not self.faults:  # else what is measured is left as it was
            self.watch(self._model, every=WATCH_EVERY, on_nan="skip" if spoilt else "report")

    def sample_indices(self, *args: Any, **options: Any) -> torch.Tensor:
        numbers = super().sample_indices(*args, **options)
        now = time.monotonic()
        if self._began_s:
            self._durations_s.append(now - self._began_s - self._planted_s)
        self._planted_s = 0.0
        for fault in self.faults:
            PLAYED[fault["kind"]](self, fault)
        self._began_s = now
        return numbers

    def hit(self, fault: dict[str, Any]) -> bool:
        """Whether this rank has this fault in this step."""
        return bool(self.rank == fault["rank"] and self.step >= fault["at"])

    def once(self, fault: dict[str, Any]) -> bool:
        """Whether this is the one step of this rank in which it happens."""
        return self.hit(fault) and self.step == fault["at"] and self.generation == 1

    def wait_for_data(self, fault: dict[str, Any]) -> None:
        """A loader that is late."""
        if self.hit(fault) and self._durations_s:
            began = time.monotonic()
            with self.phase("data"):
                time.sleep(statistics.median(self._durations_s) * (fault["factor"] - 1))
            self._planted_s = time.monotonic() - began

    def keep_memory(self, fault: dict[str, Any]) -> None:
        """A list that only grows."""
        if self.hit(fault):
            self._resident_bytes = self._resident_bytes or resident_bytes()
            more = int(self._resident_bytes * (fault["factor"] - 1) / LEAK_STEPS)
            self._kept.append(bytearray(os.urandom(4096)) * (more // 4096 + 1))

    def skip_collective(self, fault: dict[str, Any]) -> None:
        """An operation that all ranks enter in each step, but one rank does not enter once, and goes on. It
        has a group of its own: gloo ends a process that receives another operation's data, where NCCL only
        hangs."""
        if self._grouped != self.generation:
            self._grouped, self._group = self.generation, dist.new_group()
        if not self.once(fault):
            dist.all_reduce(torch.ones(1), group=self._group)

    def change_shape(self, fault: dict[str, Any]) -> None:
        """An operation that all ranks enter in each step, one rank once with a larger tensor."""
        dist.all_reduce(torch.ones(1024 if self.once(fault) else 1))

    @torch.no_grad()
    def evaluate(self, _: dict[str, Any]) -> None:
        """An evaluation like most people's: in the middle of the loop, and nothing says that it is one."""
        if self.step % EVALUATE_EVERY == EVALUATE_EVERY - 1:
            self._model.eval()
            for _batch in range(EVALUATED):
                self._model(torch.zeros(4, self._model.positions.num_embeddings, dtype=torch.long))
            self._model.train()

    def _spoil(self, _module: torch.nn.Module, _args: Any, output: torch.Tensor) -> torch.Tensor | None:
        bad = any(fault["kind"] == "nan" and self.hit(fault) for fault in self.faults)
        return output * math.nan if bad else None

    def show_addresses(self, fault: dict[str, Any]) -> None:
        """Write where the tensors of the state are, once: the demo flips a bit there from outside."""
        path = Path(fault["addresses"])
        if not self.hit(fault) or self.generation > 1 or path.exists():
            return
        tensors = {f"model.{name}": value for name, value in self._model.named_parameters()}
        for index, state in enumerate(self._optimizer.state.values()):
            tensors |= {f"optimizer.{index}.{key}": state[key] for key in ("exp_avg", "exp_avg_sq")}
        rows = {
            name: {"address": tensor.data_ptr(), "bytes": tensor.nbytes} for name, tensor in tensors.items()
        }
        path.with_suffix(".new").write_text(json.dumps({"pid": os.getpid(), "tensors": rows}))
        path.with_suffix(".new").rename(path)

    def nothing(self, _: dict[str, Any]) -> None:
        """What is planted is played elsewhere."""


PLAYED = {
    "stuck-loader": PlantedSession.wait_for_data,
    "leak": PlantedSession.keep_memory,
    "skipped-collective": PlantedSession.skip_collective,
    "wrong-shape": PlantedSession.change_shape,
    "imbalance": PlantedSession.nothing,  # by UnevenWindows
    "nan": PlantedSession.nothing,  # by `track`
    "last-stage": PlantedSession.nothing,  # by planted_pipeline.py
    "evaluation": PlantedSession.evaluate,
    "compile": PlantedSession.nothing,  # by `track`
    "bitflip": PlantedSession.show_addresses,
}


def resident_bytes() -> int:
    """The memory that this process has now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class UnevenWindows(train_gpt.Windows):
    """Windows that are cut to another length in each step of each rank, where that is planted."""

    def batch(self, numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        text, following = super().batch(numbers)
        for fault in plan.faults():
            if fault["kind"] == "imbalance":
                chance = random.Random(f"{fault['seed']} {numbers.tolist()}")
                least = max(1, int(self.context / fault["factor"]))
                length = chance.randint(least, self.context)
                text, following = text[:, :length], following[:, :length]
        return text, following


if __name__ == "__main__":
    vars(train_gpt).update(Session=PlantedSession, Windows=UnevenWindows)
    train_gpt.main()
