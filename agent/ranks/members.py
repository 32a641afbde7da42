"""Keep members' statuses, progress pages and arenas in files of shared memory, which outlive an agent."""

from __future__ import annotations

import logging
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from agent.deciding.member import recalled
from controlplane.core.records.model import NO_STEP, JobSpec, MemberStatus
from controlplane.wire import records
from controlplane.wire.shape import WireError
from holdfast import removal
from holdfast.folders import MEMORY_FILES
from holdfast.ipc.arena import Arena, SlotState
from holdfast.ipc.progress_page import ProgressPage
from holdfast.ipc.shm import ArenaError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from agent.deciding.member import LocalMember
    from agent.host.paths import Paths

log = logging.getLogger("holdfast.agent")


class MemberMemory:
    """The files of one node's members."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._freeing = ThreadPoolExecutor(1, "free")

    def make(self, member: LocalMember) -> None:
        """Create a member's progress page, and store the job that it was launched for.

        Raises OSError when shared memory is full."""
        member.page = ProgressPage.create(self._paths.page(member.name))
        if member.spec is not None:
            self._paths.spec(member.name).write_bytes(records.pack(member.spec))

    def keep(self, status: MemberStatus) -> None:
        """Store a status for the next agent.

        When that fails (shared memory is full), the next agent knows less and nothing else is harmed: it is
        only logged."""
        path = self._paths.record(status.member)
        draft = path.with_suffix(".new")
        try:
            draft.write_bytes(records.pack(status))
            os.replace(draft, path)
        except OSError as error:
            log.warning("the status of %s was not saved for a later agent: %s", status.member, error)

    def remove(self, member: LocalMember) -> None:
        """Remove a member's shared memory. Its arena goes in a thread: unmapping gigabytes takes time."""
        arena, member.arena = member.arena, None
        self.close([member])
        paths, name = self._paths, member.name
        for path in (paths.record, paths.page, paths.stacks, paths.spec):
            removal.file(path(name))
        if arena is not None or paths.arena(name).exists():
            self._freeing.submit(_free, arena, paths.arena(name))

    def end(self) -> None:
        """Wait until what was removed is freed. Blocks."""
        self._freeing.shutdown(wait=True)

    def close(self, members: Iterable[LocalMember]) -> None:
        """Unmap the memory of these members. The files stay."""
        for member in members:
            for memory in (member.page, member.arena):
                if memory is not None:
                    memory.close()
            member.page = member.arena = None

    def recall(self) -> list[LocalMember]:
        """Take over what an earlier agent left.

        Unreadable files, and files of unknown members, are removed; files that no agent makes stay."""
        members: list[LocalMember] = []
        for path in sorted(self._paths.memory.glob("*.json")):
            try:
                status = records.unpack(MemberStatus, path.read_bytes())
                member = recalled(status, self._spec(status.member))
                member.page, member.arena = self._page(status.member), self._arena(status.member)
            except (WireError, OSError, ValueError) as error:
                log.warning("%s cannot be read, and is ignored: %s", path, error)
                if MEMORY_FILES.fullmatch(path.name):
                    removal.file(path)
                continue
            members.append(member)
        known = {member.name for member in members}
        for path in self._paths.memory.iterdir():
            ours = MEMORY_FILES.fullmatch(path.name) and path != self._paths.copies
            if ours and path.name.rpartition(".")[0] not in known:
                removal.file(path)
        return members

    def _spec(self, name: str) -> JobSpec | None:
        path = self._paths.spec(name)
        return records.unpack(JobSpec, path.read_bytes()) if path.exists() else None

    def _page(self, name: str) -> ProgressPage | None:
        path = self._paths.page(name)
        return ProgressPage.open(path) if path.exists() else None

    def _arena(self, name: str) -> Arena | None:
        path = self._paths.arena(name)
        if not path.exists():
            return None
        try:
            return Arena.open(path, owner=True)
        except ArenaError as error:
            log.warning("the snapshots of %s are lost: %s", name, error)
            removal.file(path)
            return None


def _free(arena: Arena | None, path: Path) -> None:
    try:
        removal.file(path)
    except OSError as error:
        log.warning("%s was not removed: %s", path, error)
    if arena is not None:
        arena.close()


def step_of(member: LocalMember) -> int:
    """The step on a member's progress page; NO_STEP without a page."""
    page: ProgressPage | None = member.page
    return page.step if page is not None else NO_STEP


def held_by(member: LocalMember) -> list[tuple[int, int]]:
    """Generation and step of each READY snapshot in a member's arena, ascending."""
    arena: Arena | None = member.arena
    try:
        slots = arena.slots if arena is not None else ()
        return sorted((slot.generation, slot.step) for slot in slots if slot.state == SlotState.READY)
    except ArenaError as error:
        log.warning("the snapshots of %s are lost: %s", member.name, error)
        return []
