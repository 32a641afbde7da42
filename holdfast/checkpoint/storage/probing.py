"""Probe a storage before a job relies on it: does it do what is needed, and what can it not promise?"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass

from holdfast.checkpoint.errors import StorageError
from holdfast.checkpoint.storage.retrying import Patience
from holdfast.checkpoint.storage.store import Store

PATIENCE = Patience(deadline_s=15.0, attempt_s=10.0, connect_s=3.0, silence_s=5.0, pause_max_s=1.0)
_FOLDER = "probe"


@dataclass(frozen=True, slots=True)
class StorageProbe:
    """The result of a probe. `limits`: what this storage cannot promise, in words; () is best."""

    url: str
    limits: tuple[str, ...]


def probe(url: str, mirror: str = "", *, patience: Patience = PATIENCE) -> StorageProbe:
    """Try everything that Holdfast needs at `url`, and at its mirror.

    Raises StorageError with URL and fix. The result says what they cannot promise."""
    store = Store.open(url, second=mirror, patience=patience)
    try:
        return examine(store)
    finally:
        store.close()


def examine(store: Store) -> StorageProbe:
    """Write, read back, create conditionally, list and delete, there and at its mirror. Raises StorageError.

    Leaves nothing behind, unless the storage fails half way."""
    limits = _tried(store)
    if store.second is not None:
        limits += [f"its mirror {store.second.url}: {limit}" for limit in _tried(store.second)]
    return StorageProbe(store.url, tuple(limits))


def _tried(store: Store) -> list[str]:
    entry = uuid.uuid4().hex
    name, first, second = f"{_FOLDER}/{entry}", os.urandom(4096), os.urandom(4096)
    try:
        if not store.put(name, first):
            raise _broken(store, "reports a random new name as existing")
        store.flush()
        limits = [*store.limits, *_conditional(store, name, first, second), *_listed(store, entry)]
        store.delete(name)
        if store.size(name) is not None:
            limits.append("a deleted file stays visible for a while")
    except FileNotFoundError as error:
        raise _broken(store, "a file that was just written cannot be found") from error
    return limits


def _conditional(store: Store, name: str, first: bytes, second: bytes) -> list[str]:
    if store.read(name, 8192) != first:
        raise _broken(store, "returns other bytes than were written")
    created = store.put(name, second)
    if created or store.read(name, 8192) != first:
        return ["an existing id can be overwritten: never let two clusters write here"]
    return []


def _listed(store: Store, entry: str) -> list[str]:
    if entry in store.list(_FOLDER):
        return []
    return ["a written file is listed only after a while: the newest checkpoint may be missed"]


def _broken(store: Store, problem: str) -> StorageError:
    fix = "name another with --storage"
    return StorageError(f"storage {store.url}: {problem}; {fix}", url=store.url, doing="probe", fix=fix)
