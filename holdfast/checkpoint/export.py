"""Export a checkpoint as one safetensors file, with every tensor whole. Needs no torch.

The file: 8 bytes with the header's size (little-endian); the header (JSON: each tensor's dtype, shape and
place); the tensors' bytes. Data that is not a tensor is in the header's `__metadata__`, as typed JSON
(typed.py) under "holdfast.plain". The file appears under its name when it is complete and durable."""

from __future__ import annotations

import json
import math
import mmap
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast import removal
from holdfast.checkpoint import load, whole
from holdfast.checkpoint.errors import CheckpointError
from holdfast.checkpoint.format import typed
from holdfast.checkpoint.reading import read_chunk
from holdfast.checkpoint.storage import syncing
from holdfast.checkpoint.storage.wording import storage_error
from holdfast.ipc.shm import align

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.checkpoint.format.manifest_records import Manifest
    from holdfast.checkpoint.format.names import Bytes
    from holdfast.checkpoint.storage.store import Store
    from holdfast.checkpoint.whole import Box, Global, Whole

WORKERS = 4
HEADER_ALIGN_BYTES = 8
_DTYPES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "uint32": "U32",
    "int32": "I32", "uint64": "U64", "int64": "I64", "float16": "F16", "bfloat16": "BF16", "float32": "F32",
    "float64": "F64", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0",
    "complex64": "C64",
}  # fmt: skip


class _Run(NamedTuple):
    """Bytes of a chunk that are one run of the file: chunk[at : at + nbytes] to file[to : to + nbytes]."""

    at: int
    to: int
    nbytes: int


def safetensors(
    store: Store,
    job: str,
    checkpoint: str,
    target: str | os.PathLike[str],
    *,
    digest: str = "",
    progress: Callable[[int], object] | None = None,
) -> int:
    """Write a checkpoint of a job to a new file. Returns its size in bytes. Every chunk is verified.

    `progress` is called with the bytes of each chunk, in threads.

    Raises CheckpointCorrupt, CheckpointRefused, StorageError; CheckpointError if the file exists, or if
    safetensors has no name for a tensor's dtype. Then no file is left."""
    path = Path(target)
    if path.exists():
        raise CheckpointError(f"{path} exists and is not overwritten: name another file, or remove it")
    manifest = load.read_manifest(store, job, checkpoint, digest)
    content = whole.by_user(manifest)
    header, begins, size = _header(manifest, content)
    draft = path.with_name(removal.draft_name(f".{path.name}."))
    try:
        with _explained(path), open(draft, "xb+") as file:
            os.posix_fallocate(file.fileno(), 0, size)
            with mmap.mmap(file.fileno(), size) as memory:
                memory[: len(header)] = header
                _fill(store, manifest, _runs(manifest, content, begins), memory, progress)
                memory.flush()
            os.fsync(file.fileno())
        with _explained(path):
            os.link(draft, path)
            syncing.sync_folder(path.parent)
    finally:
        removal.draft(draft)
    return size


def _header(manifest: Manifest, content: Whole) -> tuple[bytes, dict[str, int], int]:
    """The file's head, where in the file each tensor begins, and the file's size."""
    fields: dict[str, Any] = {"__metadata__": _about(manifest, content)}
    begins: dict[str, int] = {}
    end = 0
    for name, tensor in sorted(content.tensors.items(), key=lambda entry: (-entry[1].item_bytes, entry[0])):
        if tensor.dtype not in _DTYPES:
            raise CheckpointError(
                f"tensor {name} of type {tensor.dtype} cannot be kept in safetensors: export as a DCP folder"
            )
        begins[name] = end
        end += math.prod(tensor.shape) * tensor.item_bytes
        fields[name] = {
            "dtype": _DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begins[name], end],
        }
    text = json.dumps(fields, separators=(",", ":"), allow_nan=False).encode()
    text = text.ljust(align(len(text), HEADER_ALIGN_BYTES))
    head = len(text).to_bytes(8, "little") + text
    return head, {name: len(head) + begin for name, begin in begins.items()}, len(head) + end


def _about(manifest: Manifest, content: Whole) -> dict[str, str]:
    plain = json.dumps(typed.encode(content.plain), separators=(",", ":"), allow_nan=False)
    return {
        "format": "pt",
        "holdfast": manifest.holdfast,
        "holdfast.job": manifest.job,
        "holdfast.checkpoint": manifest.id,
        "holdfast.plain": plain,
    }


def _runs(manifest: Manifest, content: Whole, begins: dict[str, int]) -> list[list[_Run]]:
    """For each chunk, where its bytes go."""
    runs: list[list[_Run]] = [[] for _ in manifest.chunks]
    for name, tensor in content.tensors.items():
        for box in tensor.boxes.values():
            _cut(runs, box, tensor, begins[name])
    return runs


def _cut(runs: list[list[_Run]], box: Box, tensor: Global, begin: int) -> None:
    """Add a box to the runs. Its bytes are its rows in order; each row has a place in the whole tensor."""
    places = _rows(box, tensor, begin)
    to, left = next(places, (0, 0))
    for piece in box.pieces:
        at, rest = piece.at, piece.nbytes
        while rest:
            nbytes = min(rest, left)
            runs[piece.chunk].append(_Run(at, to, nbytes))
            at, to, rest, left = at + nbytes, to + nbytes, rest - nbytes, left - nbytes
            if not left:
                to, left = next(places, (0, 0))


def _rows(box: Box, tensor: Global, begin: int) -> Iterator[tuple[int, int]]:
    """(place in the file, bytes) of each run of a box that is one run in the whole tensor too."""
    if not box.nbytes:
        return
    item, dims = tensor.item_bytes, len(tensor.shape)
    strides = [math.prod(tensor.shape[dim + 1 :]) * item for dim in range(dims)]
    inner = dims  # from this dimension on, the box is as wide as the tensor
    while inner and box.sizes[inner - 1] == tensor.shape[inner - 1]:
        inner -= 1
    row = max(inner - 1, 0)
    nbytes = math.prod(box.sizes[row:]) * item
    start = begin + sum(at * stride for at, stride in zip(box.offset, strides, strict=True))
    for number in range(math.prod(box.sizes[:row])):
        place, rest = start, number
        for dim in range(row - 1, -1, -1):
            rest, index = divmod(rest, box.sizes[dim])
            place += index * strides[dim]
        yield place, nbytes


def _fill(
    store: Store,
    manifest: Manifest,
    runs: list[list[_Run]],
    memory: mmap.mmap,
    progress: Callable[[int], object] | None,
) -> None:
    stop = threading.Event()

    def one(number: int) -> None:
        if stop.is_set() or not runs[number]:
            return
        chunk = manifest.chunks[number]
        source: Bytes = memoryview(read_chunk(store, manifest.file(chunk), chunk, manifest.id)).cast("B")
        for at, to, nbytes in runs[number]:
            memory[to : to + nbytes] = source[at : at + nbytes]
        if progress is not None:
            progress(chunk.nbytes)

    with ThreadPoolExecutor(WORKERS, "export") as pool:
        try:
            for _ in pool.map(one, range(len(runs))):
                pass
        except BaseException:
            stop.set()
            raise


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn the file system's errors about the target into one that names it."""
    try:
        yield
    except FileExistsError as error:
        raise CheckpointError(f"another process has created {path} meanwhile") from error
    except OSError as error:
        raise storage_error(str(path), "cannot be written", error) from error
