"""Have waits for the other ranks, and gathers from them, work between a Trainer's functions, too.

Outside of `train()`, `evaluate()` and `predict()` there is no process group. There each wait and each gather
is an elastic function of its own: a rank that dies in it, or is not there yet, is waited for, and a process
that joins the job when it is over passes it, and gets what rank 0 got. Before the first function processes
have no place: each is alone and the first one, so there is nothing to wait for."""

from __future__ import annotations

import functools
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import transformers
from accelerate.state import PartialState

from holdfast.errors import SessionError
from holdfast.integrations import accelerate_state, plain, saving
from holdfast.integrations.hf import outcome, refusals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.session import Session

_GATHERS = "gather", "gather_for_metrics", "reduce"
"""Methods of an Accelerator that give all ranks the same."""
_met: list[Session] = []
"""Not empty when waits are elastic in this process."""
_saved: list[Any] = []
"""The kinds of models whose `save_pretrained` is looked after."""


def wait_elastically(session: Session) -> None:
    """Have `wait_for_everyone` and `main_process_first` of this process wait in an elastic function."""
    if _met:
        return
    _met.append(session)
    wait = PartialState.wait_for_everyone

    @functools.wraps(wait)
    def wait_for_everyone(state: Any) -> None:
        if session.runtime.state.functions.called:
            _meet(session, "wait_for_everyone", functools.partial(wait, state))

    @contextmanager
    def main_process_first(args: Any, local: bool = True, desc: str = "work") -> Iterator[None]:
        state = args.distributed_state
        with state.local_main_process_first() if local else state.main_process_first():
            yield

    PartialState.wait_for_everyone = wait_for_everyone
    transformers.TrainingArguments.main_process_first = main_process_first


def save_once(session: Session, model: Any) -> None:
    """Have `save_pretrained` of models of this kind save nothing in a process that joins the job late."""
    kind: Any = next((each for each in type(model).__mro__ if "save_pretrained" in vars(each)), None)
    if kind is None or kind in _saved:
        return
    _saved.append(kind)
    kind.save_pretrained = saving.unless_late(session, kind.save_pretrained)


def gather_elastically(session: Session, accelerator: Any) -> None:
    """Have what this accelerator gathers be gathered in an elastic function."""
    for name in _GATHERS:
        setattr(accelerator, name, _gathering(session, name, getattr(accelerator, name)))


def _gathering(session: Session, name: str, gather: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(gather)
    def gathered(*given: Any, **named: Any) -> Any:
        if not session.runtime.state.functions.called:
            refusals.refuse(
                f"accelerator.{name} before the first train(), evaluate() or predict()",
                "no process has a rank yet",
            )
        return _meet(session, name, functools.partial(gather, *given, **named))

    return gathered


def together(
    session: Session,
    name: str,
    function: Callable[[], Any],
    packed: Callable[[Any], dict[str, Any]],
    taken: Callable[[Any], Any],
) -> Any:
    """Call it in an elastic function of this name. `packed(result)`: what is kept of it, which `taken` makes
    the result of again, in a process that joined when the function was over."""
    results: list[Any] = []

    def run() -> dict[str, Any]:
        session.restore()
        results[:] = [function()]
        return packed(results[0])

    run.__name__ = run.__qualname__ = name
    told = session.elastic(run)()
    return results[0] if results else taken(told)


def _meet(session: Session, name: str, function: Callable[[], Any]) -> Any:
    """Do it with all ranks: in the function that runs, else in one of its own.

    Raises SessionError in a process that joined when it was over, if its result was not kept."""
    if session.runtime.state.entry.inside:
        return function()

    def taken(told: dict[str, Any]) -> Any:
        accelerate_state.take_place(session)
        if "kept" in told:
            return plain.loads(zlib.decompress(told["kept"]), session.device)
        raise SessionError(
            f"Trainer under Holdfast: accelerator.{name}: this process joined when it was over, and cannot "
            f"get its result: {told['refused']}. Gather it in a callback, or in compute_metrics"
        )

    return together(session, name, function, outcome.squeezed, taken)
