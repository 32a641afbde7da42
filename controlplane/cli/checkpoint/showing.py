"""`holdfast checkpoint show`: show one checkpoint, its shards and tensors. Reads the manifest, no chunk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controlplane.cli.checkpoint.place import add_checkpoint, find, one_job, opened
from controlplane.cli.errors import OK
from controlplane.cli.flags.parser import CommandSpec, Parser
from controlplane.cli.questions.outputs import data
from controlplane.cli.questions.tables import plain
from controlplane.reporting.quantities import size
from holdfast.checkpoint import load
from holdfast.checkpoint.format.promised import read

if TYPE_CHECKING:
    import argparse

    from holdfast.checkpoint.format.manifest_records import Manifest, ManifestShard


def _flags(parser: Parser) -> None:
    add_checkpoint(parser)
    parser.add_argument("--tensors", action="store_true", help="list every tensor")


def show(values: argparse.Namespace) -> int:
    """Print the contents of one manifest."""
    with opened(values) as store:
        job = one_job(store, values.job)
        found = find(store, job, values.checkpoint)
        manifest = load.read_manifest(store, job, found.id)
    shown = describe(manifest) | {"suspect": found.suspect}
    print(data(values.output, shown) or _text(shown, values.tensors))
    return OK


def describe(manifest: Manifest) -> dict[str, Any]:
    """A manifest as plain data, without the pieces of its tensors and the scripts' state."""
    codecs: dict[str, int] = {}
    for chunk in manifest.chunks:
        codecs[chunk.codec] = codecs.get(chunk.codec, 0) + 1
    return {
        "job": manifest.job,
        "checkpoint": manifest.id,
        "step": manifest.step,
        "generation": manifest.generation,
        "kind": manifest.kind,
        "base": manifest.base,
        "holdfast": manifest.holdfast,
        "bytes": manifest.bytes_total,
        "stored": manifest.bytes_stored,
        "chunks": len(manifest.chunks),
        "codecs": codecs,
        "versions": [list(version) for version in manifest.versions],
        "shards": [_shard(shard) for shard in manifest.shards],
    }


def _shard(shard: ManifestShard) -> dict[str, Any]:
    return {
        "shard": shard.shard,
        "ranks": list(shard.ranks),
        "data": read(shard.state),
        "bytes": sum(tensor.nbytes for tensor in shard.tensors),
        "tensors": [
            {
                "name": tensor.name,
                "dtype": tensor.dtype,
                "shape": list(tensor.shape),
                "bytes": tensor.nbytes,
                "global_shape": list(tensor.global_shape) if tensor.global_shape is not None else None,
                "global_offset": list(tensor.global_offset) if tensor.global_offset is not None else None,
            }
            for tensor in shard.tensors
        ],
    }


def _text(shown: dict[str, Any], tensors: bool) -> str:
    codecs = ", ".join(f"{count} {name}" for name, count in sorted(shown["codecs"].items()))
    steps = sorted({step for _, step in shown["versions"]})
    kind = f"{shown['kind']}, base {shown['base']}, by Holdfast {shown['holdfast']}"
    lines = [
        f"job         {shown['job']}",
        f"checkpoint  {shown['checkpoint']} ({kind})",
        f"state       {size(shown['bytes'])} of {len(shown['versions'])} ranks, all of step {steps[0]}",
        f"on storage  {size(shown['stored'])} in {shown['chunks']} chunks ({codecs or 'none'})",
    ]
    if shown["suspect"]:
        lines.append(f"suspect     {shown['suspect']}")
    for shard in shown["shards"]:
        ranks = ", ".join(map(str, shard["ranks"][:8])) + (" ..." if len(shard["ranks"]) > 8 else "")
        lines.append(
            f"shard       {shard['shard']}: {len(shard['tensors'])} tensors, {size(shard['bytes'])}, "
            f"from rank {ranks}"
        )
        lines += [_stream(stream) for stream in shard["data"]]
        if tensors:
            rows = [[t["name"], t["dtype"], _place(t), size(t["bytes"])] for t in shard["tensors"]]
            lines += ["", plain(["TENSOR", "DTYPE", "SHAPE", "SIZE"], rows), ""]
    return "\n".join(lines)


def _stream(stream: dict[str, Any]) -> str:
    if "replicas" in stream:
        where = f"global batch {stream['global_batch']}, the places of {stream['replicas']} replicas"
        return f"data        iterable, seed {stream['seed']}: {where} after step {stream['step']}"
    sizes = f"{stream['n']} samples, global batch {stream['global_batch']}"
    return f"data        seed {stream['seed']}: {sizes}, next at position {stream['position']}"


def _place(tensor: dict[str, Any]) -> str:
    shape = "x".join(map(str, tensor["shape"])) or "scalar"
    if tensor["global_shape"] is None:
        return shape
    whole = "x".join(map(str, tensor["global_shape"]))
    return f"{shape} at {tuple(tensor['global_offset'])} of {whole}"


COMMANDS = {
    "show": CommandSpec("Show what one checkpoint holds: step, shards, sizes, tensors.", show, _flags)
}
