"""`holdfast checkpoint diff`: compare two checkpoints by their manifests; no chunk is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controlplane.cli.checkpoint.place import add_place, find, one_job, opened
from controlplane.cli.errors import OK
from controlplane.cli.flags.parser import CommandSpec, Parser
from controlplane.cli.questions.outputs import data
from controlplane.cli.questions.tables import plain
from controlplane.reporting.quantities import size
from holdfast.checkpoint import load

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from holdfast.checkpoint.format.manifest_records import Manifest
    from holdfast.ipc.layout import Tensor

_Bytes = list[tuple[str, int, int, int]]  # chunk, offset in it, offset in the tensor, length
_Known = tuple["Tensor", _Bytes]


def _flags(parser: Parser) -> None:
    add_place(parser)
    parser.add_argument("before", metavar="BEFORE", help="the first: <step>-<generation>, or a step")
    parser.add_argument("after", metavar="AFTER", help="the second: <step>-<generation>, or a step")


def diff(values: argparse.Namespace) -> int:
    """Print which tensors were added, removed, reshaped or changed from the first to the second."""
    with opened(values) as store:
        job = one_job(store, values.job)
        both = [
            load.read_manifest(store, job, find(store, job, word).id)
            for word in (values.before, values.after)
        ]
    rows = list(compare(*both))
    if text := data(values.output, {"before": both[0].id, "after": both[1].id, "tensors": rows}):
        print(text)
    elif not rows:
        print(f"{both[0].id} and {both[1].id} hold the same tensors, byte for byte")
    else:
        table = [[r["name"], r["shard"], r["what"], size(r["bytes_changed"]), size(r["bytes"])] for r in rows]
        print(plain(["TENSOR", "SHARD", "WHAT", "CHANGED", "OF"], table))
    return OK


def compare(before: Manifest, after: Manifest) -> Iterator[dict[str, Any]]:
    """Each tensor that is not the same in both.

    Chunks are named by their content, so equal names mean equal bytes. `bytes_changed` counts whole pieces of
    chunks: it is an upper bound of the bytes that differ."""
    old, new = _tensors(before), _tensors(after)
    for key in [*old, *(key for key in new if key not in old)]:
        if key not in new:
            yield _row(key, "removed", old[key][0].nbytes, old[key][0].nbytes)
        elif key not in old:
            yield _row(key, "added", new[key][0].nbytes, new[key][0].nbytes)
        else:
            yield from _differing(key, old[key], new[key])


def _differing(key: tuple[str, str], old: _Known, new: _Known) -> Iterator[dict[str, Any]]:
    tensor = new[0]
    if (old[0].dtype, old[0].shape) != (tensor.dtype, tensor.shape):
        yield _row(key, "reshaped", tensor.nbytes, tensor.nbytes)
        return
    known = set(old[1])
    changed = sum(part[3] for part in new[1] if part not in known)
    if changed:
        yield _row(key, "changed", changed, tensor.nbytes)


def _tensors(manifest: Manifest) -> dict[tuple[str, str], _Known]:
    """By shard and name: the tensor, and the ranges of chunks that it is made of."""
    found = {}
    for shard in manifest.shards:
        for tensor, pieces in zip(shard.tensors, shard.pieces, strict=True):
            parts, at = [], 0
            for piece in pieces:
                parts.append((manifest.chunks[piece.chunk].blake3, piece.at, at, piece.nbytes))
                at += piece.nbytes
            found[shard.shard, tensor.name] = (tensor, parts)
    return found


def _row(key: tuple[str, str], what: str, changed: int, nbytes: int) -> dict[str, Any]:
    return {"shard": key[0], "name": key[1], "what": what, "bytes_changed": changed, "bytes": nbytes}


COMMANDS = {
    "diff": CommandSpec(
        "Compare two checkpoints of a job: which tensors were added, removed, reshaped or changed.",
        diff,
        _flags,
    )
}
