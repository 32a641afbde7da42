"""Hold a training at the start of chosen steps, until whoever rehearses failures lets it go on.

Steps of a small script take milliseconds, so what is to happen in a certain step would come too late. The
steps are named in a variable of the environment; a file for each says that training may go on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

VARIABLE = "HOLDFAST_REHEARSAL"
OF_FAILURES = "of_failures"
"""What a tracked object's state has under this key tells of failures, and differs where there were other
ones. A rehearsal does not compare it."""


@dataclass(frozen=True, slots=True)
class Holds:
    """The numbers of steps, and the folder of the files."""

    folder: Path
    steps: tuple[int, ...]

    @classmethod
    def read(cls, text: str) -> Holds | None:
        """Parse the variable: `FOLDER:10,20`; "": nothing is held. Raises ValueError."""
        folder, _, steps = text.rpartition(":")
        return cls(Path(folder), tuple(map(int, steps.split(",")))) if text else None

    def __str__(self) -> str:
        """The variable's value."""
        return f"{self.folder}:{','.join(map(str, self.steps))}"

    def holding(self, completed: int) -> bool:
        """Whether a step may not begin yet, after so many complete ones. A step at which gradients cross the
        boundary is not held, so an earlier one counts as well."""
        return bool(self.held(completed))

    def held(self, completed: int) -> list[int]:
        """The steps at which training is held after so many complete ones."""
        return [step for step in self.steps if step <= completed and not self._file(step).exists()]

    def release(self, step: int) -> None:
        """Let training go on behind this step."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._file(step).touch()

    def _file(self, step: int) -> Path:
        return self.folder / str(step)
