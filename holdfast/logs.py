"""Write the log lines of our processes: for people, or JSON for machines. Standard library only.

A line that belongs to an incident names it, `job/3`, as `holdfast why` takes it: told with the line
(`log.info("...", extra=of_incident("job", 3))`), or bound while the order is carried out that brought it
(`with bound("job/3")`). The name travels with the orders of a recovery, as far as the ranks."""

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
    """What an incident is called wherever it is spoken of: `job/3`."""
    return f"{job}/{number}"


def of_incident(job: str, number: int, **more: Any) -> dict[str, Any]:
    """The `extra` of a line that belongs to an incident; its name is the one that `holdfast why` takes."""
    return {"incident": incident_name(job, number), "training_job": job, **more}


@contextlib.contextmanager
def bound(incident: object) -> Iterator[None]:
    """What is logged within, and by the tasks and timers begun within, belongs to this incident. What is no
    incident's name (it may come from another process) binds nothing."""
    named = isinstance(incident, str) and _NAME.fullmatch(incident) is not None
    token = _BOUND.set(str(incident) if named else "")
    try:
        yield
    finally:
        _BOUND.reset(token)


def incident() -> str:
    """The incident that the current work belongs to; "": none."""
    return _BOUND.get()


def _stamp(record: logging.LogRecord) -> bool:
    """Put the bound incident into a record that names none."""
    if (name := _BOUND.get()) and not hasattr(record, "incident"):
        record.incident, record.training_job = name, name.rpartition("/")[0]
    return True


class TextFormatter(logging.Formatter):
    """One line for people; the incident stands in brackets behind it."""

    def __init__(self) -> None:
        super().__init__(TEXT)

    def format(self, record: logging.LogRecord) -> str:
        """The line, and the traceback below it, with nothing in it that a terminal obeys."""
        return neutral(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The message, with its incident."""
        incident = getattr(record, "incident", "")
        text = super().formatMessage(record)
        return f"{text} [incident {incident}]" if incident else text


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (RFC 3339, UTC), level, logger, message, then what the line carries."""

    def __init__(self, **always: str) -> None:
        super().__init__()
        self._always = always

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line, whatever is in it."""
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
    """Log to standard error in this format; `always` stands in every line of JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(_stamp)
    handler.setFormatter(JsonFormatter(**always) if log_format == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
