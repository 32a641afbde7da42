"""Read tables that others wrote, column by column, and check every value against its bounds.

Every error names the file, the row, the column and what to do.

Rows are counted from 1, without the header."""

from __future__ import annotations

import csv
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from controlplane.cli.errors import UsageError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    Array = np.ndarray[Any, np.dtype[Any]]

ROWS_MAX = 5_000_000
"""A file with more rows is refused: a row takes 88 bytes, and replays hold several copies."""
FILE_BYTES_MAX = 1 << 30
CHUNK = 65_536
"""How many rows of a CSV file are held as text at a time."""
PARQUET = b"PAR1"
"""What a Parquet file begins with."""


@dataclass(frozen=True, slots=True)
class Column:
    """What the values of a column may be. `names`: names in place of numbers, any name when empty."""

    low: float = 0.0
    high: float = float(1 << 31)
    whole: bool = True
    names: tuple[str, ...] | None = None

    def read(self, values: Array, where: str, first: int) -> Array:
        """Numbers, or indices into `names`, or the texts.

        `where`: file and column; `first`: the row of the first value. Raises UsageError."""
        if self.names is not None:
            return self._indices(values, where, first) if self.names else values.astype(str)
        numbers = self._numbers(values, where, first)
        wrong = ~np.isfinite(numbers) | (numbers < self.low) | (numbers > self.high)
        wrong |= (numbers != np.floor(numbers)) if self.whole else False
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            raise UsageError(f"{where}, row {first + at}: {values[at]} is not allowed: {self.fitting}")
        return numbers.astype(np.int64) if self.whole else numbers

    @property
    def fitting(self) -> str:
        """The end of an error: which values are possible."""
        kind = "a whole number" if self.whole else "a finite number"
        return f"give {kind} from {self.low:.15g} to {self.high:.15g}"

    def _numbers(self, values: Array, where: str, first: int) -> Array:
        if values.dtype.kind in "iuf":
            return values.astype(np.float64)
        for at, value in enumerate(values if values.dtype.kind != "b" else values[:1]):
            try:
                if isinstance(value, bool | np.bool_):
                    raise ValueError
                float(value)
            except (TypeError, ValueError) as error:
                text = repr(str(value)[:60])
                raise UsageError(f"{where}, row {first + at}: {text} is no number: {self.fitting}") from error
        return values.astype(np.float64)

    def _indices(self, values: Array, where: str, first: int) -> Array:
        index = {word: at for at, word in enumerate(self.names or ())}
        found = np.array([index.get(str(value), -1) for value in values], dtype=np.int64)
        if (found < 0).any():
            at = int(np.flatnonzero(found < 0)[0])
            word = str(values[at])[:60]
            near = nearest(word, index) or ";"
            raise UsageError(
                f"{where}, row {first + at}: {word!r} is unknown{near} known: {', '.join(index)}"
            )
        return found


def check_file(path: Path) -> bytes:
    """The first bytes of a file, which is checked to be readable and not too large. Raises UsageError."""
    try:
        if path.is_dir():
            raise UsageError(f"{path} is a folder: give the file in it")
        size_bytes = path.stat().st_size
        if not path.is_file():
            raise UsageError(f"{path} is no regular file: give a file")
        with path.open("rb") as file:
            head = file.read(len(PARQUET))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    if not head:
        raise UsageError(f"{path} is empty: give a file with a header and rows")
    if size_bytes > FILE_BYTES_MAX:
        raise UsageError(f"{path} has {size_bytes} bytes, {FILE_BYTES_MAX} at most: give a part of it")
    return head


def csv_columns(path: Path, wanted: Mapping[str, Column]) -> dict[str, Array]:
    """The wanted columns of a CSV file with a header; other columns are ignored. Raises UsageError."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.reader(file)
            header = [name.strip() for name in next(rows, [])]
            check_header(path, header, wanted)
            return _joined(path, _chunks(path, header, (row for row in rows if row), wanted))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path} is no CSV in UTF-8: {error}") from error


def check_header(path: Path, header: Sequence[str], wanted: Iterable[str]) -> None:
    """Raise UsageError when a column is missing, or there twice."""
    for name in wanted:
        if header.count(name) != 1:
            how = "is missing" if name not in header else "is there twice"
            needed = ", ".join(wanted)
            raise UsageError(f"{path}: of the columns {needed}, {name} {how}{nearest(name, header)}")


def _chunks(
    path: Path, header: Sequence[str], rows: Iterator[list[str]], wanted: Mapping[str, Column]
) -> Iterator[dict[str, Array]]:
    first = 1
    while chunk := list(itertools.islice(rows, CHUNK)):
        for at, row in enumerate(chunk):
            if len(row) != len(header):
                raise UsageError(
                    f"{path}, row {first + at}: {len(row)} values for {len(header)} columns: the row is cut "
                    "off, or has a comma too many"
                )
        check_rows(path, first + len(chunk) - 1)
        columns = dict(zip(header, zip(*chunk, strict=True), strict=True))
        yield {
            name: column.read(np.array(columns[name], dtype=object), f"{path}, column {name}", first)
            for name, column in wanted.items()
        }
        first += len(chunk)


def check_rows(path: Path, count: int) -> None:
    """Raise UsageError when a file has more than ROWS_MAX rows."""
    if count > ROWS_MAX:
        raise UsageError(f"{path} has more than {ROWS_MAX} rows: give fewer steps, or fewer workers")


def _joined(path: Path, chunks: Iterable[dict[str, Array]]) -> dict[str, Array]:
    found = list(chunks)
    if not found:
        raise UsageError(f"{path} has a header and no row: record something first")
    return {name: np.concatenate([each[name] for each in found]) for name in found[0]}
