"""How a process meets the others of a generation, and what it lets go of when it leaves them."""

from __future__ import annotations

import dataclasses
import logging
import sys
import traceback
from typing import TYPE_CHECKING

from holdfast.groups.groups import carrier, gather_numbers
from holdfast.reentry import lines

if TYPE_CHECKING:
    from holdfast.groups.formation import Formation
    from holdfast.reentry.agent_client import Gate
    from holdfast.session import Session


def take_place(session: Session, local_rank: int) -> None:
    """Its place on the node, as the coordinator has it: a spare process learns it only now."""
    if session._device is None:
        session._environment = dataclasses.replace(session._environment, local_rank=local_rank)


def gather(session: Session, numbers: list[int]) -> list[list[int]]:
    """These numbers of every rank."""
    device = carrier(session._backend, session.device)
    return gather_numbers(numbers, device, session._world_size)


def settle(session: Session) -> None:
    """Meshes have been made in the function: learn which connections are their groups'."""
    if session._backend != "gloo":
        return
    own = session._groups.listeners()
    counts = gather(session, [len(own)])
    most = max(row[0] for row in counts)
    if most > 1:
        rows = gather(session, [*own, *[0] * (most - len(own))])
        session._groups.settle(set(own), {port for row in rows for port in row if port})
    else:
        session._groups.settle(set(), set())


def check_past(session: Session, gate: Gate, name: str, number: int, formation: Formation) -> None:
    """A state of an earlier function is of no use to a process that has passed it: its script is to be run
    again, so that the process ends."""
    step = formation.resume.step
    if number and step <= session._functions.finished[number - 1].end:
        words = f"{name}: the state that is left, of step {step}, is that of a function before it"
        lines.tell(gate, logging.ERROR, "%s: this process ends, and its script is run again", words)
        sys.exit(f"{words}: the script is run again")


def clear(error: BaseException) -> None:
    """Free what the frames of a caught exception hold: the wrapped model above all."""
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        found = pending.pop()
        if found is None or id(found) in seen:
            continue
        seen.add(id(found))
        traceback.clear_frames(found.__traceback__)
        pending += [found.__cause__, found.__context__]
        found.__traceback__ = None
