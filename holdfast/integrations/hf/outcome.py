"""Give what a training or an evaluation has come to to a process that joins the job after it.

Such a process calls the same `train()`, `evaluate()` and `predict()` as the others, and trains in none that
is over. It returns what rank 0 has got, and its Trainer knows then what the others know: TrainerState,
the scheduler, and the attributes of callbacks."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any

import numpy
import torch
from transformers.trainer_utils import PredictionOutput, TrainOutput

from holdfast.errors import SessionError
from holdfast.integrations import plain
from holdfast.integrations.hf import progress
from holdfast.integrations.hf.between import from_rank_0, tell_place
from holdfast.integrations.hf.rates import schedule, take_schedule

if TYPE_CHECKING:
    from collections.abc import Callable

_BYTES_MAX = 4 << 20
"""What is kept is a part of every later state: predictions may be larger."""
_OWN = frozenset({"is_local_process_zero", "is_world_process_zero"})
"""What TrainerState says of one process."""
_ARRAY = "holdfast array"
_KINDS: dict[str, Callable[..., Any]] = {
    "train": TrainOutput,
    "predict": PredictionOutput,
}
"""What the functions return that return no dictionary."""


def squeezed(result: Any) -> dict[str, Any]:
    """A result of plain data, arrays and tensors: `kept`, or why it is `refused`."""
    return plain.kept(_without_arrays(result), "result", _BYTES_MAX)


def packed(trainer: Any, result: Any) -> dict[str, Any]:
    """What a function of the Trainer has come to: `kept`, or why it is `refused`. All ranks call it together,
    and get the same."""
    rows = trainer.callback_handler.own.of_ranks(trainer.session)
    found: dict[str, Any] = {}
    if not trainer.session.rank:
        found = _packed(trainer, result, rows)
    box: dict[str, Any] = from_rank_0(trainer, found)
    return box


def taken(trainer: Any, name: str, told: Any) -> Any:
    """The result of a function that was over when this process joined; its Trainer knows what the others do.

    Raises SessionError if that was not kept."""
    kept = (told or {}).get("kept")
    if kept is None:
        raise SessionError(
            f"Trainer.{name}: this process joined when it was over, and cannot get its result: "
            f"{(told or {}).get('refused', 'none was kept')}. Leave out what follows it in the script, or do "
            "it in another job"
        )
    known, handler = plain.loads(zlib.decompress(kept)), trainer.callback_handler
    for field, value in known["state"].items():
        setattr(trainer.state, field, value)
    tell_place(trainer)
    handler.set_attributes(known["callbacks"])
    handler.own.apply(known["own"][trainer.session.rank])
    handler.optimizer = trainer.optimizer  # callbacks are given it
    take_schedule(trainer, known["schedule"])
    result = _with_arrays(known["result"])
    return _KINDS[name](*result) if name in _KINDS else result


def _packed(trainer: Any, result: Any, rows: list[str]) -> dict[str, Any]:
    state = {name: value for name, value in vars(trainer.state).items() if name not in _OWN}
    history = json.loads(json.dumps(state.pop("log_history"), default=float))
    try:
        known = {
            "result": result,
            "state": {**progress.plain(state, "state"), "log_history": history},
            "callbacks": progress.plain(trainer.callback_handler.attributes(), "callbacks"),
            "own": rows,
            "schedule": schedule(trainer),
        }
    except (SessionError, TypeError, ValueError) as error:
        return {"refused": str(error)[:500]}
    return squeezed(known)


def _without_arrays(tree: Any) -> Any:
    """The tree with named tuples as tuples, and numpy's arrays as tensors."""
    if isinstance(tree, numpy.ndarray | numpy.generic):
        return {_ARRAY: torch.from_numpy(numpy.array(tree))}
    if isinstance(tree, tuple):
        return tuple(map(_without_arrays, tree))
    if isinstance(tree, list):
        return [_without_arrays(each) for each in tree]
    if isinstance(tree, dict):
        return {name: _without_arrays(each) for name, each in tree.items()}
    return tree


def _with_arrays(tree: Any) -> Any:
    if isinstance(tree, dict):
        if tree.keys() == {_ARRAY}:
            return tree[_ARRAY].numpy()
        return {name: _with_arrays(each) for name, each in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(_with_arrays(each) for each in tree)
    return tree
