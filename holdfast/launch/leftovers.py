"""Find the processes that a member has left in sessions of their own, by the name in their environment.

What a member has started becomes the launcher's child when its parent ends. `linux.kill_session` finds those
of the member's session; a server that was started with a session of its own, or a daemon, is known by the
HOLDFAST_MEMBER that it has inherited. One without that name ends with the launcher. Standard library only."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.launch import linux

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

MEMBER = "HOLDFAST_MEMBER"
"""The variable with the member's name, in the environment of each member."""
_COMMAND_CHARS = 80


@dataclass(frozen=True, slots=True)
class Leftover:
    """A process that runs on although the member in whose name it was started has ended."""

    pid: int
    member: str
    command: str


def disown() -> None:
    """Take the name of an outer cluster's member out of our own environment, and so out of our children's."""
    os.environ.pop(MEMBER, None)


def end(has_ended: Callable[[str], bool], known: Collection[int]) -> list[Leftover]:
    """SIGKILL those of our children, and what is below them, that members which have ended have left.

    `known`: children that are no leftovers. Caretakers are spared, and processes of another user."""
    ended = []
    for pid in linux.children():
        if pid not in known and (found := _leftover(pid)) and has_ended(found.member):
            for each in (pid, *_below(pid)):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(each, signal.SIGKILL)
            ended.append(found)
    return ended


def _leftover(pid: int) -> Leftover | None:
    """Who has started this process; None for one that does not say, has ended, or is a caretaker."""
    try:
        member = _variable(Path(f"/proc/{pid}/environ").read_bytes())
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return None
    if not member or linux.is_caretaker(pid):
        return None
    command = words.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
    return Leftover(pid, member, command[:_COMMAND_CHARS])


def _variable(environment: bytes) -> str:
    name = f"{MEMBER}=".encode()
    values = [each[len(name) :] for each in environment.split(b"\0") if each.startswith(name)]
    return values[0].decode(errors="replace") if values else ""


def _below(pid: int) -> list[int]:
    """The processes below this one, without caretakers, which end by themselves."""
    found = [pid]
    for each in found:  # the list grows while it is walked
        with contextlib.suppress(OSError):
            found += [child for child in linux.children(each) if not linux.is_caretaker(child)]
    return found[1:]
