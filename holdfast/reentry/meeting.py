"""Meet the other ranks of a generation, and free what refers to the one before."""

from __future__ import annotations

import dataclasses
import logging
import sys
import traceback
from typing import TYPE_CHECKING

from holdfast.groups.groups import carrier, gather_numbers
from holdfast.ipc import recovery_log

if TYPE_CHECKING:
    from holdfast.ipc.agent_client import AgentClient
    from holdfast.ipc.formation import Formation
    from holdfast.rank_state import RankState


def take_place(state: RankState, local_rank: int) -> None:
    """Set this rank's index on its node, as the coordinator assigned it: a spare learns it only now."""
    if state.chosen_device is None:
        state.environment = dataclasses.replace(state.environment, local_rank=local_rank)


def gather(state: RankState, numbers: list[int]) -> list[list[int]]:
    """Gather these numbers from every rank: one row per rank."""
    device = carrier(state.backend, state.device)
    return gather_numbers(numbers, device, state.world_size)


def settle(state: RankState) -> None:
    """Learn which connections belong to the script's own groups, once the function has made its meshes."""
    if state.backend != "gloo":
        return
    own = state.groups.listeners()
    counts = gather(state, [len(own)])
    most = max(row[0] for row in counts)
    if most > 1:
        rows = gather(state, [*own, *[0] * (most - len(own))])
        state.groups.settle(set(own), {port for row in rows for port in row if port})
    else:
        state.groups.settle(set(), set())


def check_past(state: RankState, agent: AgentClient, name: str, number: int, formation: Formation) -> None:
    """Exit if the generation's state is that of an earlier function.

    A process that has passed that function cannot use the state, so its script is started again."""
    step = formation.resume.step
    if number and step <= state.functions.finished[number - 1].end:
        words = f"{name}: the newest state left, of step {step}, belongs to an earlier elastic function"
        recovery_log.write(agent, logging.ERROR, "%s: this process ends, and its script is run again", words)
        sys.exit(f"{words}: the script is run again")


def clear(error: BaseException) -> None:
    """Free what the frames of a caught exception hold, above all the wrapped model."""
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
