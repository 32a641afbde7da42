"""Lightning's metrics.csv. It is read when it is opened, so that no line is written twice."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.integrations.runs import STEP, BegunRun, local

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.integrations.runs import Found, Rename


class CsvRun(BegunRun):
    """`begin()` gives the `folder` of the file."""

    name = "CSVLogger"

    def make(self) -> Found:
        """Make the folder. As with Lightning alone, the lines of another job go."""
        made = self._begin()
        folder = local(str(made["folder"]), self.name)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "metrics.csv").write_text("")
        return {**made, "folder": str(folder), "first": 0}

    def open(self, found: Found) -> _Writer:
        """Open the file."""
        return _Writer(Path(str(found["folder"])) / "metrics.csv", self.rename)


class _Writer:
    def __init__(self, path: Path, rename: Rename) -> None:
        self._path, self._rename = path, rename
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = self._rows()
        self._names = sorted({name for row in rows for name in row})
        self._taken = Counter((row["step"], frozenset(row)) for row in rows)
        self._write_anew(rows)  # without the end of a line that a kill cut off

    def write(self, _number: int, values: Mapping[str, float]) -> None:
        """Write a line, if the file does not have it."""
        numbers = dict(values)
        step = int(numbers.pop(STEP))
        row = {**self._rename(numbers), "step": step}
        key = str(step), frozenset(row)
        if self._taken[key]:
            self._taken[key] -= 1
            return
        if new := row.keys() - set(self._names):
            self._names = sorted({*self._names, *new})
            self._write_anew(self._rows())
        with self._path.open("a", newline="") as file:
            csv.DictWriter(file, self._names).writerow(row)

    def note(self, _number: int, _text: str) -> None:
        """A table of numbers has no place for a text."""

    def close(self, *, finished: bool) -> None:
        """It is closed."""

    def _rows(self) -> list[dict[str, str]]:
        """The whole lines, without their empty fields."""
        if not self._path.exists():
            return []
        lines = [line for line in self._path.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return [{name: value for name, value in row.items() if value} for row in csv.DictReader(lines)]

    def _write_anew(self, rows: list[dict[str, str]]) -> None:
        if not self._names:
            return
        partial = self._path.with_suffix(".part")
        with partial.open("w", newline="") as file:
            writer = csv.DictWriter(file, self._names)
            writer.writeheader()
            writer.writerows(rows)
        partial.replace(self._path)
