"""Call Trainer's callbacks once for each event, though the tail of a step may be gone through again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers.trainer_callback import CallbackHandler, ExportableState

from holdfast.integrations.hf.callbacks import CallbackStates, is_kept
from holdfast.integrations.own_attributes import OwnAttributes

if TYPE_CHECKING:
    from holdfast.integrations.hf.ledger import EventLedger, Key

ONCE = frozenset(
    {
        *("on_train_begin", "on_epoch_begin", "on_step_end", "on_log", "on_evaluate", "on_save"),
        *("on_epoch_end", "on_train_end"),
    }
)

_LOOKS = frozenset({"on_log", "on_evaluate", "on_epoch_end"})
_KEEP = (
    "If the training depends on it, give a callback state_dict and load_state_dict, and change it in "
    "on_optimizer_step; or read it off state.global_step and state.log_history"
)


class OnceHandler(CallbackHandler):
    """transformers' handler, which tells the trainer of boundaries and calls nothing twice."""

    def __init__(self, found: CallbackHandler, trainer: Any, ledger: EventLedger) -> None:
        self.__dict__.update(vars(found))
        self._trainer, self.ledger = trainer, ledger
        self.states = CallbackStates(self, trainer)
        self.epoch = 0
        self._begun = False
        self._own = OwnAttributes("Trainer under Holdfast", _KEEP)
        self._counts: dict[str, int] = {}

    def stateful(self) -> list[Any]:
        """The callbacks that have a state of their own."""
        return [callback for callback in self.callbacks if isinstance(callback, ExportableState)]

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
        return super().on_train_begin(args, state, control, **kwargs)

    def call_event(self, event: str, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        """Call the callbacks, or apply what they left behind when they were called before."""
        if event not in ONCE or not self._trainer.inside:
            return super().call_event(event, args, state, control, **kwargs)
        before = self.states.marks()
        control = self._once(event, args, state, control, **kwargs)
        self.states.refuse_changes(event, before)
        self.states.look(event)
        if event in _LOOKS and not self._trainer.session.rank:
            self._own.look(self._owners())
        elif event == "on_step_end" and not self._trainer.session.rank:
            self._own.step_ended(self._owners())
        return control

    def _owners(self) -> list[Any]:
        """The script's objects whose attributes are not kept."""
        lost = [each for each in self.callbacks if not (is_kept(each) or isinstance(each, ExportableState))]
        return [self._trainer, *self._trainer.model.modules(), *lost]

    def _once(self, event: str, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        if event == "on_train_begin":
            if self._begun:
                return control
            self._begun = True
            return super().call_event(event, args, state, control, **kwargs)
        key = self._key(event, state)
        left, logged = self.ledger.found(key), len(state.log_history)
        if left is None:
            control = super().call_event(event, args, state, control, **kwargs)
            left = {"control": control.state()["args"], "callbacks": self.attributes()}
            more = {"logged": state.log_history[logged:], "counts": self._counts}
            self.ledger.note(key, {**left, **more})
            return control
        for name, value in left["control"].items():
            setattr(control, name, value)
        self.set_attributes(left["callbacks"])
        state.log_history.extend(left["logged"])
        self._counts = dict(left["counts"])
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

    def set_attributes(self, given: list[dict[str, Any]]) -> None:
        """Give each stateful callback its state."""
        for callback, attributes in zip(self.stateful(), given, strict=True):
            for name, value in attributes.items():
                setattr(callback, name, value)
