"""An argument type for a moment: an age, as kubectl has it, or a date and time, with or without a zone."""

from __future__ import annotations

import argparse
import datetime
import re
import time

_AGE = re.compile(r"(?P<many>\d{1,9}(\.\d{1,6})?)(?P<unit>ms|s|m|h|d)")
_UNITS_S = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_AGES_S_MAX = 3650 * 86_400.0
MOMENT = "10m, 2h30m, 14:05, 2026-03-01, 2026-03-01T14:05:00+01:00"
"""Examples, for help and errors."""


def moment(text: str) -> float:
    """The Unix time (s) that is meant: so long ago, or a date and time.

    Without a zone it is local time; a time alone is one of today. Raises ArgumentTypeError with what to
    give."""
    words = text.strip()
    if (age_s := _age(words)) is not None:
        return time.time() - age_s
    try:
        return _read(words).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise argparse.ArgumentTypeError(
            f"{text!r:.80} is no moment: give how long ago, or a date and time (local time, or with its "
            f"zone), as {MOMENT}"
        ) from error


def age(text: str) -> float:
    """A span of time (s), as kubectl has it: 30s, 5m, 1h30m. Raises ArgumentTypeError with what to give."""
    if (found := _age(text.strip())) is None:
        raise argparse.ArgumentTypeError(f"{text!r:.80} is no time: give it as 30s, 5m or 1h30m")
    return found


def _age(words: str) -> float | None:
    """A span of time (s); None when these words are none. Raises ArgumentTypeError when it is too long."""
    pieces = list(_AGE.finditer(words))
    if not pieces or "".join(found[0] for found in pieces) != words:
        return None
    age_s = sum(float(found["many"]) * _UNITS_S[found["unit"]] for found in pieces)
    if age_s > _AGES_S_MAX:
        raise argparse.ArgumentTypeError(f"{words!r} is longer than ten years")
    return age_s


def _read(words: str) -> datetime.datetime:
    if re.fullmatch(r"\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?", words):
        found = datetime.time.fromisoformat(words.zfill(5) if len(words) < 5 else words)
        return datetime.datetime.combine(datetime.date.today(), found)
    if not re.match(r"\d{4}-\d{2}-\d{2}", words):
        raise ValueError(words)
    return datetime.datetime.fromisoformat(words)
