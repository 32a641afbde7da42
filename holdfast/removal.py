"""Remove files and folders, each only with proof that Holdfast made it.

No other module deletes. The proofs, by the function that accepts them:

- `file`, `tree`, `clear`: it lies in a claimed folder, one that has our mark. `claim` marks a folder that is
  empty, or that holds only what versions before the marks have left.
- `draft`, `old_drafts`: it has a name made by `draft_name`, which nobody can guess.
- `opened`, `made`: it is the very file that our descriptor holds open, or that we made.
- `dead_socket`: it is a socket at which nobody listens.
- `written`: it holds what we wrote, byte for byte.
- `begun`: it is a file that begins as only ours do.
- `named`, `stored`, `empty_folders`: it is on a storage, where names say what they hold
  (`checkpoint.format.names`), and has one of our names.

What cannot be proven ours stays, and the error names it. Links are never followed. Standard library only: the
launcher imports it."""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
import stat
import uuid
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MARK = ".holdfast"
"""The file that marks a folder: Holdfast put everything in it."""
_TEXT = b"This folder is Holdfast's: it removes again what it has put here.\n"
_DEPTH_MAX = 4
"""How many folders above a file the mark may be."""
_DRAFT = re.compile(r"(?s).*holdfast-[0-9a-f]{32}\.draft")
_OUT_OF_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class NotOursError(OSError):
    """Something is not proven to be ours and stays. The message names it."""


def claim(folder: Path, known: re.Pattern[str] | None = None) -> None:
    """Mark a folder as ours.

    It must be marked already, or hold nothing but drafts and names that match `known` (what versions before
    the marks have left). Raises NotOursError that names what is in the way."""
    if claimed(folder):
        return
    if folder.is_symlink() or not folder.is_dir():
        raise NotOursError(f"{folder} is not a folder (a link?)")
    names = [entry.name for entry in os.scandir(folder)]
    foreign = sorted(name for name in names if not _expected(name, known))
    if foreign and not claimed(folder):  # another process may have claimed and filled it just now
        more = f" and {len(foreign) - 3} more" if len(foreign) > 3 else ""
        raise NotOursError(f"{folder} holds files that Holdfast did not make: {', '.join(foreign[:3])}{more}")
    fresh = folder / draft_name()
    fresh.write_bytes(_TEXT)
    try:
        os.link(fresh, folder / MARK)
    except FileExistsError:
        if not claimed(folder):
            raise NotOursError(f"{folder / MARK} was not made by Holdfast") from None
    finally:
        draft(fresh)


def _expected(name: str, known: re.Pattern[str] | None) -> bool:
    return bool(_DRAFT.fullmatch(name) or (known is not None and known.fullmatch(name)))


def claimed(folder: Path) -> bool:
    """Whether this is a folder, not a link, with our mark. Raises OSError when no file can be opened."""
    try:
        held = os.open(folder, _FOLDER)
    except OSError as error:
        return _no_mark(error)
    try:
        mark = os.open(MARK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=held)
    except OSError as error:
        return _no_mark(error)
    finally:
        os.close(held)
    try:
        status = os.fstat(mark)
        ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
        return ours and os.read(mark, len(_TEXT) + 1) == _TEXT
    finally:
        os.close(mark)


def _no_mark(error: OSError) -> bool:
    """Return that there is no mark, unless this error leaves it open."""
    if error.errno in _OUT_OF_FILES:
        raise error
    return False


def file(path: Path) -> None:
    """Remove a file, socket or link in a claimed folder, if it exists. Raises NotOursError, and OSError when
    it cannot be removed."""
    if not os.path.lexists(path):
        return
    _check_claimed(path)
    with suppress(FileNotFoundError):
        os.unlink(path)


def begun(path: Path, beginning: bytes) -> None:
    """Remove a file that begins with these bytes, as only our files do.

    Raises NotOursError for any other file, and OSError when it cannot be read or removed."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or os.read(descriptor, len(beginning)) != beginning:
            raise NotOursError(f"{path} does not begin like a file of Holdfast; it is not deleted")
    finally:
        os.close(descriptor)
    made(path, status)


def dead_socket(path: Path) -> None:
    """Remove a Unix socket at which nobody listens, if it exists: nothing is lost with it.

    Raises NotOursError if it is not a socket, or if somebody listens."""
    try:
        status = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(status.st_mode):
        raise NotOursError(f"{path} is not a socket and is not deleted: move it away")
    with socket.socket(socket.AF_UNIX) as caller:
        caller.setblocking(False)
        try:
            caller.connect(str(path))
        except FileNotFoundError:
            return
        except ConnectionRefusedError:
            made(path, status)
            return
        except BlockingIOError:
            pass
    raise NotOursError(f"a process listens at {path}: end that process first")


def tree(folder: Path) -> None:
    """Remove a folder with all in it, if it exists. It must be claimed, or lie in a claimed folder, or be
    empty.

    Its mark goes last, so that a half removed folder is still ours. Raises NotOursError, OSError."""
    if not os.path.lexists(folder):
        return
    if folder.is_symlink() or not folder.is_dir():
        raise NotOursError(f"{folder} is not a folder (a link?); it is not deleted")
    if not claimed(folder):
        if not os.listdir(folder):  # empty: nothing is lost
            os.rmdir(folder)
            return
        _check_claimed(folder)
    with suppress(FileNotFoundError):
        for entry in list(os.scandir(folder)):
            if entry.name != MARK:
                _remove_entry(entry)
        with suppress(FileNotFoundError):
            os.unlink(folder / MARK)
        os.rmdir(folder)


def clear(folder: Path, known: re.Pattern[str]) -> list[str]:
    """Remove what matches `known` from a claimed folder, and the folder itself if nothing else is in it.

    Returns the names that stay. Does nothing if there is no folder. Raises NotOursError, OSError."""
    if not os.path.lexists(folder):
        return []
    if not claimed(folder):
        raise NotOursError(f"{folder} does not have Holdfast's mark ({MARK}); it is not deleted")
    stays = []
    for entry in list(os.scandir(folder)):
        if _expected(entry.name, known):
            _remove_entry(entry)
        elif entry.name != MARK:
            stays.append(entry.name)
    if not stays:
        os.unlink(folder / MARK)
        os.rmdir(folder)
    return sorted(stays)


def _remove_entry(entry: os.DirEntry[str]) -> None:
    with suppress(FileNotFoundError):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


def _check_claimed(path: Path) -> None:
    """Raise NotOursError unless a folder above is claimed and none in between is a link."""
    for folder in list(path.absolute().parents)[:_DEPTH_MAX]:
        if claimed(folder):
            return
        if folder.is_symlink():
            break
    raise NotOursError(f"{path} is not in a folder with Holdfast's mark ({MARK}); it is not deleted")


def draft_name(prefix: str = "") -> str:
    """An unguessable name for a file that is being written."""
    return f"{prefix}holdfast-{uuid.uuid4().hex}.draft"


def draft(path: Path) -> None:
    """Remove a draft, if it exists. Raises NotOursError if the name is not that of a draft."""
    if not _DRAFT.fullmatch(path.name):
        raise NotOursError(f"{path} is not a draft of Holdfast; it is not deleted")
    with suppress(FileNotFoundError):
        os.unlink(path)


def old_drafts(folder: Path, written_before_s: float) -> int:
    """Remove drafts in a folder that were last written before this moment (Unix time, s). Returns how many.

    Other names stay, and a folder that is a link is left alone."""
    try:
        held = os.open(folder, _FOLDER)
    except (FileNotFoundError, NotADirectoryError):
        return 0
    except OSError as error:
        if error.errno == errno.ELOOP:
            return 0
        raise
    try:
        return sum(_remove_old(name, held, written_before_s) for name in os.listdir(held))
    finally:
        os.close(held)


def _remove_old(name: str, held: int, written_before_s: float) -> bool:
    if not _DRAFT.fullmatch(name):
        return False
    try:
        status = os.stat(name, dir_fd=held, follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode) or status.st_mtime >= written_before_s:
            return False
        os.unlink(name, dir_fd=held)
    except FileNotFoundError:  # its writer has just renamed or removed it
        return False
    return True


def opened(path: Path, descriptor: int) -> None:
    """Remove the file that a descriptor holds open, if it still has this name."""
    made(path, os.fstat(descriptor))


def made(path: Path, status: os.stat_result) -> None:
    """Remove the very file that had this status when we made it, if it still has this name."""
    with suppress(FileNotFoundError):
        if os.path.samestat(os.stat(path, follow_symlinks=False), status):
            os.unlink(path)


def written(path: Path, content: bytes) -> None:
    """Remove a file if it holds exactly these bytes, which we wrote; any other file stays."""
    try:
        found = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # missing, or not a file that we wrote
        return
    try:
        if stat.S_ISREG(os.fstat(found).st_mode) and os.read(found, len(content) + 1) == content:
            opened(path, found)
    finally:
        os.close(found)


def named(root: Path, name: str, ours: Callable[[str], bool]) -> bool:
    """Remove a file below a storage's root folder, by its name there. Returns whether it existed.

    Raises NotOursError if the name is not `ours`, if it is a folder, or if a link is on the way to it."""
    _check_named(name, ours)
    with suppress(FileNotFoundError), _parent(root, name) as (held, last):
        if stat.S_ISDIR(os.stat(last, dir_fd=held, follow_symlinks=False).st_mode):
            raise NotOursError(f"{root / name} is a folder; it is not deleted")
        os.unlink(last, dir_fd=held)
        return True
    return False


def stored(name: str, ours: Callable[[str], bool], remove: Callable[[str], object]) -> None:
    """Have a driver remove a name on a remote storage: `remove` receives the name of the driver's method to
    call.

    Raises NotOursError for a name that is not `ours`."""
    _check_named(name, ours)
    remove("rm_file")


def empty_folders(root: Path, name: str, ours: Callable[[str], bool]) -> None:
    """Remove empty folders below this folder of a storage, and the folder itself if it is empty then.

    Raises NotOursError for a name that is not `ours`."""
    _check_named(name, ours)
    with suppress(FileNotFoundError), _parent(root, name) as (held, last):
        for _, _, _, inner in os.fwalk(last, topdown=False, dir_fd=held):
            for folder in os.listdir(inner):
                _remove_empty(folder, inner)
        _remove_empty(last, held)


def _remove_empty(name: str, held: int) -> None:
    try:
        os.rmdir(name, dir_fd=held)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.ENOENT, errno.ENOTDIR):
            raise


def _check_named(name: str, ours: Callable[[str], bool]) -> None:
    if not ours(name):
        raise NotOursError(f"{name} is not a name that Holdfast gives; it is not deleted")


@contextmanager
def _parent(root: Path, name: str) -> Iterator[tuple[int, str]]:
    """Open the folder that a name lies in, following no link below the root. Yields its descriptor and the
    last part of the name. Raises NotOursError, FileNotFoundError."""
    *folders, last = name.split("/")
    held = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            held, above = _below(held, folder, root / name), held
            os.close(above)
        yield held, last
    finally:
        os.close(held)


def _below(held: int, folder: str, path: Path) -> int:
    try:
        return os.open(folder, _FOLDER, dir_fd=held)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise NotOursError(f"{path} is reached through a link ({folder}); it is not deleted") from error
        raise
