"""A second storage that holds what the first one holds: chunks first, then what names them."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.checkpoint.errors import CheckpointError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from concurrent.futures import Future

    from agent.checkpoint.store import Store

WORKERS = 4
"""Chunks in flight; each holds one chunk's stored bytes."""


@dataclass(frozen=True, slots=True)
class Copied:
    """What a mirroring did. `present`: files that the target had already."""

    files: int
    bytes: int
    present: int


def mirror(
    source: Store,
    target: Store,
    wanted: Iterable[tuple[str, int]],
    *,
    check: Callable[[str, bytes], object],
    last: Sequence[tuple[str, bytes]] = (),
    stop: threading.Event | None = None,
) -> Copied:
    """Copy each of `wanted`, (name, stored bytes), that `target` lacks or has in another size; make them
    durable; then create the files of `last`, (name, content), in their order. Blocks.

    `check` is given a name and the bytes that `source` has, and raises when they are not what belongs there.
    A file of `last` that exists with other content is a StorageError: an id is never overwritten. Done again
    it goes on from where it stopped. Setting `stop` ends it at the next file, with a CheckpointError."""
    told = stop or threading.Event()

    def one(name: str, nbytes: int) -> int:
        if told.is_set():
            raise CheckpointError(f"told to stop while {target.url} was brought up to date")
        return _copy(source, target, name, nbytes, check)

    sizes = _each(one, wanted)
    target.flush()
    for name, content in last:
        _finish(target, name, content)
    copied = [size for size in sizes if size >= 0]
    return Copied(len(copied), sum(copied), len(sizes) - len(copied))


def _each(work: Callable[[str, int], int], wanted: Iterable[tuple[str, int]]) -> list[int]:
    """All results, with few of them on their way at any time. The first failure stops the rest."""
    sizes: list[int] = []
    with ThreadPoolExecutor(WORKERS, "mirror") as pool:
        running: deque[Future[int]] = deque()
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


def _copy(source: Store, target: Store, name: str, nbytes: int, check: Callable[[str, bytes], object]) -> int:
    """The bytes copied, -1 when the target has the file."""
    if target.size(name) == nbytes:
        return -1
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
            f"storage {target.url}: {name} is there with other content, and is not overwritten; two clusters "
            "may write here: give each its own storage",
            url=target.url,
            doing=f"cannot create {name}",
        )
    target.flush()
