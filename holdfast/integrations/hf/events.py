"""Call Trainer's callbacks once for each event, though the tail of a step may be gone through again."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

from transformers.trainer_callback import CallbackHandler, ExportableState

from holdfast.data.own_generators import OwnGenerators
from holdfast.integrations.hf.callbacks import CallbackStates, is_kept
from holdfast.integrations.hf.own_state import OwnState, TrainerSettings, called_by
from holdfast.integrations.hf.tail import Tail
from holdfast.integrations.own_attributes import OwnAttributes
from holdfast.integrations.placed import called_values, data_values, own_data
from holdfast.integrations.plain import gather

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.integrations.hf.ledger import EventLedger, Key

ONCE = frozenset(
    {
        *("on_train_begin", "on_epoch_begin", "on_step_end", "on_log", "on_evaluate", "on_save"),
        *("on_epoch_end", "on_train_end"),
    }
)

_CALLED = (
    "data_collator",
    "compute_loss_func",
    "compute_metrics",
    "preprocess_logits_for_metrics",
    "model_init",
)
"""What a script gives Trainer to call."""
_TINY = 1e-9
"""An epoch that is over is a whole number, but for rounding."""
_LOOKS = frozenset({"on_log", "on_evaluate", "on_epoch_end"})
_KEEP = (
    "If the training depends on it, make it a small attribute of plain data (numbers, texts, lists) of your "
    "callback or Trainer, or a buffer of the model"
)


class OnceHandler(CallbackHandler):
    """transformers' handler, which tells the trainer of boundaries and calls nothing twice."""

    def __init__(self, found: CallbackHandler, trainer: Any, ledger: EventLedger) -> None:
        self.__dict__.update(vars(found))
        self._trainer, self.ledger = trainer, ledger
        self.states, self._tail = CallbackStates(self, trainer), Tail(self, trainer)
        self.epoch = 0
        self._begun = False
        self.own = OwnState(self._keeping, TrainerSettings(trainer))
        self._own = OwnAttributes("Trainer under Holdfast", _KEEP)
        self._counts: dict[str, int] = {}
        self.evaluations = 0  # begun in this process

    def stateful(self) -> list[Any]:
        """The callbacks that have a state of their own."""
        return [callback for callback in self.callbacks if isinstance(callback, ExportableState)]

    def stateless(self) -> list[Any]:
        """The callbacks that give no state of their own to Trainer."""
        return [callback for callback in self.callbacks if not isinstance(callback, ExportableState)]

    def _keeping(self) -> list[Any]:
        """What may have attributes of the script's."""
        return [self._trainer, *self.stateless(), *called_by(self._trainer)]

    def begin(self, session: Any) -> None:
        """Another training begins in this process. The session learns which objects of the script's take
        part, and what the Trainer was told."""
        self._begun, self.ledger.training = False, 0
        session.runtime.forgotten.things = self.things
        session.runtime.beginnings.settings = self._told
        self.own.begin()

    def take_place(self, session: Any, rows: list[list[float]], kept: dict[str, Any]) -> None:
        """A generation begins. `rows`: of each rank whether it has trained before, and what its ledger is
        `named`; `kept`: the progress that is restored. Called together."""
        training = int(kept.get("training", 0) or max(row[1] for row in rows) or rows[0][2])
        state = kept.get("state", {"global_step": 0, "epoch": 0.0})
        until = None if any(row[0] for row in rows) else (state["global_step"], int(state["epoch"] + _TINY))
        self.ledger.take_place(session.rank, training, until)
        self._agree(session, state["global_step"])

    def _agree(self, session: Any, step: int) -> None:
        """Have those events since this step take effect again in which a callback evaluates, unless they have
        at every rank: an evaluation takes all ranks. They call it together."""
        own = self.ledger.together(step)
        rows = gather(json.dumps(own).encode(), session.world_size, session.device)
        everywhere = set.intersection(*({tuple(key) for key in json.loads(row)} for row in rows))
        self.ledger.forget(key for key in own if key not in everywhere)

    def count_anew(self) -> None:
        """The tail of the newest step begins, or begins again: count the events after that step anew. Those
        of the next step's body (a loss that logs) go on counting, until it ends."""
        self._counts.clear()

    def replay_step_end(self, args: Any, state: Any, control: Any) -> Any:
        """The callbacks after a step that is complete already."""
        return super().on_step_end(args, state, control)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        """The body of a step has ended."""
        self._trainer.step_ended()
        self.count_anew()
        return super().on_step_end(args, state, control, **kwargs)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        """The loop is entered: for the first time in this process, or again."""
        self._trainer.loop_entered()
        control = super().on_train_begin(args, state, control, **kwargs)
        if self._trainer.inside:
            self.own.entered(self._trainer.session.rank)
        return control

    def call_event(self, event: str, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        """Call the callbacks, or apply what they left behind when they were called before."""
        if event not in ONCE or not self._trainer.inside:
            return super().call_event(event, args, state, control, **kwargs)
        if event == "on_train_begin" and not self._trainer.session.step:
            return self._once(event, args, state, control, **kwargs)
        before = self._tail.look(event)
        control = self._once(event, args, state, control, **kwargs)
        self._tail.refuse_changes(event, before)
        self.states.look(event)
        if not self._trainer.session.rank:
            if event in _LOOKS:
                self._own.look(self._owners(), self.own.is_kept, [self._trainer.model], self._data())
            elif event == "on_step_end":
                self._own.step_ended(self._owners(), self.own.is_kept, [self._trainer.model], self._data())
        return control

    def _owners(self) -> list[Any]:
        """The script's objects, some of whose attributes are not kept."""
        without = [each for each in self.stateless() if not is_kept(each)]
        return [self._trainer, *self._trainer.model.modules(), *without, *called_by(self._trainer)]

    def _data(self) -> list[Any]:
        return own_data(self._trainer.train_dataset, self._trainer.data_collator)

    def things(self) -> list[Any]:
        """The script's objects that take part in the steps, and the seeded generators of its data."""
        data, collate = self._trainer.train_dataset, self._trainer.data_collator
        parts = *self._trainer.model.modules(), *self.callbacks, *self._data(), *called_by(self._trainer)
        return [self._trainer, *parts, *OwnGenerators(data, collate).known()]

    def _told(self) -> list[tuple[str, Any]]:
        """What the training may depend on: what the Trainer was told, and its data."""
        called = (
            each for name in _CALLED for each in called_values(name, getattr(self._trainer, name, None))
        )
        return [*self.own.settings.told(), *called, *data_values(self._trainer.train_dataset)]

    def _once(self, event: str, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        if event == "on_train_begin":
            if self._begun:
                return control
            self._begun = True
            return super().call_event(event, args, state, control, **kwargs)
        key = self._key(event, state)
        left, logged, evaluations = self.ledger.found(key), len(state.log_history), self.evaluations
        if left is None:
            control = super().call_event(event, args, state, control, **kwargs)
            left = {
                "control": control.state()["args"],
                "callbacks": self.attributes(),
                "own": self.own.capture(),
            }
            left |= {"logged": state.log_history[logged:], "counts": dict(self._counts)}
            self.ledger.note(key, {**left, "together": self.evaluations > evaluations})
            return control
        for name, value in left["control"].items():
            setattr(control, name, value)
        self.set_attributes(left["callbacks"])
        state.log_history.extend(left["logged"])
        self._counts = dict(left["counts"])
        self.own.apply(left["own"])
        return control

    def _key(self, event: str, state: Any) -> Key:
        if event == "on_epoch_begin":
            self.epoch += 1
            return event, self.epoch - 1, 0
        nth = self._counts[event] = self._counts.get(event, -1) + 1
        return event, state.global_step, nth

    def attributes(self) -> list[dict[str, Any]]:
        """The state of each stateful callback."""
        return [dict(callback.state()["attributes"]) for callback in self.stateful()]

    def as_now(self) -> Callable[[], None]:
        """A function that makes attributes of callbacks, and the script's own, what they are now: from its
        second call on, when something has broken off."""
        own, attributes = self.own.capture(), copy.deepcopy(self.attributes())
        began: list[bool] = []

        def apply() -> None:
            if began:
                self.own.apply(own)
                self.set_attributes(copy.deepcopy(attributes))
            began[:] = [True]

        return apply

    def set_attributes(self, given: list[dict[str, Any]]) -> None:
        """Give each stateful callback its state."""
        for callback, attributes in zip(self.stateful(), given, strict=True):
            for name, value in attributes.items():
                setattr(callback, name, value)
