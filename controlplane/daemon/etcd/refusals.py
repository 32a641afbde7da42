"""Log that etcd refuses what is to be written: once for each reason, and once when it is over.

A write is tried again every second, and etcd may be full for hours: a line for each try would push all else
out of the log. It is over when etcd holds each key that it has refused: one value that it never takes is no
reason to tell of it after every other write."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging
    from collections.abc import Iterable

REASONS_MAX = 16
"""A reason may hold what differs each time; after so many none is logged until it is over."""


class Refusals:
    """What etcd has refused and does not hold yet, and what the log was told about that."""

    def __init__(self, log: logging.Logger, what: str) -> None:
        self._log, self._what = log, what
        self._keys: set[str] = set()
        self._told: set[str] = set()
        self._times = 0

    def refused(self, keys: Iterable[str], error: Exception) -> None:
        """etcd has refused to write these keys."""
        self._keys.update(keys)
        self._times += 1
        reason = str(error)
        if reason not in self._told and len(self._told) < REASONS_MAX:
            self._told.add(reason)
            self._log.warning("etcd did not accept %s: %s", self._what, reason)

    def taken(self, keys: Iterable[str]) -> None:
        """etcd has written these keys."""
        self._keys.difference_update(keys)
        if self._times and not self._keys:
            self._log.warning("etcd accepts %s again, after %d refusals", self._what, self._times)
            self._told, self._times = set(), 0
