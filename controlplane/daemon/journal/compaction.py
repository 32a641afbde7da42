"""Shorten records for the journal and recordings: what many records carry is written whole only once.

A generation grows with its ranks, and every Launch and Form carries it: written whole in each, they would
grow with the square of the ranks. So would a job's environment with its launches. So the first record that
carries a generation or a spec has it whole, as every StoreJob and JobSubmitted has. A later record that
carries the same one has `"again": true` in its place: with all of the generation but `seats` and `sources`,
or with the spec's `job` only."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import TYPE_CHECKING, Any

from controlplane.core.records.events import JobSubmitted
from controlplane.core.records.model import Generation, JobSpec
from controlplane.core.records.stores import StoreJob
from controlplane.daemon.journal import older
from controlplane.wire.records import plain
from controlplane.wire.shape import shapes_of

if TYPE_CHECKING:
    from collections.abc import Callable

ALWAYS_WHOLE = (StoreJob, older.Store, JobSubmitted)
KEPT = 4
"""Values remembered for each job. One is not enough: a generation is written first without and then with the
address where its ranks meet, and members that are launched late carry an older generation."""


class Shortener:
    """Knows what has been written whole, and what to write instead. `shown` removes secrets from a record."""

    def __init__(self, shown: Callable[[Any], Any]) -> None:
        self._shown = shown
        self._known: dict[tuple[type, str], list[tuple[Any, Any, dict[str, Any]]]] = {}

    def plain(self, record: Any) -> dict[str, Any]:
        """Return the record as JSON values, shortened."""
        short: dict[str, dict[str, Any]] = {}
        kind: Any = type(record)
        for name in _heavy(kind):
            value = getattr(record, name)
            shortened = self._again(value) if value is not None else None
            if shortened is not None and not isinstance(record, ALWAYS_WHOLE):
                short[name] = shortened
        if short:
            record = dataclasses.replace(record, **dict.fromkeys(short))
        body: dict[str, Any] = plain(self._shown(record))
        return body | short

    def _again(self, value: JobSpec | Generation) -> dict[str, Any] | None:
        """Return what to write instead of a value that was written whole; None when it was not:
        from now on it is."""
        known = self._known.setdefault((type(value), value.job), [])
        for original, _, shortened in known:
            if original is value:
                return shortened
        shown = self._shown(value)
        for _, before, shortened in known:
            if before == shown:
                return shortened
        known.append((value, shown, _SHORT[type(value)](shown)))
        del known[:-KEPT]
        return None


def _generation(value: Generation) -> dict[str, Any]:
    resume = dataclasses.replace(value.resume, sources=())
    body: dict[str, Any] = plain(dataclasses.replace(value, seats=(), resume=resume))
    del body["seats"], body["resume"]["sources"]
    return body | {"again": True}


def _spec(value: JobSpec) -> dict[str, Any]:
    return {"job": value.job, "again": True}


_SHORT: dict[type, Callable[[Any], dict[str, Any]]] = {Generation: _generation, JobSpec: _spec}


@cache
def _heavy(record: Any) -> tuple[str, ...]:
    """Return the fields that carry one generation or one spec."""
    return tuple(shape.name for shape in shapes_of(record) if shape.kind in _SHORT and not shape.many)
