"""Write the log lines of Holdfast's processes, as text for people or JSON for machines.

A line that belongs to an incident carries its name, `job/3`, which `holdfast why` accepts. The name is given
with the line (`log.info("...", extra=of_incident("job", 3))`), or bound while an order of that incident is
carried out (`with bound("job/3")`). Orders of a recovery carry the name down to the ranks. Standard library
only."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from holdfast.neutral import neutral

if TYPE_CHECKING:
    from collections.abc import Iterator

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
FIELDS = ("incident", "training_job", "node", "generation", "term")
"""What a line may carry besides its message."""

_NAME = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,62})/[0-9]{1,18}")
_BOUND: ContextVar[str] = ContextVar("incident", default="")


def incident_name(job: str, number: int) -> str:
    """The name of an incident, as it is shown everywhere: `job/3`."""
    return f"{job}/{number}"


def of_incident(job: str, number: int, **more: Any) -> dict[str, Any]:
    """The `extra` argument of a log call for a line that belongs to an incident."""
    return {"incident": incident_name(job, number), "training_job": job, **more}


@contextlib.contextmanager
def bound(incident: object) -> Iterator[None]:
    """Attach this incident to all lines logged within, and by tasks and timers begun within.

    A value that is not an incident's name binds nothing: it may come from another process."""
    named = isinstance(incident, str) and _NAME.fullmatch(incident) is not None
    token = _BOUND.set(str(incident) if named else "")
    try:
        yield
    finally:
        _BOUND.reset(token)


def incident() -> str:
    """The name of the incident that is bound now; "": none."""
    return _BOUND.get()


def _stamp(record: logging.LogRecord) -> bool:
    """Add the bound incident to a record that names none."""
    if (name := _BOUND.get()) and not hasattr(record, "incident"):
        record.incident, record.training_job = name, name.rpartition("/")[0]
    return True


class TextFormatter(logging.Formatter):
    """Formats a record as text for people, with the incident in brackets after the message."""

    def __init__(self) -> None:
        super().__init__(TEXT)

    def format(self, record: logging.LogRecord) -> str:
        """The record as text, traceback included, with everything escaped that a terminal would obey."""
        return neutral(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The message, followed by its incident."""
        incident = getattr(record, "incident", "")
        text = super().formatMessage(record)
        return f"{text} [incident {incident}]" if incident else text


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object per line: time (RFC 3339, UTC), level, logger, message, then its
    fields."""

    def __init__(self, **always: str) -> None:
        super().__init__()
        self._always = always

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line of JSON."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._always,
        }
        line |= {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def set_up(log_format: str, **always: str) -> None:
    """Log to standard error: JSON if `log_format` is "json", else text. `always`: fields of every JSON
    line."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(_stamp)
    handler.setFormatter(JsonFormatter(**always) if log_format == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
