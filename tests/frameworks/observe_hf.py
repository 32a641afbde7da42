"""Watch transformers' Trainer: a callback among its default ones, which keeps what it is called with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors.torch
import torch
import transformers
from transformers import trainer as hf_trainer

from tests.frameworks import digests
from tests.frameworks.struck import rank

if TYPE_CHECKING:
    from tests.frameworks.struck import Spy

EVENTS = (
    *("on_train_begin", "on_epoch_begin", "on_step_begin", "on_substep_end", "on_step_end", "on_log"),
    *("on_prediction_step", "on_evaluate", "on_save", "on_epoch_end", "on_train_end"),
)
TIMES = ("_runtime", "_per_second", "_time")
"""Ends of the names of logged values that are measured times: no two runs have the same."""


_seen: dict[str, Any] = {}
"""The model, optimizer, scheduler and state of the newest trainer."""


def install(spy: Spy) -> None:
    """Have every Trainer call back."""

    def recorder(event: str) -> Any:
        def called(self: Any, args: Any, state: Any, control: Any, **given: Any) -> None:
            _seen.update(given, state=state, folder=args.output_dir)
            spy.begins(event, state.global_step)
            spy.ended(event, state.global_step)

        return called

    kind = type("Recorder", (transformers.TrainerCallback,), {event: recorder(event) for event in EVENTS})
    callbacks: list[Any] = hf_trainer.DEFAULT_CALLBACKS
    callbacks.append(kind)


def came_to() -> dict[str, dict[str, str]]:
    """What the newest trainer of this process has come to."""
    if not _seen:
        return {}
    state, optimizer, scheduler = _seen["state"], _seen["optimizer"], _seen["lr_scheduler"]
    optimizer = getattr(optimizer, "optimizer", optimizer)
    counts = {name: getattr(state, name) for name in ("epoch", "global_step", "best_metric", "total_flos")}
    return {
        "weights": digests.of(dict(_seen["model"].state_dict())),
        "optimizer": digests.of(optimizer.state_dict()),
        "scheduler": digests.of(_plain(scheduler.state_dict())) if scheduler is not None else {},
        "log": digests.of([_lasting(entry) for entry in state.log_history]),
        "progress": digests.of({**counts, "tokens": state.num_input_tokens_seen}),
        "average": _average(Path(_seen["folder"]) / f"average-{rank()}.pt"),
        "checkpoints": _checkpoints(Path(_seen["folder"])) if state.is_world_process_zero else {},
    }


def _average(path: Path) -> dict[str, str]:
    """What a script has written of its averaged weights, at this rank."""
    return digests.of(torch.load(path, weights_only=True)) if path.exists() else {}


def _checkpoints(folder: Path) -> dict[str, str]:
    """What Trainer's own checkpoints hold, read as anybody would."""
    found: dict[str, str] = {}
    for path in folder.glob("checkpoint-*"):
        for file in path.glob("*.safetensors"):
            found |= digests.of(safetensors.torch.load_file(file), path.name)
        found |= digests.of(torch.load(path / "optimizer.pt", weights_only=True), f"{path.name}/optimizer")
        state = json.loads((path / "trainer_state.json").read_text())
        state["log_history"] = [_lasting(entry) for entry in state["log_history"]]
        state["best_model_checkpoint"] = Path(state["best_model_checkpoint"] or "").name
        found |= digests.of(state, f"{path.name}/state")
    return found


def _lasting(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if not name.endswith(TIMES)}


def _plain(state: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in state.items() if name != "lr_lambdas"}
