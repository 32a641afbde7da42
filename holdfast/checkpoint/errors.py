"""Define the errors of checkpoints. Every message names the thing and, if there is one, the fix."""

from __future__ import annotations


class CheckpointError(RuntimeError):
    """The root of what this package raises about storage and checkpoints."""


class StorageError(CheckpointError):
    """A storage cannot be used, or failed. `url`: which; `doing`: the operation; `fix`: what to do, "" if not
    known.

    All three are in the message too."""

    def __init__(self, message: str, *, url: str = "", doing: str = "", fix: str = "") -> None:
        super().__init__(message)
        self.url, self.doing, self.fix = url, doing, fix


class NotAFile(CheckpointError):
    """Something else is where a file should be: a FIFO, a device, a socket, a folder or a link."""

    def __init__(self, path: str, kind: str) -> None:
        super().__init__(f"{path} is {kind}, not a file: move it away")
        self.path, self.kind = path, kind

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.path, self.kind)


class CheckpointCorrupt(CheckpointError):
    """What was read is not what was written. Names the checkpoint, the chunk and what is wrong."""

    def __init__(self, checkpoint: str, part: str, problem: str) -> None:
        super().__init__(f"checkpoint {checkpoint}: {part}: {problem}")
        self.checkpoint, self.part, self.problem = checkpoint, part, problem

    def __reduce__(self) -> tuple[type, tuple[str, str, str]]:
        return type(self), (self.checkpoint, self.part, self.problem)  # it is sent between ranks


class CheckpointRefused(CheckpointError):
    """A valid checkpoint that cannot be used here: of another job, or of a schema that is not read."""


class NameRefused(CheckpointError):
    """A name that must not become a path."""
