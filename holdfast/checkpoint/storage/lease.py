"""Hold a lease on the storage, so that only one process at a time collects a job's garbage.

The holder's file is created put-if-absent and says who holds it. A holder whose file is older than LEASE_S,
by the storage's own clock, has died, and the next process takes the lease over. So it does at once if the
holder was a process of this machine that no longer exists. The holder renews its lease before each batch of
deletions, and stops if another process has taken it over."""

from __future__ import annotations

import json
import os
import socket
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from holdfast import pids
from holdfast.checkpoint.errors import CheckpointError
from holdfast.checkpoint.format import names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.checkpoint.storage.store import Store

LEASE_S = 600.0
"""Seconds after which a lease that was not renewed is over."""
_FILE = "collector.json"
_BYTES_MAX = 4096
_HEAD = b'{"host":'
"""How a lease begins. If its writer was killed, it may hold less."""


class LeaseHeldError(CheckpointError):
    """Another process holds the lease. The message names it."""


class CollectorLease:
    """A lease, held from `take` until `release`.

    `now_s`: when it was taken, by the storage's clock; None: not known."""

    def __init__(self, store: Store, job: str) -> None:
        self._store, self._job = store, job
        self._mark = uuid.uuid4().hex
        pid = os.getpid()
        who: dict[str, Any] = {"host": socket.gethostname(), "pid": pid, "mark": self._mark}
        who |= {"machine": pids.space(), "born": pids.born(pid)}
        self._content = json.dumps(who, separators=(",", ":")).encode()
        self.now_s: float | None = None

    @property
    def _name(self) -> str:
        return f"{names.leases(self._job)}/{_FILE}"

    def take(self) -> None:
        """Take the lease. Raises LeaseHeldError if another living process has it."""
        if not self._store.put(self._name, self._content):
            self._take_over()
        self.check()
        ages = self._ages()
        self.now_s = ages.get(_FILE)
        # Stamps that killed processes have left. If a living one is comparing ages just now, it loses its
        # stamp, and is refused as it would be anyway.
        for stamp in ages.keys() - {_FILE}:
            if names.is_ours(f"{names.leases(self._job)}/{stamp}"):
                self._store.delete(f"{names.leases(self._job)}/{stamp}")

    def check(self) -> None:
        """Raise LeaseHeldError if it has been taken over."""
        holder = self._holder()
        if holder != self._content:
            raise LeaseHeldError(
                f"storage {self._store.url}: garbage of job {self._job} is being collected by "
                f"{holder.decode(errors='replace') or 'nobody (the lease was removed)'}"
            )

    def renew(self) -> None:
        """Hold it for another LEASE_S."""
        self.check()
        self._store.replace(self._name, self._content)

    def release(self) -> None:
        """Give the lease up."""
        if self._holder() == self._content:
            self._store.delete(self._name)

    def _take_over(self) -> None:
        stamp = f"{names.leases(self._job)}/{self._mark}"
        self._store.put(stamp, b"now")
        try:
            ages = self._ages()
        finally:
            self._store.delete(stamp)
        taken, now = ages.get(_FILE), ages.get(self._mark)
        young = taken is not None and (now is None or now - taken < LEASE_S)
        holder = self._holder()
        if young and not _has_died(holder):
            self.check()
        if holder[: len(_HEAD)] != _HEAD[: len(holder)]:
            raise LeaseHeldError(
                f"storage {self._store.url}: {self._name} is not a lease of Holdfast "
                "and is not deleted: move it away"
            )
        self._store.delete(self._name)
        self._store.put(self._name, self._content)

    def _ages(self) -> dict[str, float | None]:
        return {entry.name: entry.modified_s for entry in self._store.walk(names.leases(self._job))}

    def _holder(self) -> bytes:
        try:
            return self._store.read(self._name, _BYTES_MAX)
        except FileNotFoundError:
            return b""


def _has_died(holder: bytes) -> bool:
    """Whether the lease's holder is known to have ended: a process of this machine and this pid namespace."""
    try:
        who = json.loads(holder)
        machine, pid, started = who["machine"], int(who["pid"]), who["born"]
    except (ValueError, KeyError, TypeError):
        return False
    return bool(machine and started) and machine == pids.space() and pids.born(pid) != started


@contextmanager
def held(store: Store, job: str) -> Iterator[CollectorLease]:
    """A lease for the duration of a with block. Raises LeaseHeldError."""
    lease = CollectorLease(store, job)
    lease.take()
    try:
        yield lease
    finally:
        lease.release()
