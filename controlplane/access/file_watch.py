"""Read a file again when it changes.

A changed file that is invalid is logged and otherwise ignored: its last valid content stays in force."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from controlplane.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
log = logging.getLogger(__name__)


def signature(path: str | Path) -> tuple[int, int, int] | None:
    """Return what differs when a file has changed (time, size, inode); None when there is no file."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


class ReloadedFile(Generic[T]):
    """What `read` makes of the file at `path`. `what` names the content in the log. `version` starts at 1 and
    grows with each change that is taken."""

    def __init__(self, path: str, read: Callable[[Path], T], what: str) -> None:
        """Read the file. Raises what `read` raises: SettingsError when the file is invalid."""
        self._path, self._read, self._what = Path(path), read, what
        self._seen = signature(path)
        self.value, self.version = read(self._path), 1

    def refresh(self) -> T:
        """Return the content, after reading the file again if it has changed."""
        seen = signature(self._path)
        if seen == self._seen:
            return self.value
        self._seen = seen
        try:
            self.value = self._read(self._path)
            self.version += 1
            log.info("loaded the changed %s of %s", self._what, self._path)
        except SettingsError as error:
            log.error("the changed %s cannot be used, the previous ones stay in use: %s", self._what, error)
        return self.value
