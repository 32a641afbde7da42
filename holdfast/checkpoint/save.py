"""Save a checkpoint: make its chunks durable, then its manifest; publish that after the commit.

Each writer persists its part. When all parts are there, one writer finalizes the checkpoint: it reads the
parts back, checks that every shard is covered and every chunk is there, and writes
`pending/<id>.<digest>.json`. That is the manifest's whole content, durable, named by the digest that the
commit record in etcd holds. So any process that has the record can publish, also after a crash, and a
checkpoint is committed exactly when etcd has its record.

If a save is killed at any moment, it leaves chunks that nothing names, parts, or a complete pending manifest;
none of them is a checkpoint."""

from __future__ import annotations

from dataclasses import asdict, astuple, dataclass
from functools import partial
from typing import TYPE_CHECKING

from holdfast.checkpoint import bases
from holdfast.checkpoint.errors import CheckpointCorrupt, CheckpointError, CheckpointRefused, StorageError
from holdfast.checkpoint.format import codec as codecs
from holdfast.checkpoint.format import cutting, names
from holdfast.checkpoint.format import parts as parting
from holdfast.checkpoint.format.manifest import MANIFEST_BYTES_MAX, decode_manifest, encode_manifest
from holdfast.checkpoint.format.parts import ManifestPart
from holdfast.checkpoint.format.records import CheckpointPart
from holdfast.checkpoint.reading import corrupt
from holdfast.checkpoint.writing import ChunkTarget, Writing
from holdfast.ipc import layout

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence

    from holdfast.checkpoint.format.chunks import Ref
    from holdfast.checkpoint.format.cutting import Cut
    from holdfast.checkpoint.format.manifest_records import Manifest
    from holdfast.checkpoint.storage.store import Store
    from holdfast.ipc.arena import SlotView
    from holdfast.ipc.layout import Tensor

_LOOK_AT_EACH = 16
"""Up to so many chunks are looked up one by one; more are found by one listing of the base."""


@dataclass(frozen=True, slots=True)
class PersistResult:
    """A finalized save. `manifest`: its content. `digest` belongs into the commit record."""

    manifest: bytes
    digest: str
    bytes_total: int  # bytes of all tensors
    bytes_written: int  # bytes of chunks and manifest that were new
    shards: tuple[str, ...] = ()  # ids of the shards it holds, sorted


@dataclass(frozen=True, slots=True)
class _Order:
    """What is to be saved, and as which checkpoint."""

    job: str
    id: str
    step: int
    generation: int
    kind: str
    base: str


def persist_part(
    slot: SlotView,
    *,
    store: Store,
    job: str,
    checkpoint: str,
    step: int,
    generation: int,
    kind: str,
    base: str,
    versions: Sequence[tuple[int, int]],
    rank: int = 0,
    shard: str = layout.WHOLE_STATE,
    share: int = 0,
    shares: int = 1,
    member: str = "",
    codec: str = names.PLAIN,
    stop: threading.Event | None = None,
) -> CheckpointPart:
    """Make share `share` of `shares` of a pinned slot durable for `checkpoint`.

    Blocks: call it in a worker thread. Setting `stop` ends it at the next chunk, with a CheckpointError; if
    it is repeated, it continues there.

    Raises StorageError if the storage fails, CheckpointError if the slot is not what it should be."""
    order = _Order(job, checkpoint, step, generation, kind, base)
    _check_order(order, versions)
    _check_slot(slot, order, shard)
    _check_words(order, codec, share, shares)
    tensors, state = _content(slot)
    index = bases.index(store, job, base, checkpoint)
    target = ChunkTarget(job, base, checkpoint, shard, codec)
    writing = Writing(store, target, index, tensors, slot.memory)
    writing.stop, writing.passed = stop or writing.stop, partial(slot.arena.unmap, slot.index)
    cuts = cutting.plan(tensors, shares)[share]
    found = writing.run(cuts)
    if not slot.current():
        raise CheckpointError(f"checkpoint {checkpoint}: its snapshot was overwritten while it was read")
    part = ManifestPart(
        **asdict(order),
        shard=shard,
        share=share,
        shares=shares,
        rank=rank,
        data_bytes=slot.data_bytes,
        tensors=tensors,
        placed=placed(tensors, cuts, found),
        state=state if share == 0 else None,
    )
    digest = keep(store, part)
    writing.remember()
    return part_record(part, member, digest, sum(cut.nbytes for cut in cuts), writing.written)


def part_record(part: ManifestPart, member: str, digest: str, nbytes: int, written: int) -> CheckpointPart:
    """The record of a durable part that is sent to the coordinator."""
    return CheckpointPart(
        job=part.job,
        checkpoint=part.id,
        shard=part.shard,
        share=part.share,
        shares=part.shares,
        rank=part.rank,
        member=member,
        step=part.step,
        generation=part.generation,
        digest=digest,
        bytes_total=nbytes,
        bytes_written=written,
    )


def keep(store: Store, part: ManifestPart) -> str:
    """Make the chunks durable, then the part that names them. Returns its digest."""
    content, digest = parting.encode_part(part)
    store.flush()
    store.put(names.part(part.job, part.id, digest), content)
    store.flush()
    return digest


def finalize(
    store: Store,
    *,
    job: str,
    checkpoint: str,
    step: int,
    generation: int,
    kind: str,
    base: str,
    versions: Sequence[tuple[int, int]],
    parts: Sequence[CheckpointPart],
) -> PersistResult:
    """Make the manifest of a checkpoint from its parts, and make its content durable.

    Every part is read back and must belong to this checkpoint. Every shard must be there once and completely,
    and every chunk with its size.

    Raises CheckpointRefused if the parts do not make a checkpoint, CheckpointCorrupt if one of them or a
    chunk is not what was written, StorageError if the storage fails."""
    order = _Order(job, checkpoint, step, generation, kind, base)
    _check_order(order, versions)
    read = [_part(store, job, checkpoint, reported) for reported in parts]
    manifest = parting.merge(read, tuple(versions))
    _check_whole(manifest, order)
    _check_there(store, manifest)
    content, digest = encode_manifest(manifest)
    written = sum(part.bytes_written for part in parts)
    store.flush()
    if store.put(names.pending(job, checkpoint, digest), content):
        written += len(content)
    store.flush()
    shards = tuple(shard.shard for shard in manifest.shards)
    return PersistResult(content, digest, manifest.bytes_total, written, shards)


def publish(store: Store, job: str, checkpoint: str, digest: str) -> None:
    """Make a committed checkpoint's manifest visible under its id, and delete its parts and pending content.

    Never overwrites a manifest. Idempotent. Raises CheckpointCorrupt if another manifest has that id or the
    pending content is damaged; StorageError if neither is there."""
    waiting, final = names.pending(job, checkpoint, digest), names.manifest(job, checkpoint)
    try:
        content = store.read(waiting, MANIFEST_BYTES_MAX)
    except FileNotFoundError:
        _already_published(store, job, checkpoint, digest)
        return
    decode_manifest(content, job, checkpoint, digest)
    if not store.put(final, content):
        _already_published(store, job, checkpoint, digest)
    store.flush()
    for file in store.list(names.parts(job)):
        if file.startswith(f"{checkpoint}."):
            store.delete(f"{names.parts(job)}/{file}")
    store.delete(waiting)


def _already_published(store: Store, job: str, checkpoint: str, digest: str) -> None:
    final = names.manifest(job, checkpoint)
    try:
        content = store.read(final, MANIFEST_BYTES_MAX)
    except FileNotFoundError as error:
        raise StorageError(
            f"storage {store.url}: checkpoint {checkpoint} of job {job} cannot be published: neither its "
            f"manifest nor its pending content with digest {digest} is there"
        ) from error
    decode_manifest(content, job, checkpoint, digest)


def _check_order(order: _Order, versions: Sequence[tuple[int, int]]) -> None:
    if names.checkpoint_id(order.step, order.generation) != order.id:
        raise CheckpointError(
            f"checkpoint {order.id}: not the id of step {order.step} in generation {order.generation}"
        )
    names.split_id(order.base)
    opens_base = order.id == order.base
    if {"full": opens_base, "incremental": not opens_base}.get(order.kind) is not True:
        raise CheckpointError(
            f"checkpoint {order.id}: kind {order.kind!r} does not fit base {order.base}: a full one is "
            "its own base, an incremental one has the base of another"
        )
    for rank, at in versions:
        if at != order.step:
            raise CheckpointRefused(
                f"checkpoint {order.id}: rank {rank} is at step {at}, not at {order.step}"
            )


def _check_words(order: _Order, codec: str, share: int, shares: int) -> None:
    if codec not in codecs.SETTINGS:
        raise CheckpointError(f"codec {codec!r} is unknown; known: {', '.join(codecs.SETTINGS)}")
    if not 0 <= share < shares:
        raise CheckpointError(f"checkpoint {order.id}: share {share} of {shares} does not exist")


def _check_slot(slot: SlotView, order: _Order, shard: str) -> None:
    if (slot.step, slot.generation) != (order.step, order.generation):
        raise CheckpointError(
            f"checkpoint {order.id}: the slot holds step {slot.step} of generation {slot.generation}"
        )
    try:
        held = layout.shard(slot.header)
    except layout.SlotLayoutError as error:
        raise CheckpointError(f"snapshot {slot.step} cannot be saved: {error}") from error
    if held != shard:
        raise CheckpointError(f"checkpoint {order.id}: the slot holds shard {held}, not {shard}")


def _content(slot: SlotView) -> tuple[tuple[Tensor, ...], object]:
    try:
        return layout.decode(slot.header, slot.data_bytes)
    except layout.SlotLayoutError as error:
        raise CheckpointError(f"snapshot {slot.step} cannot be saved: {error}") from error


def placed(
    tensors: tuple[Tensor, ...], cuts: Sequence[Cut], found: Sequence[tuple[Ref, ...]]
) -> tuple[tuple[tuple[int, Ref], ...], ...]:
    """For each tensor the bytes that these cuts hold: where they start in it, and where they are stored."""
    places: list[list[tuple[int, Ref]]] = [[] for _ in tensors]
    for cut, refs in zip(cuts, found, strict=True):
        if len(cut.spans) == 1:
            start = cut.spans[0].start
            for ref in refs:
                places[cut.spans[0].tensor].append((start, ref))
                start += ref.nbytes
            continue
        (ref,) = refs
        at = ref.at
        for span in cut.spans:
            places[span.tensor].append((span.start, ref._replace(at=at, nbytes=span.nbytes)))
            at += span.nbytes
    return tuple(tuple(pieces) for pieces in places)


def _part(store: Store, job: str, checkpoint: str, reported: CheckpointPart) -> ManifestPart:
    try:
        content = store.read(names.part(job, checkpoint, reported.digest), MANIFEST_BYTES_MAX)
    except FileNotFoundError as error:
        if store.size(names.manifest(job, checkpoint)) is not None:
            raise CheckpointRefused(
                f"checkpoint {checkpoint}: another save of it is already published and has deleted this "
                "save's parts"
            ) from error
        raise CheckpointCorrupt(checkpoint, f"part {reported.digest}", "is missing") from error
    part = parting.decode_part(content, job, checkpoint, reported.digest)
    if (part.shard, part.share, part.shares) != (reported.shard, reported.share, reported.shares):
        raise CheckpointRefused(
            f"checkpoint {checkpoint}: part {reported.digest} is {part}, not share {reported.share} "
            f"of {reported.shares} of shard {reported.shard}"
        )
    return part


def _check_whole(manifest: Manifest, order: _Order) -> None:
    made = (manifest.job, manifest.id, manifest.step, manifest.generation, manifest.kind, manifest.base)
    if made != astuple(order):
        raise CheckpointRefused(f"checkpoint {order.id}: its parts belong to {made}, not to {order}")
    known = {rank for rank, _ in manifest.versions}
    strangers = {rank for shard in manifest.shards for rank in shard.ranks} - known
    if strangers:
        raise CheckpointRefused(
            f"checkpoint {order.id}: it has parts of ranks {sorted(strangers)}, which are not in its list "
            "of versions"
        )


def _check_there(store: Store, manifest: Manifest) -> None:
    files = {manifest.file(chunk) for chunk in manifest.chunks}
    if len(files) <= _LOOK_AT_EACH:
        sizes = {file: store.size(file) for file in files}
    else:
        sizes = dict(bases.listed(store, manifest.job, manifest.base))
    for chunk in manifest.chunks:
        size = sizes.get(manifest.file(chunk))
        if not bases.fits(chunk, size):
            few = "which are too few" if chunk.bundle else f"not {chunk.stored}"
            found = "is missing" if size is None else f"its file has {size} bytes, {few}"
            raise corrupt(manifest.id, chunk, found)
