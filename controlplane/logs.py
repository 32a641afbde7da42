"""The daemons' log lines: for people, or JSON for machines. Standard library only.

A line that belongs to an incident names it: `log.info("...", extra=of_incident("job", 3))`."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
FIELDS = ("incident", "training_job", "node", "generation", "term")
"""What a line may carry besides its message."""


def of_incident(job: str, number: int, **more: Any) -> dict[str, Any]:
    """The `extra` of a line that belongs to an incident; its name is the one that `holdfast why` takes."""
    return {"incident": f"{job}/{number}", "training_job": job, **more}


class TextFormatter(logging.Formatter):
    """One line for people; the incident stands in brackets behind it."""

    def __init__(self) -> None:
        super().__init__(TEXT)

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
    handler.setFormatter(JsonFormatter(**always) if log_format == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
