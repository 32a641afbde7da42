"""Use a folder as storage: content is on the disk before it is visible, and is never visible in part.

Staged content (chunks, which are verified at every read) is visible at once and on the disk at the next
`flush`: many small waits for the disk become one."""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast import removal
from holdfast.checkpoint.format import names
from holdfast.checkpoint.format.names import StoredFile
from holdfast.checkpoint.storage import direct, pacing, syncing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from holdfast.checkpoint.format.names import Bytes

_DRAFTS = "holdfast-drafts"
_STAGED_MAX = 128
DRAFT_AGE_S = 3600.0
"""A draft older than this is that of a killed writer: a living one needs seconds."""


class LocalBackend:
    """Files under one folder. A write makes a draft, syncs it and links it to its name.

    `flush` syncs the folders, which makes the names durable."""

    limits: tuple[str, ...] = ()
    bundle_bytes = 0

    def __init__(self, root: Path, *, pace: pacing.UploadPace = pacing.uploads) -> None:
        self.root = root
        self._pace = pace
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        self._unsynced: set[Path] = set()
        self._emptied: set[Path] = set()  # folders of deleted names; they may be gone themselves
        self._staged: list[tuple[int, Path]] = []  # open files whose content may not be on the disk yet
        self._made: set[Path] = set()
        self._swept = False

    def put(self, name: str, data: Bytes) -> bool:
        """Create `name` with this content; False if it exists.

        Durable after the next `flush`, also if another process has created the name just now."""
        draft, target = self._draft(data), self._target(name)
        try:
            os.link(draft, target)
            return True
        except FileExistsError:
            return False
        finally:
            removal.draft(draft)
            self._changed(target.parent)

    def stage(self, name: str, data: Bytes) -> bool:
        """Like `put`, but the content is durable only after the next `flush` too."""
        draft, descriptor = self._written(data)
        target = self._target(name)
        try:
            os.link(draft, target)
        except FileExistsError:
            os.close(descriptor)
            return False
        except OSError:
            os.close(descriptor)
            raise
        finally:
            removal.draft(draft)
        self._stage(descriptor, target)
        return True

    def settle(self, name: str) -> None:
        """Make what another process put durable at the next `flush`: it may have died before its own."""
        target = self.root / name
        self._stage(direct.open_regular(target), target)

    def replace(self, name: str, data: Bytes) -> None:
        """Give `name` this content at once, whatever it had. Durable after the next `flush`."""
        target = self._target(name)
        os.replace(self._draft(data), target)
        self._changed(target.parent)

    def flush(self) -> None:
        """Make the names of all that was put durable, also of what another thread is flushing now."""
        with self._flushing:
            with self._lock:
                staged, self._staged = self._staged, []
                folders, self._unsynced = sorted(self._unsynced), set()
                emptied, self._emptied = sorted(self._emptied.difference(folders)), set()
            try:
                syncing.sync(staged, folders, emptied)
            except OSError:  # a folder that is gone fails this flush only
                self._changed(*(folder for folder in folders if folder.is_dir()))
                raise

    def foresee(self, name: str) -> None:
        """Bring the file's inode into memory."""
        with suppress(OSError):  # its reader will get the error
            os.stat(self.root / name, follow_symlinks=False)

    def read(self, name: str, limit: int, start: int) -> bytes:
        """The content from byte `start` on, at most `limit` bytes of it."""
        descriptor = direct.open_regular(self.root / name)
        try:
            os.lseek(descriptor, start, os.SEEK_SET)
            parts, left = [], limit
            while left > 0 and (part := os.read(descriptor, min(left, 1 << 24))):
                parts.append(part)
                left -= len(part)
            return b"".join(parts)
        finally:
            os.close(descriptor)

    def read_into(self, name: str, target: memoryview, start: int) -> int:
        """Read straight into `target`, from byte `start` on. Returns the bytes that the file has from there
        on, which may be more or fewer."""
        if start:
            content = self.read(name, len(target) + 1, start)
            fits = min(len(content), len(target))
            target[:fits] = content[:fits]
            return len(content)
        descriptor = direct.open_regular(self.root / name, len(target))
        try:
            done = direct.read_all(descriptor, target)
            return done if done < len(target) else os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)

    def size(self, name: str) -> int | None:
        """Its size in bytes; None if there is no such file."""
        try:
            status = os.stat(self.root / name, follow_symlinks=False)
        except FileNotFoundError:
            return None
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def folders(self, folder: str) -> Sequence[str]:
        """Names of the folders in a folder, without links; [] if there is no such folder."""
        try:
            with os.scandir(self.root / folder) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        except FileNotFoundError:
            return []

    def walk(self, folder: str) -> Sequence[StoredFile]:
        """All files below a folder, without links, sorted; [] if there is no such folder."""
        top, found = self.root / folder, []
        for path, _, files in os.walk(top, onerror=_unless_gone):
            for file in files:
                with suppress(FileNotFoundError):  # deleted meanwhile
                    place = os.path.join(path, file)
                    status = os.stat(place, follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode):
                        name = os.path.relpath(place, top)
                        found.append(StoredFile(name, status.st_size, status.st_mtime))
        return sorted(found)

    def list(self, folder: str) -> list[str]:
        """Names of the files in a folder, without the folder; [] if there is no such folder."""
        try:
            with os.scandir(self.root / folder) as entries:
                return sorted(entry.name for entry in entries if entry.is_file(follow_symlinks=False))
        except FileNotFoundError:
            return []

    def delete(self, name: str) -> None:
        """Remove it, if it exists; durable after the next `flush`."""
        if removal.named(self.root, name, names.is_ours):
            with self._lock:
                self._emptied.add((self.root / name).parent)

    def prune(self, folder: str) -> None:
        """Remove empty folders below this base's folder, and the folder itself if it is empty then."""
        removal.empty_folders(self.root, folder, names.is_base)

    def sweep(self, older_than_s: float) -> int:
        """Remove drafts of killed writers. Returns how many."""
        return removal.old_drafts(self.root / _DRAFTS, time.time() - older_than_s)

    def close(self) -> None:
        """Do nothing: files are held open only until the next `flush`."""

    def _draft(self, data: Bytes) -> Path:
        draft, descriptor = self._written(data)
        try:
            os.fsync(descriptor)
        except OSError:
            removal.draft(draft)
            raise
        finally:
            os.close(descriptor)
        return draft

    def _written(self, data: Bytes) -> tuple[Path, int]:
        """A draft with this content, which may not be on the disk yet, and its descriptor."""
        self._sweep_once()
        draft, view = self._target(f"{_DRAFTS}/{removal.draft_name()}"), memoryview(data).cast("B")
        if draft.parent.is_symlink():
            raise NotADirectoryError(errno.ENOTDIR, "the folder for drafts is a link", str(draft.parent))
        descriptor = direct.open_bulk(draft, os.O_WRONLY | os.O_CREAT, len(view))
        try:
            direct.write_all(descriptor, view, self._pace)
        except OSError:
            os.close(descriptor)
            removal.draft(draft)
            raise
        return draft, descriptor

    def _stage(self, descriptor: int, target: Path) -> None:
        with self._lock:
            self._staged.append((descriptor, target))
            self._unsynced.add(target.parent)
            full = len(self._staged) >= _STAGED_MAX
        if full:
            with self._flushing:
                with self._lock:
                    staged, self._staged = self._staged, []
                syncing.sync(staged)

    def _sweep_once(self) -> None:
        with self._lock:
            first, self._swept = not self._swept, True
        if first:
            self.sweep(DRAFT_AGE_S)

    def _target(self, name: str) -> Path:
        target = self.root / name
        with self._lock:
            self._make(target.parent)
        return target

    def _make(self, folder: Path) -> None:
        """Make the folder and those above it, up to the root.

        A folder met for the first time may come from a process that died before its name was durable, so its
        parent is synced like that of our own."""
        if folder in self._made and folder.is_dir():
            return
        if folder == self.root:
            folder.mkdir(parents=True, exist_ok=True)
        else:
            self._make(folder.parent)
            folder.mkdir(exist_ok=True)
        self._made.add(folder)
        self._unsynced.add(folder.parent)

    def _changed(self, *folders: Path) -> None:
        with self._lock:
            self._unsynced.update(folders)


def _unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
