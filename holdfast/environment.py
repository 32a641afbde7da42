"""Read what a rank learns from its environment: Holdfast's variables, else torchrun's."""

from __future__ import annotations

import multiprocessing
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast import coordinates, holds
from holdfast.errors import SessionError
from holdfast.holds import Holds
from holdfast.ipc.progress_page import ProgressPage

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

    from holdfast.ipc.formation import Formation


WORKER = "worker"
"""The role of a process that a rank's multiprocessing has started, such as a DataLoader's worker."""


@dataclass(frozen=True, slots=True)
class Environment:
    """The facts that a process was started with.

    - `agent_socket`: path of the agent's socket; "": no agent, the process trains alone.
    - `member`: this process's name, used by no other process; "" without an agent.
    - `page_path`: file of the progress page; "": nobody watches.
    - `address`: host at which peers reach this node.
    - `role`: "rank", "spare" or WORKER.
    - `ledger`: folder of the sample ledger; "": none is kept.
    - `snapshot_every`: steps between snapshots; 0: none.
    - `snapshot_auto`: fewer steps than that between them where they cost little.
    - `ranks_release`: ranks that hold different parts decide which snapshot the next one overwrites.
    - `snapshot_lazily`: copy what only optimizers change beside the next step, not at the boundary.
    - `check_replicas_every`: steps between two comparisons of whole replicas; 0: slices are compared instead.
    - `corrupt_acts`: whether the job goes back when a replica differs; else that is only reported.
    - `anatomy`: whether the phases of steps are timed.
    - `holds`: where a rehearsal holds the training; None: nowhere.
    - `rank`, `local_rank`, `world_size`: torchrun's values at the start; a spare gets its place later, with a
      generation."""

    agent_socket: str
    member: str
    page_path: str
    address: str
    role: str
    ledger: str
    snapshot_every: int
    snapshot_auto: bool
    ranks_release: bool
    snapshot_lazily: bool
    check_replicas_every: int
    corrupt_acts: bool
    anatomy: bool
    holds: Holds | None
    rank: int
    local_rank: int
    world_size: int

    @classmethod
    def read(cls, variables: Mapping[str, str]) -> Environment:
        """Parse the variables. Raises SessionError naming the variable that is wrong."""
        agent_socket = variables.get("HOLDFAST_GATE", "")
        member = variables.get("HOLDFAST_MEMBER", "")
        if agent_socket and not member:
            raise SessionError("HOLDFAST_GATE is set but HOLDFAST_MEMBER is not: unset both to train alone")
        if agent_socket and _is_worker():  # a worker must not use its rank's agent, page and ledger
            agent_socket = member = ""
            variables = {**variables, "HOLDFAST_BOARD": "", "HOLDFAST_LEDGER": "", "HOLDFAST_ROLE": WORKER}
        anchor = variables.get("HOLDFAST_SNAPSHOT_ANCHOR", "off")  # other nodes keep copies of snapshots
        return cls(
            agent_socket=agent_socket,
            member=member,
            page_path=variables.get("HOLDFAST_BOARD", ""),
            address=variables.get("HOLDFAST_ADDRESS", "") or "127.0.0.1",
            role=variables.get("HOLDFAST_ROLE", "rank"),
            ledger=variables.get("HOLDFAST_LEDGER", ""),
            snapshot_every=_integer(variables, "HOLDFAST_SNAPSHOT_EVERY", 0),
            snapshot_auto=anchor == "auto" or _switch(variables, "HOLDFAST_SNAPSHOT_AUTO", default="off"),
            ranks_release=anchor != "off" or variables.get("HOLDFAST_SNAPSHOT_RELEASE", "") == "ranks",
            snapshot_lazily=_lazily(variables),
            check_replicas_every=_integer(variables, "HOLDFAST_CHECK_REPLICAS_EVERY", 0),
            corrupt_acts=variables.get("HOLDFAST_ON_CORRUPT_STATE", "") == "act",
            anatomy=_switch(variables, "HOLDFAST_ANATOMY"),
            holds=_holds(variables),
            rank=_integer(variables, "RANK", 0),
            local_rank=_integer(variables, "LOCAL_RANK", 0),
            world_size=_integer(variables, "WORLD_SIZE", 1),
        )

    def check_entry(self) -> None:
        """Raise SessionError if this process may not enter an elastic function."""
        if self.role == WORKER:
            raise SessionError(
                "a process that multiprocessing has started (a DataLoader's worker) cannot call an elastic "
                'function: call it under if __name__ == "__main__"'
            )

    def open_page(self) -> ProgressPage | None:
        """The progress page, if the agent has made one, else None. Raises SessionError when it cannot be
        opened."""
        if not self.page_path:
            return None
        try:
            return ProgressPage.open(Path(self.page_path), writable=True)
        except (OSError, ValueError) as error:
            raise SessionError(f"HOLDFAST_BOARD={self.page_path}: {error}") from error


def _is_worker() -> bool:
    """Whether multiprocessing has started this process, or is starting it: `spawn` imports the script
    first."""
    starting = getattr(multiprocessing.current_process(), "_inheriting", False)
    return bool(starting) or multiprocessing.parent_process() is not None


def _integer(variables: Mapping[str, str], name: str, default: int) -> int:
    text = variables.get(name, "")
    try:
        return int(text) if text else default
    except ValueError:
        raise SessionError(f"{name}={text!r} is not a number: set it to one or unset it") from None


def _holds(variables: Mapping[str, str]) -> Holds | None:
    text = variables.get(holds.VARIABLE, "")
    try:
        return Holds.read(text)
    except ValueError:
        raise SessionError(f"{holds.VARIABLE}={text!r:.80} must be FOLDER:STEP,STEP") from None


def _lazily(variables: Mapping[str, str]) -> bool:
    text = variables.get("HOLDFAST_SNAPSHOT_COPY", "")
    if text not in ("", "eager", "lazy"):
        raise SessionError(f"HOLDFAST_SNAPSHOT_COPY={text!r:.80} must be eager or lazy")
    return text == "lazy"


def _switch(variables: Mapping[str, str], name: str, default: str = "on") -> bool:
    """Whether a switch is on."""
    text = variables.get(name, "") or default
    if text not in ("on", "off"):
        raise SessionError(f"{name}={text!r:.80} must be on or off")
    return text == "on"


def announce(formation: Formation, variables: MutableMapping[str, str] | None = None) -> None:
    """Set torchrun's variables to the values of this generation. A spare gets its rank here."""
    target = os.environ if variables is None else variables
    nodes = list(dict.fromkeys(seat.node for seat in formation.seats))
    host, _, port = formation.master.rpartition(":")
    values = {
        "RANK": formation.rank,
        "LOCAL_RANK": formation.local_rank,
        "WORLD_SIZE": formation.world_size,
        "LOCAL_WORLD_SIZE": formation.local_world_size,
        "GROUP_RANK": nodes.index(formation.seats[formation.rank].node),
        "GROUP_WORLD_SIZE": len(nodes),
        "ROLE_RANK": formation.rank,
        "ROLE_WORLD_SIZE": formation.world_size,
        "TORCHELASTIC_RESTART_COUNT": formation.restarts,
    }
    target.update({name: str(value) for name, value in values.items()})
    target.update(coordinates.read(target, formation.rank, formation.world_size).variables())
    if port:
        target.update(MASTER_ADDR=host.strip("[]"), MASTER_PORT=port)
