"""Log the SDK's lines about a recovery, each with the name of its incident.

The name is in the text, because a script's own logging may show nothing else, and in the record's
`incident`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.ipc.agent_client import AgentClient

log = logging.getLogger("holdfast.sdk")


def write(agent: AgentClient, level: int, message: str, *values: object) -> None:
    """Log a line (a format and its values) with the open incident, if there is one."""
    if named := agent.orders.incident:
        job = named.rpartition("/")[0]
        extra = {"incident": named, "training_job": job}
        log.log(level, f"{message} [incident %s]", *values, named, extra=extra, stacklevel=2)  # noqa: G004
    else:
        log.log(level, message, *values, stacklevel=2)


def over(agent: AgentClient, generation: int, step: int) -> None:
    """Log that the generation's first step is complete: for this rank the incident is over."""
    write(agent, logging.INFO, "trains again: step %d of generation %d is done", step, generation)
    agent.orders.incident = ""
