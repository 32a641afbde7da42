"""What the script's own objects hold, and what it changes of Trainer's, comes back. Without transformers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from holdfast.errors import SessionError
from holdfast.integrations.hf.own_state import OwnState, TrainerSettings, called_by, keeps


class Counting:
    """A callback of the script's."""

    def __init__(self) -> None:
        self.calls, self.losses, self.model = 0, [0.5], torch.nn.Linear(1, 1)


def own_state(*owners: Any, **held: Any) -> OwnState:
    """What is kept of these objects, and of a Trainer that holds others."""
    parts = {"args": None, "label_smoother": None, "model": None, "state": None} | held
    made = OwnState(lambda: list(owners), TrainerSettings(SimpleNamespace(**parts)))
    made.begin()
    made.settings.loop_entered()
    return made


def test_attributes_of_the_scripts_own_objects_come_back() -> None:
    dead, late = Counting(), Counting()
    state = own_state(dead, torch.nn.Linear(1, 1))
    dead.calls, dead.losses = 3, [0.5, float("inf")]
    dead.best = (1, {"a": None})  # type: ignore[attr-defined]
    text, model = state.capture(), late.model
    late.worst = 1  # type: ignore[attr-defined]
    taken = own_state(late, torch.nn.Linear(1, 1))
    taken.rows = ["not this rank's", text]
    taken.entered(1)
    assert (late.calls, late.losses, late.best) == (3, dead.losses, (1, {"a": None}))  # type: ignore[attr-defined]
    assert late.model is model
    assert not hasattr(late, "worst")


def test_attributes_before_the_first_step_are_those_of_the_first_entry() -> None:
    counting = Counting()
    state = own_state(counting)
    state.entered(0)
    counting.calls = 5
    state.entered(0)
    assert counting.calls == 0
    counting.calls = 5
    state.begin()
    state.entered(0)
    assert counting.calls == 5


def test_arguments_that_a_callback_changes_in_the_training_come_back() -> None:
    def held() -> dict[str, Any]:
        args = SimpleNamespace(max_grad_norm=1.0, logging_steps=2, local_rank=0)
        state = SimpleNamespace(global_step=0, eval_steps=4)
        model = SimpleNamespace(config=SimpleNamespace(weight=1.0))
        return {"args": args, "state": state, "label_smoother": SimpleNamespace(epsilon=0.1), "model": model}

    first, second = held(), held()
    dead, late = own_state(**first), own_state(**second)
    assert not dead.says()
    first["args"].max_grad_norm, first["label_smoother"].epsilon = 0.5, 0.3
    first["model"].config.weight, first["state"].global_step, first["state"].eval_steps = 2.0, 7, 2
    assert dead.says()
    second["args"].local_rank = second["args"].logging_steps = 3
    late.rows = [dead.capture()]
    late.entered(0)
    args, state = second["args"], second["state"]
    assert (args.max_grad_norm, args.logging_steps, second["label_smoother"].epsilon) == (0.5, 2, 0.3)
    assert (state.global_step, state.eval_steps, second["model"].config.weight) == (0, 2, 2.0)


def test_another_number_of_micro_batches_in_the_training_is_refused() -> None:
    args = SimpleNamespace(gradient_accumulation_steps=2)
    own = own_state(args=args)
    assert not own.says()
    args.gradient_accumulation_steps = 4
    with pytest.raises(SessionError, match="a callback that changes gradient_accumulation_steps in the"):
        own.says()


class Loss:
    """Of the script's, called by Trainer."""

    def __init__(self) -> None:
        self.calls = 0

    def compute(self) -> None:
        self.calls += 1


def test_objects_that_trainer_calls_for_the_loss_and_for_metrics_are_the_scripts_own() -> None:
    loss, callback = Loss(), Loss()
    given = {"compute_loss_func": loss, "compute_metrics": callback.compute}
    handler = SimpleNamespace(callbacks=[callback])
    trainer = SimpleNamespace(**given, preprocess_logits_for_metrics=len, callback_handler=handler)
    assert called_by(trainer) == [loss]
    trainer.compute_metrics, trainer.compute_loss_func = loss.compute, torch.nn.Linear(1, 1)
    assert called_by(trainer) == [loss]


def test_large_attributes_and_other_things_than_plain_data_are_not_kept() -> None:
    assert keeps([1.0, {"a": (None, "b")}, torch.ones(2)])
    assert not keeps([0.0] * 3000)
    assert not keeps("a" * 20_000)
    assert not keeps(Counting())


def test_an_attribute_that_is_not_kept_stays_as_a_late_process_makes_it() -> None:
    dead, late = Counting(), Counting()
    state, taken = own_state(dead), own_state(late)
    dead.losses, dead.calls = [0.5] * 5000, object()  # type: ignore[assignment]
    taken.rows = [state.capture()]
    taken.entered(0)
    assert (late.losses, late.calls) == ([0.5], 0)


def test_a_number_of_a_data_set_is_not_kept() -> None:
    callback, data = Counting(), Counting()
    state = own_state(callback)
    assert state.is_kept(callback, "calls", 1) and not state.is_kept(data, "calls", 1)
    assert not state.is_kept(callback, "model", callback.model)
