"""What can go wrong with checkpoints. Every message names the thing and, where there is one, the mend."""

from __future__ import annotations

import errno


class CheckpointError(RuntimeError):
    """The root of what this package raises about storage and checkpoints."""


class StorageError(CheckpointError):
    """A storage that cannot be used, or did not do what it was asked."""


class CheckpointCorrupt(CheckpointError):
    """What was read is not what was written. Names the checkpoint, the chunk and what is wrong."""

    def __init__(self, checkpoint: str, part: str, problem: str) -> None:
        super().__init__(f"checkpoint {checkpoint}: {part}: {problem}")
        self.checkpoint, self.part, self.problem = checkpoint, part, problem


class CheckpointRefused(CheckpointError):
    """A whole checkpoint that is not for us: of another job, or written in a schema that is not ours."""


class NameRefused(CheckpointError):
    """A name that must not become a path."""


_MENDS = {
    errno.ENOSPC: "it is full: free space, or name another with --storage",
    errno.EDQUOT: "the quota is used up: raise it, or name another with --storage",
    errno.EFBIG: "files of this size are not allowed: raise the limit (ulimit -f)",
    errno.EROFS: "it is read-only: mount it writable, or name another with --storage",
    errno.EACCES: "permission denied: let this user write there, or name another with --storage",
    errno.EPERM: "not permitted: let this user write there, or name another with --storage",
    errno.ENOTDIR: "a part of this path is a file, not a folder: name another with --storage",
    errno.ENOENT: "its folder is gone, or cannot be made: name another with --storage",
    errno.EEXIST: "a file stands where a folder is needed: name another with --storage",
    errno.EIO: "the device failed to read or write: look at the kernel's log",
}


def storage_error(url: str, doing: str, error: Exception) -> StorageError:
    """A StorageError that says where, at what, why, and what to do about it."""
    number = getattr(error, "errno", None)
    cause = getattr(error, "strerror", None) or str(error) or type(error).__name__
    mend = _MENDS.get(number) if isinstance(number, int) else None
    return StorageError(f"storage {url}: {doing}: {cause}" + (f"; {mend}" if mend else ""))
