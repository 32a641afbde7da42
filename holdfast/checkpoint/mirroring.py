"""Copy a checkpoint to a second storage: chunks first, then the manifest that names them."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.checkpoint import load
from holdfast.checkpoint.errors import CheckpointCorrupt, CheckpointError, CheckpointRefused, StorageError
from holdfast.checkpoint.format import chunks, codec, names
from holdfast.checkpoint.format.manifest import MANIFEST_BYTES_MAX, decode_manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from concurrent.futures import Future

    from holdfast.checkpoint.format.chunks import Chunk
    from holdfast.checkpoint.format.manifest_records import Manifest
    from holdfast.checkpoint.storage.store import Store

WORKERS = 4
"""Files in flight; each is in memory once."""


@dataclass(frozen=True, slots=True)
class Copied:
    """What was copied. `present`: files that the target had already."""

    files: int
    bytes: int
    present: int


def mirror(
    source: Store,
    target: Store,
    wanted: Iterable[tuple[str, int | None]],
    *,
    check: Callable[[str, bytes], object],
    last: Sequence[tuple[str, bytes]] = (),
    stop: threading.Event | None = None,
) -> Copied:
    """Copy each of `wanted`, (name, stored bytes), that `target` lacks or has in another size. None
    stands for as many bytes as `source` has.

    Makes them durable, then creates the files of `last`, (name, content), in their order. If it is repeated,
    it continues where it stopped. Blocks; setting `stop` ends it at the next file, with a CheckpointError.

    `check` receives a name and the bytes in `source`, and raises if they are not what belongs there. If a
    file of `last` exists with other content, that is a StorageError: an id is never overwritten."""
    stopping = stop or threading.Event()

    def one(name: str, nbytes: int | None) -> int | None:
        if stopping.is_set():
            raise CheckpointError(f"stopped on request while {target.url} was brought up to date")
        return _copy(source, target, name, nbytes, check)

    sizes = _each(one, wanted)
    target.flush()
    for name, content in last:
        _finish(target, name, content)
    copied = [size for size in sizes if size is not None]
    return Copied(len(copied), sum(copied), len(sizes) - len(copied))


def mirror_manifest(
    source: Store,
    target: Store,
    manifest: Manifest,
    *,
    last: tuple[str, bytes],
    stop: threading.Event | None = None,
) -> Copied:
    """Copy a checkpoint: its chunks and bundles, each verified, then `last`, the manifest's name and content.

    A bundle may hold chunks of other checkpoints too."""
    sizes = {manifest.file(chunk): None if chunk.bundle else chunk.stored for chunk in manifest.chunks}
    return mirror(source, target, sizes.items(), check=_checker(manifest), last=[last], stop=stop)


def catch_up(source: Store, target: Store, job: str, stop: threading.Event | None = None) -> tuple[str, ...]:
    """Copy every published checkpoint that `target` lacks because it was away, newest first. Returns their
    ids.

    If retention removes a checkpoint from `source` while it is copied, its manifest is deleted from `target`
    again. A checkpoint that is not valid on `source` is passed over: its readers report that.

    Blocks; setting `stop` ends it with a CheckpointError. Raises StorageError if a storage fails."""
    there = {found.id for found in load.listing(target, job)}
    done = []
    for found in load.listing(source, job):
        if found.id in there:
            continue
        name = names.manifest(job, found.id)
        try:
            content = source.read(name, MANIFEST_BYTES_MAX)
            manifest = decode_manifest(content, job, found.id)
            mirror_manifest(source, target, manifest, last=(name, content), stop=stop)
        except (FileNotFoundError, CheckpointCorrupt, CheckpointRefused):
            continue
        if source.size(name) is None:
            target.delete(name)
        else:
            done.append(found.id)
    target.flush()
    return tuple(done)


def _checker(manifest: Manifest) -> Callable[[str, bytes], object]:
    """A check that raises CheckpointCorrupt if stored bytes are not those of the file they name."""
    by_file: dict[str, Chunk] = {manifest.file(chunk): chunk for chunk in manifest.chunks}

    def check(name: str, stored: bytes) -> None:
        chunk = by_file[name]
        if chunk.bundle:
            _check_bundle(manifest, chunk.bundle, stored)
            return
        try:
            content = codec.decode(stored, chunk.codec, chunk.nbytes)
        except codec.CodecError as error:
            raise CheckpointCorrupt(manifest.id, f"chunk {chunk.blake3}", str(error)) from error
        if len(stored) != chunk.stored or chunks.name(content) != chunk.blake3:
            raise CheckpointCorrupt(manifest.id, f"chunk {chunk.blake3}", "differs from what was written")

    return check


def _check_bundle(manifest: Manifest, digest: str, stored: bytes) -> None:
    if chunks.name(stored) != digest:
        problem = "differs from what was written" if stored else "is missing"
        raise CheckpointCorrupt(manifest.id, f"bundle {digest}", problem)


def _each(
    work: Callable[[str, int | None], int | None], wanted: Iterable[tuple[str, int | None]]
) -> list[int | None]:
    """All results, with only a few calls running at any time. The first failure stops the rest."""
    sizes: list[int | None] = []
    with ThreadPoolExecutor(WORKERS, "mirror") as pool:
        running: deque[Future[int | None]] = deque()
        try:
            for name, nbytes in wanted:
                running.append(pool.submit(work, name, nbytes))
                if len(running) > 2 * WORKERS:
                    sizes.append(running.popleft().result())
            sizes += [future.result() for future in running]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return sizes


def _copy(
    source: Store, target: Store, name: str, nbytes: int | None, check: Callable[[str, bytes], object]
) -> int | None:
    """The bytes copied; None: the target has the file already."""
    if nbytes is None:
        nbytes = min(source.size(name) or 0, chunks.BUNDLE_BYTES_MAX)
    if target.size(name) == nbytes:
        return None
    try:
        content = source.read(name, nbytes + 1)
    except FileNotFoundError:
        content = b""
    check(name, content)
    if not target.put(name, content) and target.size(name) != nbytes:
        target.replace(name, content)
    return len(content)


def _finish(target: Store, name: str, content: bytes) -> None:
    if not target.put(name, content) and target.read(name, len(content) + 1) != content:
        raise StorageError(
            f"storage {target.url}: {name} exists with other content and is not overwritten; two clusters "
            "may write here: give each its own storage",
            url=target.url,
            doing=f"cannot create {name}",
        )
    target.flush()
