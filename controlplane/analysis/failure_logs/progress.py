"""Recognise in a log line that training goes on, that a new attempt begins, and where ranks meet."""

from __future__ import annotations

import re

_STEP = re.compile(
    r"\b(?:global[_ ]?|train(?:ing)?[_ ]?)?(?:step|iter|iteration|batch|update)s?\b\W{0,4}(\d{1,12})\b",
    re.IGNORECASE,
)
_BAR = re.compile(r"\b(\d{1,12})/\d{1,12} \[\d{1,4}:\d\d")
_STEP_CHARS = 200
_NOT_TRAINING = (
    "fail", "crash", "abort", "exception", "fatal", " died", "resum", "restor", "load", "checkpoint",
    "error at", "raise", "timeout", "killed", "starting from", "start from", "skipp", "scheduled", "warmup",
    "save",
)  # fmt: skip
"""Words of lines that name a step and are no sign that it was trained."""

_AGAIN = (
    ("will restart worker group", "torch's elastic agent restarts the ranks"),
    ("rendezvous'ing worker group", "torch's elastic agent starts the ranks"),
    ("starting worker group", "torch's elastic agent starts the ranks"),
    ("restarting training", "the log says that training starts again"),
    ("restarting from checkpoint", "the log says that training starts again"),
    ("requeued", "the scheduler started the job again"),
)
_NUMBERED = re.compile(
    r"^[\W_]{0,12}(?:(?:re)?start(?:ing)?\W{1,3})?(?:attempt|restart(?:_count)?)\b"
    r"\W{0,4}(?:no\W{1,2})?(\d{1,4})\b"
    r"|\b(?:starting|begin(?:ning)?) attempt\W{0,3}(\d{1,4})\b",
    re.IGNORECASE,
)
_MEETINGS = (
    "init complete",
    "process group initialized",
    "rendezvous complete",
    "all ranks ready",
    "barrier passed",
)


def step_of(text: str) -> int | None:
    """The step that this line says was trained; None for other lines."""
    found = _STEP.search(text, 0, _STEP_CHARS) or _BAR.search(text, 0, 4 * _STEP_CHARS)
    if found is None:
        return None
    low = text[: 4 * _STEP_CHARS].lower()
    return None if any(word in low for word in _NOT_TRAINING) else int(found[1])


def restart_of(text: str) -> str:
    """How this line says that a new attempt begins; "" for other lines."""
    low = text[:300].lower()
    for words, means in _AGAIN:
        if words in low:
            return means
    found = _NUMBERED.search(text, 0, 120)
    return f"a line says attempt {found[1] or found[2]}" if found is not None and "left" not in low else ""


def meeting_of(text: str) -> str:
    """The meeting of all ranks that this line says is over; "" for other lines."""
    low = text[:300].lower()
    return next((words for words in _MEETINGS if words in low), "")
