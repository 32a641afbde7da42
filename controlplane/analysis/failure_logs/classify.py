"""Name the cause that a line, or an exception, stands for, by the table of words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from controlplane.analysis.failure_logs.wordings import HARMLESS, QUIET, TRIED_AGAIN, WORDINGS, XIDS

if TYPE_CHECKING:
    from controlplane.analysis.failure_logs.wordings import Wording

_LINES = tuple(row for row in WORDINGS if not row.types)
_XID = re.compile(r"xid\W{0,3}\(?[^)]{0,60}\)?: ?(\d{1,4})\b")
_LEVEL = re.compile(r"\b(" + "|".join(QUIET) + r")\b|^\[?w\d{3,4} |^\[w ")
_LEVEL_CHARS = 90
_NCCL_INFO = " nccl info "
_NOT_FATAL = " nonfatal "
"""How NVRM marks an NVLink event (Xid 144 to 150) after which the link goes on."""
_CAUSED_BY_XID = "caused by previous xid"


def of_line(text: str) -> tuple[str, str] | None:
    """The code of the cause that a plain line names, and the source of its words; None for other lines."""
    low = text.lower()
    if _NCCL_INFO in f" {low[:200]}":
        return None
    if "xid" in low and (found := _XID.search(low)) is not None:
        return _of_xid(int(found[1]), low)
    row = _first(low)
    if row is None:
        return ("killed", "shell") if low.strip() in ("killed", "killed.") else None
    if got_over(low):
        return None
    if not row.loud and (_LEVEL.search(low[:_LEVEL_CHARS]) or any(word in low for word in HARMLESS)):
        return None
    return row.cause, row.source


def _of_xid(number: int, low: str) -> tuple[str, str] | None:
    """What a line of NVRM stands for; None for an event that harmed nothing."""
    if _NOT_FATAL in low:
        return None
    return XIDS.get(45 if _CAUSED_BY_XID in low else number, "gpu_fault"), "xid"


def got_over(low: str) -> bool:
    """Whether a line, in lower case, says that what it names did no harm."""
    return any(word in low for word in TRIED_AGAIN)


def of_exception(name: str, text: str) -> tuple[str, str]:
    """The code of the cause that an exception stands for, and the source. `name`: its type, without module;
    `text`: its message, the first line of which counts before the others."""
    head = text.partition("\n")[0]
    row = _of_type(name, head.lower())
    if row.cause == "exception" and head != text:
        row = _of_type(name, text.lower())
    return row.cause, row.source


def _first(low: str) -> Wording | None:
    for row in _LINES:
        if row.words[0] in low and all(word in low for word in row.words):
            return row
    return None


def _of_type(name: str, low: str) -> Wording:
    """The first row for this type or these words. There is one: the last row takes every exception."""
    named = f"{name.lower()}: {low}"
    for row in WORDINGS:
        if row.types and name not in row.types and row.types != ("*",):
            continue
        if all(_within(word, named) for word in row.words):
            return row
    raise KeyError(name)


def _within(word: str, low: str) -> bool:
    """Whether a word is there: a short one as a whole word only ("nan" is not in "finance")."""
    return word in low if len(word) > 3 else re.search(rf"\b{re.escape(word)}s?\b", low) is not None


def is_error_name(name: str) -> bool:
    """Whether a line that begins with this word and a colon reports an exception, though no traceback
    precedes."""
    return name.endswith(("Error", "Exception")) and len(name) > len("Exception")
