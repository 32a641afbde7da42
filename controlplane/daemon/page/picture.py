"""Hold what the page shows, as rows in tables, and number every change of it. Pure.

A viewer begins with the whole state and applies patches from there. A viewer that was away names the last
number that it had, and gets the patches since then, or the whole state if they are not kept any more."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from controlplane.access.roles import visible_reasons

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

Row = dict[str, Any]
Tables = "dict[str, dict[str, Row | None]]"

PATCHES_MAX = 600
"""Patches kept for viewers that are behind."""
PATCH_BYTES_MAX = 8 << 20
"""Bytes of all patches kept together."""


@dataclass(frozen=True, slots=True)
class Patch:
    """Rows that changed together; None: the row is gone."""

    number: int
    tables: dict[str, dict[str, Row | None]]
    text: bytes  # the tables as JSON


class Picture:
    """The tables of one picture. `epoch` tells pictures apart: a number of another picture
    means nothing here."""

    def __init__(self, epoch: str, names: Iterable[str]) -> None:
        self.epoch, self.number = epoch, 0
        self.tables: dict[str, dict[str, Row]] = {name: {} for name in names}
        self._pending: dict[str, dict[str, Row | None]] = {}
        self._patches: deque[Patch] = deque()
        self._bytes = 0
        self._states: dict[tuple[str, ...], tuple[int, bytes]] = {}

    @property
    def moment(self) -> str:
        """The name of this moment of this picture."""
        return f"{self.epoch}-{self.number}"

    def put(self, table: str, key: str, row: Row) -> None:
        """Set a row."""
        rows = self.tables[table]
        if rows.get(key) != row:
            rows[key] = row
            self._pending.setdefault(table, {})[key] = row

    def drop(self, table: str, key: str) -> None:
        """Remove a row."""
        if self.tables[table].pop(key, None) is not None:
            self._pending.setdefault(table, {})[key] = None

    def close_patch(self) -> bool:
        """Make a patch of what has changed since the last one. Return whether anything has."""
        if not self._pending:
            return False
        self.number += 1
        patch = Patch(self.number, self._pending, encoded(self._pending))
        self._pending = {}
        self._patches.append(patch)
        self._bytes += len(patch.text)
        while len(self._patches) > PATCHES_MAX or (self._bytes > PATCH_BYTES_MAX and len(self._patches) > 1):
            self._bytes -= len(self._patches.popleft().text)
        return True

    def since(self, moment: str) -> list[Patch] | None:
        """Return the patches after this moment; None when they are not all kept: the viewer needs
        the whole state."""
        epoch, _, digits = moment.rpartition("-")
        number = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 16 else -1
        oldest = self._patches[0].number if self._patches else self.number + 1
        if epoch != self.epoch or not oldest - 1 <= number <= self.number:
            return None
        return list(islice(self._patches, number - oldest + 1, None))

    def state(self, jobs: tuple[str, ...] = ()) -> bytes:
        """Return everything as JSON, limited to these jobs; (): all jobs.

        Rows that are not in a patch yet are included, and come again with the next patch."""
        number, text = self._states.get(jobs, (-1, b""))
        if number != self.number or self._pending:
            text = encoded({"id": self.moment, "tables": only(self.tables, jobs)})
            if len(self._states) > 64:
                self._states.clear()
            self._states[jobs] = (self.number, text)
        return text


def encoded(value: Any) -> bytes:
    """Return a value as JSON on one line."""
    return json.dumps(value, separators=(",", ":")).encode()


def patched(patch: Patch, jobs: tuple[str, ...]) -> bytes:
    """Return a patch as JSON, limited to these jobs; b"" when nothing of it concerns them."""
    if not jobs:
        return patch.text
    kept = {name: rows for name, rows in only(patch.tables, jobs).items() if rows}
    return encoded(kept) if kept else b""


def only(tables: Mapping[str, Mapping[str, Row | None]], jobs: tuple[str, ...]) -> dict[str, Any]:
    """Return the tables, limited to these jobs and to the cluster as a whole; (): everything."""
    if not jobs:
        return dict(tables)
    return {name: _KEEP[name](rows, jobs) for name, rows in tables.items()}


def _cluster(rows: Mapping[str, Row | None], jobs: tuple[str, ...]) -> dict[str, Row | None]:
    """Return the cluster's one row, without the reasons that concern other jobs."""
    return {key: row and row | _reasons(row, jobs) for key, row in rows.items()}


def _reasons(row: Row, jobs: tuple[str, ...]) -> Row:
    reasons, of = visible_reasons(jobs, row["reasons"], row["reasons_of"])
    actions, _ = visible_reasons(jobs, row["actions"], row["reasons_of"])
    return {"reasons": reasons, "reasons_of": of, "actions": actions}


def _keyed(rows: Mapping[str, Row | None], jobs: tuple[str, ...]) -> dict[str, Row | None]:
    """Return the rows of these jobs, of a table whose keys are JOB or JOB/MORE."""
    return {key: row for key, row in rows.items() if key.partition("/")[0] in jobs}


def _nodes(rows: Mapping[str, Row | None], jobs: tuple[str, ...]) -> dict[str, Row | None]:
    """Return every node, with the ranks of these jobs only."""
    return {
        key: row and {**row, "ranks": {job: found for job, found in row["ranks"].items() if job in jobs}}
        for key, row in rows.items()
    }


_KEEP: dict[str, Callable[[Mapping[str, Row | None], tuple[str, ...]], dict[str, Row | None]]] = {
    "cluster": _cluster,
    "nodes": _nodes,
    "jobs": _keyed,
    "incidents": _keyed,
    "checkpoints": _keyed,
    "failed_saves": _keyed,
}
TABLES = tuple(_KEEP)
