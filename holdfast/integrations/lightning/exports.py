"""Know which of Lightning's own checkpoint files belong to steps that run again.

Lightning gives a file another name (`-v1`) if one of its name is there. So before such a step runs again,
rank 0 removes what it had written. It may have died: so every rank notes each file, before it is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Exports:
    """The files that the ranks' trainers have written, with the Holdfast step in which they did."""

    def __init__(self) -> None:
        self.written: list[tuple[int, str]] = []

    def note(self, step: int, path: object) -> None:
        """A file is about to be written in this step."""
        self.written.append((step, str(path)))

    def go_back(self, step: int, known: Iterable[tuple[int, str]]) -> list[str]:
        """The step runs again, or runs for the first time. `known`: what any rank has noted.

        Returns the files that only steps from this one on have written."""
        noted = sorted({(int(at), path) for at, path in known} | set(self.written))
        self.written = [each for each in noted if each[0] < step]
        kept = {path for _, path in self.written}
        return sorted({path for _, path in noted} - kept)
