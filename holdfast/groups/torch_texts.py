"""Recognise errors of torch that have no type of their own.

torch raises `DistError` for its stores and for NCCL, but a plain RuntimeError for what gloo reports. gloo
puts the place in its source before each message: "[.../gloo/transport/tcp/pair.cc:553] Connection closed by
peer ...". That place is matched, and no word of the message, because a script may raise "request timed out"
itself. This is the only file that reads torch's texts. They are those of torch 2.13; the tests in
tests/sdk/groups/test_torch_texts.py and tests/e2e/test_mistakes.py provoke each of them in real
processes, and fail with a torch that words them differently."""

from __future__ import annotations

import re

_PLACE_IN_GLOO = re.compile(r"\bgloo/[\w/]+\.(?:cc|cpp|h):\d+\]")
_WAIT_IS_OVER = "Operation timed out!"
_TWICE = "initialize the default process group twice"


def is_of_gloo(error: BaseException) -> bool:
    """Whether gloo raised it: a peer is gone or silent, or the connection to it was cut."""
    return isinstance(error, RuntimeError) and _PLACE_IN_GLOO.search(str(error)) is not None


def is_wait_over(error: BaseException) -> bool:
    """Whether `Work.wait(timeout)` has reached its timeout while the operation goes on."""
    return isinstance(error, RuntimeError) and str(error) == _WAIT_IS_OVER


def is_second_group(error: BaseException) -> bool:
    """Whether `init_process_group` was called while there is a default group."""
    return isinstance(error, ValueError) and _TWICE in str(error)
