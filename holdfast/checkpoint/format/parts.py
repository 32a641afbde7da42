"""Write and parse parts: what one writer has made durable of a checkpoint.

All parts together make the manifest. A part is at `parts/<id>.<digest>.json`, framed like a manifest. It
holds the whole layout of its shard and, for each tensor, the pieces that this writer wrote: [start in the
tensor, chunk, byte of the chunk, bytes]."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from holdfast.checkpoint.errors import CheckpointRefused
from holdfast.checkpoint.format import envelope, names
from holdfast.checkpoint.format.chunks import Chunk, Ref
from holdfast.checkpoint.format.manifest import (
    ChunkTable,
    check_id,
    check_piece,
    chunk_body,
    count,
    parse_chunks,
    schema_of,
)
from holdfast.checkpoint.format.manifest_records import Manifest, ManifestShard, Piece
from holdfast.ipc import layout
from holdfast.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.ipc.layout import Tensor

KIND = "part"
_Placed = tuple[int, Ref]  # start in the tensor, and where the bytes are


@dataclass(frozen=True, slots=True)
class ManifestPart:
    """One share of one shard of a checkpoint. Only share 0 has `state`.

    `rank`: whose snapshot was read. The other fields are those of Manifest and ManifestShard."""

    job: str
    id: str
    step: int
    generation: int
    kind: str
    base: str
    shard: str
    share: int
    shares: int
    rank: int
    data_bytes: int
    tensors: tuple[Tensor, ...]
    placed: tuple[tuple[_Placed, ...], ...]  # of each tensor: the pieces that this writer wrote
    state: Any

    def __str__(self) -> str:
        return f"share {self.share} of {self.shares} of shard {self.shard}"


def encode_part(part: ManifestPart) -> tuple[bytes, str]:
    """The part's file and its digest."""
    table = ChunkTable()
    tensors = [
        {
            **layout.entry(tensor),
            "pieces": [[start, table.number(ref.chunk), ref.at, ref.nbytes] for start, ref in placed],
        }
        for tensor, placed in zip(part.tensors, part.placed, strict=True)
    ]
    body = {
        "schema": schema_of(table.chunks),
        "job": part.job,
        "id": part.id,
        "step": part.step,
        "generation": part.generation,
        "kind": part.kind,
        "base": part.base,
        "holdfast": __version__,
        "shard": part.shard,
        "share": part.share,
        "shares": part.shares,
        "rank": part.rank,
        "data_bytes": part.data_bytes,
        "chunks": [chunk_body(chunk) for chunk in table.chunks],
        "tensors": tensors,
        "state": part.state,
    }
    return envelope.encode(KIND, body)


def decode_part(content: bytes, job: str, checkpoint: str, digest: str) -> ManifestPart:
    """The part in a file's bytes. Raises as `envelope.parsed` does."""
    return envelope.parsed(KIND, content, job, checkpoint, parse=_parse, digest=digest)[0]


def _parse(fields: dict[str, Any]) -> ManifestPart:
    step, generation = count(fields["step"]), count(fields["generation"])
    check_id(fields["id"], step, generation)
    names.split_id(fields["base"])
    chunks, data_bytes = parse_chunks(fields["chunks"]), count(fields["data_bytes"])
    return ManifestPart(
        job=fields["job"],
        id=fields["id"],
        step=step,
        generation=generation,
        kind=str(fields["kind"]),
        base=fields["base"],
        shard=layout.check_shard(fields["shard"]),
        share=count(fields["share"]),
        shares=count(fields["shares"]),
        rank=count(fields["rank"]),
        data_bytes=data_bytes,
        tensors=layout.check(fields["tensors"], data_bytes),
        placed=tuple(tuple(_placed(piece, chunks) for piece in t["pieces"]) for t in fields["tensors"]),
        state=fields["state"],
    )


def _placed(entry: list[Any], chunks: Sequence[Chunk]) -> _Placed:
    start, number, at, nbytes = (count(value) for value in entry)
    check_piece(chunks, number, at, nbytes)
    return start, Ref(chunks[number], at, nbytes)


def merge(parts: Iterable[ManifestPart], versions: tuple[tuple[int, int], ...]) -> Manifest:
    """The manifest that the parts of one checkpoint make together.

    Raises CheckpointRefused, naming what is missing, doubled or does not fit, unless every shard is there
    once and completely."""
    ordered = sorted(parts, key=lambda part: (part.shard, part.share))
    if not ordered:
        raise CheckpointRefused("the checkpoint has no parts")
    first, table = ordered[0], ChunkTable()
    for part in ordered:
        _check_same(first, part)
    shards = tuple(_shard(list(group), table) for _, group in groupby(ordered, key=lambda part: part.shard))
    return Manifest(
        job=first.job,
        id=first.id,
        step=first.step,
        generation=first.generation,
        kind=first.kind,
        base=first.base,
        versions=versions,
        holdfast=__version__,
        chunks=table.chunks,
        shards=shards,
    )


def _check_same(first: ManifestPart, part: ManifestPart) -> None:
    for field in ("job", "id", "step", "generation", "kind", "base"):
        one, other = getattr(first, field), getattr(part, field)
        if one != other:
            raise _refused(part, f"has {field} {other}, but {first} has {one}")


def _shard(parts: list[ManifestPart], table: ChunkTable) -> ManifestShard:
    first = parts[0]
    for number, part in enumerate(parts):
        if part.shares != first.shares:
            raise _refused(part, f"has another number of shares than {first}")
        if part.share < number:
            raise _refused(part, "appears twice")
        if part.share > number:
            raise _refused(first, f"lacks share {number}")
        if (part.tensors, part.data_bytes) != (first.tensors, first.data_bytes):
            raise _refused(part, f"has another layout than share 0: {_difference(first, part)}")
    if len(parts) != first.shares:
        raise _refused(first, f"lacks share {len(parts)}")
    pieces = tuple(_pieces(index, parts, table) for index in range(len(first.tensors)))
    ranks = tuple(sorted({part.rank for part in parts}))
    return ManifestShard(first.shard, ranks, first.data_bytes, first.tensors, pieces, first.state)


def _pieces(index: int, parts: list[ManifestPart], table: ChunkTable) -> tuple[Piece, ...]:
    tensor, end = parts[0].tensors[index], 0
    placed = sorted((piece for part in parts for piece in part.placed[index]), key=lambda piece: piece[0])
    for start, ref in placed:
        if start != end:
            wrong = "no rank saved" if start > end else "were saved twice: the"
            raise _refused(
                parts[0], f"{wrong} bytes {min(start, end)} to {max(start, end)} of {tensor.name!r:.80}"
            )
        end += ref.nbytes
    if end != tensor.nbytes:
        raise _refused(parts[0], f"no rank saved bytes {end} to {tensor.nbytes} of {tensor.name!r:.80}")
    return tuple(table.pieces(ref for _, ref in placed))


def _difference(one: ManifestPart, other: ManifestPart) -> str:
    for left, right in zip(one.tensors, other.tensors, strict=False):
        if left != right:
            return f"{left} is not {right}"
    return f"{len(one.tensors)} tensors in {one.data_bytes} bytes, {len(other.tensors)} in {other.data_bytes}"


def _refused(part: ManifestPart, problem: str) -> CheckpointRefused:
    return CheckpointRefused(f"checkpoint {part.id}: {part}: {problem}")
