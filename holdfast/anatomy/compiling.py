"""Declare as phase "compile" what torch.compile compiles in a step: it may take longer than a step may.

Otherwise a rank that compiles for so long counts as hung. Its replacement compiles the same again, and so is
replaced again."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from holdfast.anatomy import declaring

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.anatomy.recorder import StepRecorder
    from holdfast.ipc.progress_marks import ProgressMarks


@contextlib.contextmanager
def declared(progress: ProgressMarks, times: StepRecorder) -> Iterator[None]:
    """Within, each compilation of dynamo's is a phase, unless the script has declared one around it.

    A backward pass on a GPU compiles in a thread of autograd's, while the thread that trains waits for it. So
    no two threads write marks at a time."""
    # Imported here: that takes a second, which every script spends anyway when it makes an optimizer.
    from torch._dynamo.callback import callback_handler

    running = contextlib.ExitStack()

    def begin(*_: Any) -> None:
        if progress.in_step:
            running.enter_context(declaring.phase(progress, times, "compile", None))

    def end(*_: Any) -> None:
        running.close()

    callback_handler.register_start_callback(begin)
    callback_handler.register_end_callback(end)
    try:
        with running:
            yield
    finally:
        # `torch._dynamo.reset` may have forgotten them.
        if begin in callback_handler.start_callbacks:
            callback_handler.remove_start_callback(begin)
        if end in callback_handler.end_callbacks:
            callback_handler.remove_end_callback(end)
