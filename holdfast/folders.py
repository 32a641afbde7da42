"""Make and check folders that only this user can change, so that no other user can replace their content.

Standard library only: the launcher imports it."""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

RUN_FILES = re.compile(r"(gate|launcher)\.sock|launcher\.(pid|log)|agent\.lock|logs|log-marks|compiled")
"""The files that agent and launcher keep in a node's run folder."""
MEMORY_FILES = re.compile(
    r"copies|[A-Za-z0-9][A-Za-z0-9._-]*\.[0-9]+(\.(arena|board|stacks|json|spec|new|larger))+"
    r"(\.holdfast-[0-9a-f]{32}\.draft)?"
)
"""The files that an agent keeps in its node's folder of shared memory, and in `copies` below it."""


class FolderError(OSError):
    """A folder that cannot be used. The message names it and the reason."""


def make_own(path: Path) -> None:
    """Make a folder of mode 0700, and missing folders above it. Raises FolderError.

    All folders above must belong to root or to this user: the owner of a folder can replace what is in it."""
    ours = (0, os.getuid())
    try:
        for above in reversed(path.absolute().parents):
            above.mkdir(mode=0o700, exist_ok=True)
            owner = above.lstat().st_uid
            if owner not in ours:
                raise FolderError(
                    f"{path} is below {above}, which belongs to user {owner}, not to this user or root"
                )
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise FolderError(f"{path} is not a folder of this user")
        path.chmod(0o700)
    except FolderError:
        raise
    except OSError as error:
        raise FolderError(f"cannot make the folder {path}: {error.strerror}") from error
