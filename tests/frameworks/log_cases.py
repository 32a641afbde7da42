"""List the cases of loggers: those of docs/recipes.md, and the trainers' own."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from tests.frameworks.pacing import KILLS, STOP_AT

ABSENT_STEPS = 100
"""How many steps a job takes while the server of its logger is away."""


@dataclass(frozen=True, slots=True)
class LogCase:
    """One row of a logger.

    `library`: as pip names it; `section`: of docs/recipes.md; `down`: the signal that takes the server away;
    None: ranks are killed instead."""

    name: str
    library: str
    section: str
    down: signal.Signals | None = None

    @property
    def kill_at(self) -> str:
        """What happens, in words."""
        if self.down is not None:
            return f"the server, {self.down.name}, for {ABSENT_STEPS} steps"
        return "rank 0 in steps 10, 20, 30; all in step 45"


LOG_CASES = (
    LogCase("log_tensorboard", "tensorboard", "TensorBoard"),
    LogCase("log_mlflow", "mlflow", "MLflow"),
    LogCase("log_wandb", "wandb", "Weights & Biases"),
    LogCase("log_mlflow_refuses", "mlflow", "MLflow", signal.SIGKILL),
    LogCase("log_mlflow_hangs", "mlflow", "MLflow", signal.SIGSTOP),
)


@dataclass(frozen=True, slots=True)
class TrainerLogCase:
    """One row: a framework's own logger. `tags`: the names that it gives to two numbers, one of the training
    and one of the evaluations."""

    framework: str
    logger: str
    tags: tuple[str, str]

    @property
    def name(self) -> str:
        """As --case takes it."""
        return f"{self.framework}_logs_{self.logger}"

    @property
    def library(self) -> str:
        """As pip names it."""
        return {"csv": "torch"}.get(self.logger, self.logger)

    @property
    def kill_at(self) -> str:
        """What happens, in words."""
        steps = sorted((*KILLS["begin"], *KILLS["logged"]))
        return f"rank 0 in steps {', '.join(map(str, steps))}; all in step {STOP_AT}"


_LIGHTNING, _OWN = ("loss_step", "val_loss"), ("loss", "val_loss")
TRAINER_LOG_CASES = (
    TrainerLogCase("hf", "tensorboard", ("train/loss", "eval/loss")),
    TrainerLogCase("hf", "wandb", ("train/loss", "eval/loss")),
    TrainerLogCase("hf", "mlflow", ("loss", "eval_loss")),
    *(TrainerLogCase("lightning", each, _LIGHTNING) for each in ("tensorboard", "csv", "mlflow", "wandb")),
    *(TrainerLogCase("accelerate", each, _OWN) for each in ("tensorboard", "mlflow", "wandb")),
    *(TrainerLogCase("fabric", each, _OWN) for each in ("tensorboard", "csv", "mlflow", "wandb")),
)
