"""Keep what a process knows of a job's present base, and rebuild that after a restart.

In memory it keeps the fingerprint of each place (`chunks.Place`: where a chunk's bytes come from), and the
chunks known to be durable. A new process takes the durable chunks from the newest published manifest of the
base. A chunk that has not changed is then found by its blake3 instead of its fingerprint, and is not written
again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.checkpoint.errors import CheckpointCorrupt, CheckpointRefused, NameRefused
from holdfast.checkpoint.format import names
from holdfast.checkpoint.format.chunks import BaseIndex, Chunk
from holdfast.checkpoint.format.manifest import MANIFEST_BYTES_MAX, decode_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.checkpoint.storage.store import Store


def index(store: Store, job: str, base: str) -> BaseIndex:
    """What is known of this base of a job, checked against what the storage has now."""
    known = store.indexes.get(job)
    if known is None:
        known = store.indexes[job] = BaseIndex(base, _published(store, job, base))
    elif known.base != base:
        durable = _published(store, job, base)
        known = store.indexes[job] = BaseIndex(base, durable, dense=known.dense, meter=known.meter)
    if known.durable:
        there = listed(store, job, base)
        known.durable = {
            digest: chunk
            for digest, chunk in known.durable.items()
            if there.get((digest, chunk.codec)) == chunk.stored
        }
    return known


def listed(store: Store, job: str, base: str) -> dict[tuple[str, str], int]:
    """The chunks in a base: bytes on storage by (digest, codec)."""
    found = {}
    for entry in store.walk(names.chunks(job, base)):
        chunk = names.split_chunk(entry.name)
        if chunk is not None:
            found[chunk] = entry.size
    return found


def _published(store: Store, job: str, base: str) -> dict[str, Chunk]:
    """The chunks of a base's newest valid manifest."""
    for checkpoint in _newest_first(store, job, base):
        try:
            content = store.read(names.manifest(job, checkpoint), MANIFEST_BYTES_MAX)
            manifest = decode_manifest(content, job, checkpoint)
        except (FileNotFoundError, CheckpointCorrupt, CheckpointRefused):
            continue  # no help here; a reader that lists or loads it reports what is wrong
        if manifest.base == base:
            return {chunk.blake3: chunk for chunk in manifest.chunks}
    return {}


def _newest_first(store: Store, job: str, base: str) -> Iterator[str]:
    """The published ids that may be of this base: none is older than the base itself."""
    found = []
    for file in store.list(names.manifests(job)):
        try:
            found.append(names.split_id(file.removesuffix(".json")))
        except NameRefused:
            continue
    opened = names.split_id(base)
    for step, generation in sorted(found, reverse=True):
        if step >= opened[0]:
            yield names.checkpoint_id(step, generation)
