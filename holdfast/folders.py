"""Make and check folders that are ours alone, so that nobody else on the machine can put theirs in their
place.

Standard library only: the launcher imports it."""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

RUN_FILES = re.compile(r"(gate|launcher)\.sock|launcher\.(pid|log)|agent\.lock|logs")
"""What agent and launcher have in a node's run folder."""
MEMORY_FILES = re.compile(
    r"copies|[A-Za-z0-9][A-Za-z0-9._-]*\.[0-9]+(\.(arena|board|stacks|json|spec|new|larger))+"
    r"(\.holdfast-[0-9a-f]{32}\.draft)?"
)
"""What an agent has in a node's folder of shared memory, and in its copies."""


class FolderError(OSError):
    """A folder that will not do. The message names it, and why."""


def make_own(path: Path) -> None:
    """Make a folder of mode 0700, and what is missing above it. Raises FolderError. All folders above must be
    root's or ours: the owner of a folder can put another in the place of ours."""
    ours = (0, os.getuid())
    try:
        for above in reversed(path.absolute().parents):
            above.mkdir(mode=0o700, exist_ok=True)
            owner = above.lstat().st_uid
            if owner not in ours:
                raise FolderError(f"{path} lies below {above}, which is of user {owner}, not ours nor root's")
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise FolderError(f"{path} is no folder of this user")
        path.chmod(0o700)
    except FolderError:
        raise
    except OSError as error:
        raise FolderError(f"cannot make the folder {path}: {error.strerror}") from error
