"""Have torch.compile make code that depends on the call alone, not on the calls before it.

By default dynamo compiles a graph for one size, then, when another size comes, one for any size, which takes
over the calls of the first one as well. Both round differently. So which bits a call gives depends on what
its process has met before, and a new process in place of a dead rank has met other calls. While an elastic
function runs, each size has a graph of its own. Where dynamo would give up and run a call uncompiled, which
depends on the calls before too, there is an error.

A script may still ask for graphs for any size (`dynamic=True`): that is noted here, and reported when a
failure has happened."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

from holdfast.errors import SessionError
from holdfast.state import compiler, rehearsal

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIANTS_MAX = 64
"""Graphs of one function before it counts as a mistake: more than torch's 8, for each size has its own."""
_FIXED = {
    "automatic_dynamic_shapes": False,
    "assume_static_by_default": True,
    "fail_on_recompile_limit_hit": True,
    "suppress_errors": False,
}
"""The settings of torch._dynamo.config that make a graph follow from its call."""
_noted: dict[str, None] = {}  # settings under which this process has compiled something, where they differ


@contextlib.contextmanager
def by_call_alone(agent_socket: str = "") -> Iterator[None]:
    """Within, what is compiled depends on the call alone, unless the script asks for something else.

    `agent_socket`: the node's spares learn there that this process compiles (see rehearsal.py). Raises
    SessionError where dynamo gives up compiling a function."""
    # Imported here: that takes a second, which every script spends anyway when it makes an optimizer.
    from torch._dynamo import config, exc
    from torch._dynamo.callback import callback_handler

    if _note not in callback_handler.start_callbacks:  # `torch._dynamo.reset` forgets it
        callback_handler.register_start_callback(_note)
    over = functools.partial(rehearsal.announce, agent_socket)
    callback_handler.register_end_callback(over)
    limit = max(config.recompile_limit, VARIANTS_MAX)
    with config.patch({"recompile_limit": limit, **_FIXED}):
        try:
            yield
        except exc.FailOnRecompileLimitHit as error:
            raise SessionError(
                f"torch.compile: a function needs more than {config.recompile_limit} graphs "
                "(torch._dynamo.config.recompile_limit). The next call would run uncompiled here, and "
                "compiled in a new process, with other bits. Give it fewer sizes (pad the batches), give "
                "numbers that change as tensors, raise the limit in the elastic function, or compile with "
                "dynamic=True: then a failure is reported as not exact. TORCH_LOGS=recompiles says more"
            ) from error
        finally:
            if over in callback_handler.end_callbacks:
                callback_handler.remove_end_callback(over)


def notes(rank: int) -> list[str]:
    """What may differ after a failure in what this rank has compiled, in words; []: nothing."""
    return [f"compiled code of rank {rank} ({', '.join(_noted)})"] if _noted else []


def _note(*given: Any) -> None:
    """Dynamo begins to compile: note the settings if the graph does not follow from its call alone."""
    from torch._dynamo import config

    compiler.leave_whole_files()
    trigger = getattr(given[0], "callback_trigger", None) if given else None
    if trigger is not None and trigger.name != "DYNAMO":  # a graph that exists is compiled further
        return
    for name, wanted in _FIXED.items():
        value = getattr(config, name)
        if value != wanted:
            _noted[f"torch._dynamo.config.{name}={value}"] = None
