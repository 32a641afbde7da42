"""Call Trainer's callbacks once for each event, though the tail of a step may be gone through again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers.trainer_callback import CallbackHandler, ExportableState

from holdfast.integrations.hf.callbacks import CallbackStates

if TYPE_CHECKING:
    from holdfast.integrations.hf.ledger import EventLedger, Key

ONCE = frozenset(
    {
        *("on_train_begin", "on_epoch_begin", "on_step_end", "on_log", "on_evaluate", "on_save"),
        *("on_epoch_end", "on_train_end"),
    }
)


class OnceHandler(CallbackHandler):
    """transformers' handler, which tells the trainer of boundaries and calls nothing twice."""

    def __init__(self, found: CallbackHandler, trainer: Any, ledger: EventLedger) -> None:
        self.__dict__.update(vars(found))
        self._trainer, self.ledger = trainer, ledger
        self.states = CallbackStates(self, trainer)
        self.epoch = 0
        self._begun = False
        self._counts: dict[str, int] = {}

    def stateful(self) -> list[Any]:
        """The callbacks that have a state of their own."""
        return [callback for callback in self.callbacks if isinstance(callback, ExportableState)]

    def new_tail(self) -> None:
        """A step begins, or the tail of the newest one is gone through (again): count its events anew."""
        self._counts.clear()

    def replay_step_end(self, args: Any, state: Any, control: Any) -> Any:
        """The callbacks after a step that is complete already."""
        return super().on_step_end(args, state, control)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        """The body of a step has ended."""
        self._trainer.step_ended()
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
        return control

    def _once(self, event: str, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        if event == "on_train_begin":
            if self._begun:
                return control
            self._begun = True
            return super().call_event(event, args, state, control, **kwargs)
        key = self._key(event, state)
        left = self.ledger.found(key)
        if left is None:
            control = super().call_event(event, args, state, control, **kwargs)
            self.ledger.note(key, {"control": control.state()["args"], "callbacks": self.attributes()})
            return control
        for name, value in left["control"].items():
            setattr(control, name, value)
        self.set_attributes(left["callbacks"])
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
