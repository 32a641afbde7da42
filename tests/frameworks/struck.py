"""Run a framework's script as it is: watch it, and send SIGKILL to this very process where the plan says so.

    python -m tests.frameworks.struck FRAMEWORK FOLDER SCRIPT [the script's arguments]

FOLDER has the plan (`kill.json`, absent for an undisturbed run; `watched`: note what its steps train on).
There this writes `killed` before a kill, so that it happens once; every event of the framework when it has
returned (`events.PID.jsonl`); and what each rank came to (`RANK.json`). Nothing of Holdfast is changed: kills
within a step are found by torch's global hooks (a scheduler has none: its `step` is wrapped), events by a
callback that the framework is given in the way in which it takes callbacks.

Hooks do nothing within compiled code: what they read would be compiled into it, so that the run with a kill
would compile its model again in every step, and come out with other bits than the run without one."""

from __future__ import annotations

import functools
import importlib
import json
import os
import random
import runpy
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from tests.frameworks.case import IN_STEP, Kill
from tests.frameworks.steps import Steps

RECEIVED = {
    "hf": "observe_hf",
    "lightning": "observe_lightning",
    "accelerate": "observe_accelerate",
    "fabric": "observe_fabric",
}
"""The module that watches each framework: `install(spy)`, and `came_to() -> {part: {name: value}}`."""


class Spy:
    """Records events in this process, and kills it where the plan says so."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        plan = folder / "kill.json"
        self._kill = Kill(**json.loads(plan.read_text())) if plan.exists() else None
        self._step = self._reached = 0
        if self._kill is not None and self._kill.at in IN_STEP:
            self._hook()

    def begins(self, event: str, step: int) -> None:
        """An event of the framework begins: the place for a kill."""
        kill = self._kill
        if kill is not None and (event, step) == (kill.at, kill.step):
            self._strike(kill)

    def ended(self, event: str, step: int, **more: Any) -> None:
        """An event of the framework has taken effect."""
        line = {"event": event, "step": step, "rank": rank(), "pid": os.getpid(), **more}
        with (self.folder / f"events.{os.getpid()}.jsonl").open("a") as out:
            out.write(json.dumps(line) + "\n")

    def _strike(self, kill: Kill) -> None:
        if rank() != kill.rank or (self.folder / "killed").exists():
            return
        self._reached += 1
        if self._reached > kill.nth:
            (self.folder / "killed").write_text(json.dumps({"pid": os.getpid(), "rank": kill.rank}))
            os.kill(os.getpid(), signal.SIGKILL)

    # ------------------------------------------------------------------ torch's hooks

    def _hook(self) -> None:
        register_module_forward_pre_hook(self._forward)
        register_module_forward_hook(self._went_forward)
        register_optimizer_step_pre_hook(lambda *_: self._within("optimizer"))
        register_optimizer_step_post_hook(lambda *_: self._stepped())
        step = LRScheduler.step

        @functools.wraps(step)
        def scheduled(scheduler: LRScheduler, *given: Any, **named: Any) -> None:
            self._within("scheduler")
            step(scheduler, *given, **named)

        LRScheduler.step = scheduled  # type: ignore[assignment, method-assign]

    def _forward(self, *_: Any) -> None:
        if not torch.compiler.is_compiling():
            self._within("forward" if torch.is_grad_enabled() else "evaluation")

    def _went_forward(self, module: Any, _given: Any, out: Any) -> None:
        if torch.compiler.is_compiling():
            return
        kill = self._kill
        if kill is not None and kill.at == "backward" and isinstance(out, torch.Tensor) and out.requires_grad:
            out.register_hook(lambda _: self._within("backward"))  # type: ignore[no-untyped-call]

    def _within(self, place: str) -> None:
        kill = self._kill
        if kill is not None and kill.at == place and self._step == kill.step:
            self._strike(kill)

    def _stepped(self) -> None:
        self._step += 1
        self._reached = 0


def rank() -> int:
    """This process's rank now."""
    return int(os.environ.get("RANK", "0"))


def seed_all() -> None:
    """Seed what a script draws before it seeds for itself: an unseeded model would differ in every run."""
    random.seed(0)
    torch.manual_seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)


def main() -> None:
    framework, folder, script = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    observer = importlib.import_module(f"tests.frameworks.{RECEIVED[framework]}")
    observer.install(Spy(folder))
    steps = Steps() if (folder / "watched").exists() else None
    sys.argv = sys.argv[3:]
    sys.path.insert(0, str(Path(script).parent))
    os.chdir(folder)  # what a script writes without being told where
    seed_all()
    runpy.run_path(script, run_name="__main__")
    partial = folder / f"{rank()}.{os.getpid()}.part"
    partial.write_text(json.dumps(observer.came_to() | (steps.came_to() if steps else {})))
    partial.rename(folder / f"{rank()}.json")


if __name__ == "__main__":
    main()
