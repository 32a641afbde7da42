"""Write and parse the manifest: what a checkpoint is, and how to verify its bytes.

It is one JSON object. envelope.py says how the file is framed and why no byte of it can change unnoticed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.checkpoint.format import codec, envelope, names, sense
from holdfast.checkpoint.format.chunks import ALGORITHM, BUNDLE_BYTES_MAX, Chunk, Ref
from holdfast.checkpoint.format.cutting import CHUNK_BYTES
from holdfast.checkpoint.format.envelope import SCHEMA, SCHEMA_BUNDLES
from holdfast.checkpoint.format.manifest_records import Manifest, ManifestShard, Piece
from holdfast.ipc import layout

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


MANIFEST_BYTES_MAX = 256 << 20
KIND = "manifest"


def encode_manifest(manifest: Manifest) -> tuple[bytes, str]:
    """The manifest's file and its digest. The same content always gives the same bytes."""
    return envelope.encode(KIND, _body(manifest))


def decode_manifest(content: bytes, job: str, checkpoint: str, digest: str = "") -> Manifest:
    """The manifest in a file's bytes. `digest`: that in the commit record, "" if not known.

    Raises as `envelope.parsed` does."""
    return envelope.parsed(KIND, content, job, checkpoint, parse=_parse, digest=digest)[0]


def opened(content: bytes, job: str, checkpoint: str) -> tuple[Manifest, str]:
    """The manifest in a file's bytes if no commit record is known, and the digest that one would hold."""
    return envelope.parsed(KIND, content, job, checkpoint, parse=_parse, digest="")


def _body(manifest: Manifest) -> dict[str, Any]:
    return {
        "schema": schema_of(manifest.chunks),
        "job": manifest.job,
        "id": manifest.id,
        "step": manifest.step,
        "generation": manifest.generation,
        "kind": manifest.kind,
        "base": manifest.base,
        "versions": [list(version) for version in manifest.versions],
        "holdfast": manifest.holdfast,
        "chunks": [chunk_body(chunk) for chunk in manifest.chunks],
        "shards": [_shard_body(shard) for shard in manifest.shards],
    }


def schema_of(chunks: Iterable[Chunk]) -> int:
    """The schema of a body with these chunks: the oldest one that can say where they are."""
    return SCHEMA_BUNDLES if any(chunk.bundle for chunk in chunks) else SCHEMA


def chunk_body(chunk: Chunk) -> dict[str, Any]:
    """A chunk as JSON."""
    body = chunk._asdict()
    if not chunk.bundle:
        del body["bundle"], body["start"]
    return body


def _shard_body(shard: ManifestShard) -> dict[str, Any]:
    return {
        "shard": shard.shard,
        "ranks": list(shard.ranks),
        "data_bytes": shard.data_bytes,
        "tensors": [
            {**layout.entry(tensor), "pieces": [[piece.chunk, piece.at, piece.nbytes] for piece in pieces]}
            for tensor, pieces in zip(shard.tensors, shard.pieces, strict=True)
        ],
        "state": shard.state,
    }


def _parse(fields: dict[str, Any]) -> Manifest:
    step, generation = count(fields["step"]), count(fields["generation"])
    check_id(fields["id"], step, generation)
    names.split_id(fields["base"])
    chunks = parse_chunks(fields["chunks"])
    manifest = Manifest(
        job=fields["job"],
        id=fields["id"],
        step=step,
        generation=generation,
        kind=str(fields["kind"]),
        base=fields["base"],
        versions=tuple((count(rank), count(at)) for rank, at in fields["versions"]),
        holdfast=str(fields["holdfast"]),
        chunks=chunks,
        shards=tuple(_shard(entry, chunks) for entry in fields["shards"]),
    )
    sense.check(manifest)
    return manifest


def check_id(checkpoint: Any, step: int, generation: int) -> None:
    """Raise ValueError if the id is not that of this step and generation."""
    if names.split_id(checkpoint) != (step, generation):
        raise ValueError(f"id {checkpoint} is not that of step {step}, generation {generation}")


def parse_chunks(entries: Iterable[dict[str, Any]]) -> tuple[Chunk, ...]:
    """A table of chunks. Raises the errors in envelope.SPOILT."""
    return tuple(_chunk(entry) for entry in entries)


def _chunk(entry: dict[str, Any]) -> Chunk:
    chunk = Chunk(
        entry["blake3"],
        count(entry["nbytes"]),
        count(entry["stored"]),
        entry["codec"],
        entry["algorithm"],
        entry.get("bundle", ""),
        count(entry.get("start", 0)),
    )
    if not names.is_digest(chunk.blake3):
        raise ValueError(f"{chunk.blake3!r:.80} is not a blake3 digest")
    if chunk.bundle != "" and not names.is_digest(chunk.bundle):
        raise ValueError(f"{chunk.bundle!r:.80} is not the digest of a bundle")
    if chunk.start and (not chunk.bundle or chunk.start + chunk.stored > BUNDLE_BYTES_MAX):
        raise ValueError(f"chunk {chunk.blake3} cannot begin at byte {chunk.start} of its file")
    if chunk.algorithm != ALGORITHM:
        raise ValueError(f"unknown algorithm {chunk.algorithm!r:.40}")
    plain = names.item_bytes(chunk.codec) == 0
    most = codec.stored_most(chunk.nbytes, chunk.codec)
    fits = chunk.stored == most if plain else 0 < chunk.stored <= most
    if not 0 < chunk.nbytes <= CHUNK_BYTES or not fits:
        raise ValueError(f"chunk {chunk.blake3} cannot have {chunk.nbytes} bytes, {chunk.stored} stored")
    return chunk


def _shard(entry: dict[str, Any], chunks: Sequence[Chunk]) -> ManifestShard:
    data_bytes = count(entry["data_bytes"])
    tensors = layout.check(entry["tensors"], data_bytes)
    pieces = tuple(
        tuple(_piece(piece, chunks) for piece in tensor_entry["pieces"]) for tensor_entry in entry["tensors"]
    )
    for tensor, parts in zip(tensors, pieces, strict=True):
        if sum(part.nbytes for part in parts) != tensor.nbytes:
            raise ValueError(f"the pieces of tensor {tensor.name!r:.80} are not its {tensor.nbytes} bytes")
    ranks = tuple(count(rank) for rank in entry["ranks"])
    return ManifestShard(
        layout.check_shard(entry["shard"]), ranks, data_bytes, tensors, pieces, entry["state"]
    )


def _piece(entry: list[Any], chunks: Sequence[Chunk]) -> Piece:
    number, at, nbytes = (count(value) for value in entry)
    check_piece(chunks, number, at, nbytes)
    return Piece(number, at, nbytes)


def check_piece(chunks: Sequence[Chunk], number: int, at: int, nbytes: int) -> None:
    """Raise ValueError if these bytes do not lie within a chunk of the table."""
    if number >= len(chunks) or nbytes == 0 or at + nbytes > chunks[number].nbytes:
        raise ValueError(f"piece {[number, at, nbytes]} is outside of the chunks")


def count(value: Any) -> int:
    """The value, if it is an integer of 0 or more. Raises ValueError."""
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise ValueError(f"{value!r:.80} is not a count")
    return value


class ChunkTable:
    """A table of chunks under construction: each chunk once, in the order of first use."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], int] = {}
        self._chunks: list[Chunk] = []

    def number(self, chunk: Chunk) -> int:
        """The chunk's index in the table. Of equal ones that several writers stored, the first counts."""
        found = self._numbers.setdefault((chunk.blake3, chunk.codec), len(self._chunks))
        if found == len(self._chunks):
            self._chunks.append(chunk)
        return found

    def pieces(self, refs: Iterable[Ref]) -> Iterator[Piece]:
        """Pieces for these bytes; neighbours in one chunk are joined."""
        last: Piece | None = None
        for chunk, at, nbytes in refs:
            number = self.number(chunk)
            if last is not None and last.chunk == number and last.at + last.nbytes == at:
                last = Piece(number, last.at, last.nbytes + nbytes)
                continue
            if last is not None:
                yield last
            last = Piece(number, at, nbytes)
        if last is not None:
            yield last

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """All chunks of the table."""
        return tuple(self._chunks)
