"""Keep what a process knows of a job's present base, and rebuild that after a restart.

In memory it keeps the fingerprint of each place (`chunks.Place`: where a chunk's bytes come from), and the
chunks known to be durable. A new process takes the durable chunks from the newest published manifest of the
base. A chunk that has not changed is then found by its blake3 instead of its fingerprint, and is not written
again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.checkpoint.errors import CheckpointCorrupt, CheckpointRefused, NameRefused
from holdfast.checkpoint.format import chunks, names, wear
from holdfast.checkpoint.format.chunks import BaseIndex, Chunk
from holdfast.checkpoint.format.manifest import MANIFEST_BYTES_MAX, decode_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.checkpoint.storage.store import Store


def index(store: Store, job: str, base: str, checkpoint: str) -> BaseIndex:
    """What is known of this base of a job, checked against what the storage has now, for a part of this
    checkpoint. Chunks in worn bundles are left out: they are to be written anew."""
    known = store.indexes.get(job)
    if known is None:
        known = store.indexes[job] = BaseIndex(base, _published(store, job, base))
        known.has_named("", known.durable.values())
    elif known.base != base:
        durable = _published(store, job, base)
        known = store.indexes[job] = BaseIndex(base, durable, dense=known.dense, meter=known.meter)
        known.has_named("", durable.values())
    if known.durable:
        there = listed(store, job, base)
        named = {chunk: there.get(chunks.file(job, base, chunk)) for chunk in known.named_before(checkpoint)}
        worn = wear.worn(named, {one.bundle: size for one, size in named.items() if one.bundle and size})
        known.durable = {
            digest: chunk
            for digest, chunk in list(known.durable.items())  # other threads add to it
            if fits(chunk, there.get(chunks.file(job, base, chunk))) and chunk.bundle not in worn
        }
    return known


def listed(store: Store, job: str, base: str) -> dict[str, int]:
    """The files of a base that hold chunks: bytes by name."""
    folder = names.base_folder(job, base)
    found = store.walk(folder)
    return {f"{folder}/{entry.name}": entry.size for entry in found if names.holds_chunks(entry.name)}


def fits(chunk: Chunk, size: int | None) -> bool:
    """Whether a file of this size can hold the chunk; None: there is no such file."""
    if size is None:
        return False
    return chunk.start + chunk.stored <= size if chunk.bundle else chunk.stored == size


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
