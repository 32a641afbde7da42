"""Find the runs of this user on this machine, by the cards in the folder of all states.

A card names the processes of a run with their start times, so a card that a killed run has left is not taken
for a run. A run whose state is in another folder (--state-dir, a demo) has a link to it in that of all."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from typing import TYPE_CHECKING, Any

from controlplane.cli.errors import UsageError
from controlplane.cli.flags.credentials import coordinator
from controlplane.cli.local.layout import ONCE, LocalPaths, state_root
from holdfast import removal
from holdfast.pids import born

if TYPE_CHECKING:
    from pathlib import Path


ELSEWHERE = ".elsewhere"
"""The folder of links to states that a flag has put into other folders. No job has such a name."""
log = logging.getLogger(__name__)


def tell_where(layout: LocalPaths) -> None:
    """Have a run found whose state is in a folder of its own, if this user has a folder of all states.

    Links of runs that have ended without taking theirs away go."""
    root = state_root()
    if root is None or layout.state.is_relative_to(root):
        return
    links = root / ELSEWHERE
    try:
        links.mkdir(parents=True, exist_ok=True, mode=0o700)
        removal.claim(links)
        for link in links.iterdir():
            if link.is_symlink() and not (link / "cluster.json").exists():
                removal.file(link)
        with contextlib.suppress(FileExistsError):
            (links / layout.cluster).symlink_to(layout.state)
    except OSError as error:
        log.info("commands need --coordinator to find this run: %s", error)


def forget(layout: LocalPaths) -> None:
    """The run is over."""
    root = state_root()
    if root is not None:
        with contextlib.suppress(OSError):  # then its card is gone, and nothing is found there
            removal.file(root / ELSEWHERE / layout.cluster)


def local_runs() -> list[tuple[str, str]]:
    """The job of each run that lives, and the address of its coordinator."""
    root, found = state_root(), []
    folders = [] if root is None else [root, root / ONCE, root / ELSEWHERE]
    for card in sorted(card for folder in folders for card in folder.glob("*/cluster.json")):
        run = _read(card)
        if _lives(run):
            found.append((str(run["job"]), str(run["coordinator"])))
    return found


def coordinator_for(text: str) -> str:
    """The addresses to call: those given, else of HOLDFAST_COORDINATOR, else of the run of this user on this
    machine, else the default. Raises UsageError that names them when there are several runs."""
    if text or os.environ.get("HOLDFAST_COORDINATOR"):
        return text or coordinator()
    runs = local_runs()
    if len(runs) > 1:
        named = "; ".join(f"{address} for job {job}" for job, address in runs)
        raise UsageError(f"--coordinator: {len(runs)} runs are on this machine: give {named}")
    return runs[0][1] if runs else coordinator()


def _read(card: Path) -> dict[str, Any]:
    try:
        run = json.loads(card.read_text())
    except (OSError, ValueError):
        return {}
    return run if isinstance(run, dict) else {}


def _lives(run: dict[str, Any]) -> bool:
    """Whether the coordinator that a card names still runs."""
    processes = run.get("processes")
    pid = processes.get("coordinator") if isinstance(processes, dict) else None
    if not (isinstance(pid, list) and len(pid) == 2 and all(isinstance(each, int) for each in pid)):
        return False
    return bool(pid[1] and born(pid[0]) == pid[1] and run.get("coordinator") and run.get("job"))
