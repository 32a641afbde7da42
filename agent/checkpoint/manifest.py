"""The manifest: one JSON object that says what a checkpoint is and how to verify every byte of it.

The file is `{"blake3":"<hex>","manifest":<body>}` and a newline, without any other blank. The digest is taken
over the body's bytes as they stand, so no byte of the file can change unnoticed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.checkpoint import layout, names
from agent.checkpoint.chunks import CHUNK_BYTES, name
from agent.checkpoint.errors import CheckpointCorrupt, CheckpointRefused, NameRefused

if TYPE_CHECKING:
    from agent.checkpoint.layout import Tensor

SCHEMA = 1
MANIFEST_BYTES_MAX = 256 << 20
ALGORITHM = "blake3"
CODECS = ("none",)
_HEAD, _MIDDLE, _TAIL = b'{"blake3":"', b'","manifest":', b"}\n"
_HEX = 64
_PART = "manifest"


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk of the checkpoint's base. `nbytes` as it is hashed, `stored` as it lies on storage."""

    blake3: str
    nbytes: int
    stored: int
    codec: str = "none"
    algorithm: str = ALGORITHM


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of a tensor, in order: `nbytes` of chunk number `chunk`, from its byte `at` on."""

    chunk: int
    at: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Shard:
    """What one rank's slot held."""

    rank: int
    data_bytes: int
    tensors: tuple[Tensor, ...]
    pieces: tuple[tuple[Piece, ...], ...]  # of each tensor
    state: Any  # typed JSON (typed.py)

    @property
    def header(self) -> bytes:
        """The slot's header."""
        return layout.encode(self.tensors, self.state)


@dataclass(frozen=True, slots=True)
class Manifest:
    """One checkpoint. `versions`: (rank, step) of every rank whose state it holds, all of one step."""

    job: str
    id: str
    step: int
    generation: int
    kind: str
    base: str
    versions: tuple[tuple[int, int], ...]
    holdfast: str  # version that wrote it
    chunks: tuple[Chunk, ...]
    shards: tuple[Shard, ...]

    @property
    def bytes_total(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.nbytes for shard in self.shards for tensor in shard.tensors)


def seal(manifest: Manifest) -> tuple[bytes, str]:
    """The manifest's file and its digest. The same content always gives the same bytes."""
    body = json.dumps(_body(manifest), separators=(",", ":"), allow_nan=False).encode()
    digest = name(body)
    return _HEAD + digest.encode() + _MIDDLE + body + _TAIL, digest


def unseal(content: bytes, job: str, checkpoint: str, digest: str = "") -> Manifest:
    """The manifest in a file's bytes. `digest`: what the record in etcd says, "" when there is none.

    Raises CheckpointCorrupt when a byte is not as it was written, CheckpointRefused when it is whole but
    not this checkpoint of this job, or of a schema that is not ours."""
    body, found = _open(content, checkpoint)
    if digest and digest != found:
        raise CheckpointCorrupt(checkpoint, _PART, f"has digest {found}, the commit record says {digest}")
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise CheckpointCorrupt(checkpoint, _PART, f"is no JSON: {error}") from error
    if not isinstance(fields, dict):
        raise CheckpointCorrupt(checkpoint, _PART, "is no JSON object")
    _check_schema(fields, checkpoint)
    _check_identity(fields, job, checkpoint)
    try:
        return _parse(fields)
    except (KeyError, TypeError, ValueError, NameRefused) as error:
        raise CheckpointCorrupt(checkpoint, _PART, f"does not describe a checkpoint: {error!r}") from error


def _open(content: bytes, checkpoint: str) -> tuple[bytes, str]:
    start = len(_HEAD) + _HEX + len(_MIDDLE)
    digest, body = content[len(_HEAD) : len(_HEAD) + _HEX], content[start : -len(_TAIL)]
    framed = content.startswith(_HEAD) and content.endswith(_TAIL)
    if not framed or content[len(_HEAD) + _HEX : start] != _MIDDLE:
        raise CheckpointCorrupt(checkpoint, _PART, f"{len(content)} bytes that are no whole manifest")
    found = name(body)
    if digest != found.encode():
        raise CheckpointCorrupt(checkpoint, _PART, f"its bytes have digest {found}, not the one it names")
    return body, found


def _check_schema(fields: dict[str, Any], checkpoint: str) -> None:
    schema = fields.get("schema")
    if schema == SCHEMA:
        return
    writer = fields.get("holdfast", "?")
    mend = "upgrade Holdfast" if isinstance(schema, int) and schema > SCHEMA else "read it with that version"
    raise CheckpointRefused(
        f"checkpoint {checkpoint}: schema {schema!r}, written by Holdfast {writer}; this Holdfast reads "
        f"schema {SCHEMA}: {mend}"
    )


def _check_identity(fields: dict[str, Any], job: str, checkpoint: str) -> None:
    if fields.get("job") != job:
        raise CheckpointRefused(
            f"checkpoint {checkpoint}: belongs to job {fields.get('job')!r}, not to {job!r}"
        )
    if fields.get("id") != checkpoint:
        raise CheckpointRefused(
            f"checkpoint {checkpoint}: its manifest is of checkpoint {fields.get('id')!r}"
        )


def _body(manifest: Manifest) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "job": manifest.job,
        "id": manifest.id,
        "step": manifest.step,
        "generation": manifest.generation,
        "kind": manifest.kind,
        "base": manifest.base,
        "versions": [list(version) for version in manifest.versions],
        "holdfast": manifest.holdfast,
        "chunks": [
            {
                "blake3": chunk.blake3,
                "nbytes": chunk.nbytes,
                "stored": chunk.stored,
                "codec": chunk.codec,
                "algorithm": chunk.algorithm,
            }
            for chunk in manifest.chunks
        ],
        "shards": [_shard_body(shard) for shard in manifest.shards],
    }


def _shard_body(shard: Shard) -> dict[str, Any]:
    return {
        "rank": shard.rank,
        "data_bytes": shard.data_bytes,
        "tensors": [
            {
                "name": tensor.name,
                "dtype": tensor.dtype,
                "shape": tensor.shape,
                "offset": tensor.offset,
                "nbytes": tensor.nbytes,
                "pieces": [[piece.chunk, piece.at, piece.nbytes] for piece in pieces],
            }
            for tensor, pieces in zip(shard.tensors, shard.pieces, strict=True)
        ],
        "state": shard.state,
    }


def _parse(fields: dict[str, Any]) -> Manifest:
    step, generation = _count(fields["step"]), _count(fields["generation"])
    if names.split_id(fields["id"]) != (step, generation):
        raise ValueError(f"id {fields['id']} is not that of step {step}, generation {generation}")
    names.split_id(fields["base"])
    chunks = tuple(_chunk(entry) for entry in fields["chunks"])
    return Manifest(
        job=fields["job"],
        id=fields["id"],
        step=step,
        generation=generation,
        kind=str(fields["kind"]),
        base=fields["base"],
        versions=tuple((_count(rank), _count(at)) for rank, at in fields["versions"]),
        holdfast=str(fields["holdfast"]),
        chunks=chunks,
        shards=tuple(_shard(entry, chunks) for entry in fields["shards"]),
    )


def _chunk(entry: dict[str, Any]) -> Chunk:
    chunk = Chunk(
        entry["blake3"], _count(entry["nbytes"]), _count(entry["stored"]), entry["codec"], entry["algorithm"]
    )
    if not names.is_digest(chunk.blake3):
        raise ValueError(f"{chunk.blake3!r:.80} is no blake3 digest")
    if chunk.algorithm != ALGORITHM or chunk.codec not in CODECS:
        raise ValueError(f"unknown algorithm {chunk.algorithm!r:.40} or codec {chunk.codec!r:.40}")
    if not 0 < chunk.nbytes <= CHUNK_BYTES or chunk.stored != chunk.nbytes:
        raise ValueError(f"chunk {chunk.blake3} cannot have {chunk.nbytes} bytes, {chunk.stored} stored")
    return chunk


def _shard(entry: dict[str, Any], chunks: tuple[Chunk, ...]) -> Shard:
    data_bytes = _count(entry["data_bytes"])
    tensors = layout.check(entry["tensors"], data_bytes)
    pieces = tuple(
        tuple(_piece(piece, chunks) for piece in tensor_entry["pieces"]) for tensor_entry in entry["tensors"]
    )
    for tensor, parts in zip(tensors, pieces, strict=True):
        if sum(part.nbytes for part in parts) != tensor.nbytes:
            raise ValueError(f"the pieces of tensor {tensor.name!r:.80} are not its {tensor.nbytes} bytes")
    return Shard(_count(entry["rank"]), data_bytes, tensors, pieces, entry["state"])


def _piece(entry: list[Any], chunks: tuple[Chunk, ...]) -> Piece:
    number, at, nbytes = (_count(value) for value in entry)
    if number >= len(chunks) or nbytes == 0 or at + nbytes > chunks[number].nbytes:
        raise ValueError(f"piece {entry} lies outside the chunks")
    return Piece(number, at, nbytes)


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise ValueError(f"{value!r:.80} is no count")
    return value
