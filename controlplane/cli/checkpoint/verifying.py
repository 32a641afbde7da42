"""`holdfast checkpoint verify`: read every chunk of every checkpoint and compare it with its digest.

Incremental checkpoints share chunks. Each chunk is read once, whatever the number of checkpoints that use
it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from controlplane.cli.checkpoint.place import add_checkpoint, find, jobs, opened
from controlplane.cli.checkpoint.progress import Bar, shown_bar
from controlplane.cli.errors import FAILED, OK, CliError
from controlplane.cli.flags.parser import CommandSpec
from controlplane.cli.questions.outputs import data
from controlplane.cli.questions.tables import plain
from controlplane.reporting.quantities import size
from holdfast.checkpoint import load
from holdfast.checkpoint.errors import CheckpointCorrupt, CheckpointRefused
from holdfast.checkpoint.format import sense
from holdfast.checkpoint.reading import read_chunk

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from holdfast.checkpoint.format.chunks import Chunk
    from holdfast.checkpoint.format.manifest_records import Manifest
    from holdfast.checkpoint.load import Found
    from holdfast.checkpoint.storage.store import Store

WORKERS = 4
_BROKEN = (CheckpointCorrupt, CheckpointRefused)


@dataclass(slots=True)
class Verified:
    """One checkpoint and the errors found in it."""

    job: str
    id: str
    step: int
    kind: str = ""
    nbytes: int = 0
    errors: list[str] = field(default_factory=list)

    def row(self) -> dict[str, Any]:
        """Return the row of the JSON output."""
        return {
            "job": self.job,
            "checkpoint": self.id,
            "step": self.step,
            "kind": self.kind,
            "valid": not self.errors,
            "bytes": self.nbytes,
            "errors": self.errors,
        }


def check(values: argparse.Namespace) -> int:
    """Verify all checkpoints, or one. Exit code 1 when the newest of a job is damaged."""
    with opened(values) as store:
        found = {
            job: [find(store, job, values.checkpoint)] if values.checkpoint else load.listing(store, job)
            for job in jobs(store, values.job)
        }
        if not any(found.values()):
            raise CliError(f"storage {store.url}: there is no checkpoint to verify")
        results = [each for job, listed in found.items() for each in verify(store, job, listed)]
    print(data(values.output, {"checkpoints": [each.row() for each in results]}) or _text(results))
    newest = {each.job: each for each in reversed(results)}
    return FAILED if any(each.errors for each in newest.values()) else OK


def verify(store: Store, job: str, listed: Sequence[Found]) -> list[Verified]:
    """Find the errors in each of these checkpoints, in their order."""
    results, manifests = [], []
    for each in listed:
        result = Verified(job, each.id, each.step)
        results.append(result)
        try:
            manifest = load.read_manifest(store, job, each.id)
            sense.check_covered(manifest)
        except _BROKEN as error:
            result.errors.append(str(error))
            continue
        result.kind, result.nbytes = manifest.kind, manifest.bytes_total
        manifests.append((manifest, result))
    problems = _read_all(store, [manifest for manifest, _ in manifests])
    for manifest, result in manifests:
        places = [_place(manifest, chunk) for chunk in manifest.chunks]
        result.errors += [problems[place] for place in places if place in problems]
    return results


_Place = tuple[str, int]
"""The file of a chunk, and the byte of it where the chunk begins."""


def _place(manifest: Manifest, chunk: Chunk) -> _Place:
    return manifest.file(chunk), chunk.start


def _read_all(store: Store, manifests: Sequence[Manifest]) -> dict[_Place, str]:
    """Return the places of the damaged chunks, with the error of each."""
    wanted = {_place(m, chunk): (m, chunk) for m in reversed(manifests) for chunk in m.chunks}
    total = sum(chunk.stored for _, chunk in wanted.values())
    with shown_bar("verifying", total) as bar, ThreadPoolExecutor(WORKERS, "verify") as pool:
        work = [pool.submit(_read, store, place, *found, bar) for place, found in wanted.items()]
        try:
            found = [each.result() for each in work]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return {place: problem for place, problem in found if problem}


def _read(store: Store, place: _Place, manifest: Manifest, chunk: Chunk, bar: Bar) -> tuple[_Place, str]:
    try:
        read_chunk(store, place[0], chunk, manifest.id)
    except CheckpointCorrupt as error:
        return place, str(error)
    finally:
        bar.advance(chunk.stored)
    return place, ""


def _text(results: Sequence[Verified]) -> str:
    rows = [
        [each.job, each.id, each.kind or "-", size(each.nbytes), "valid" if not each.errors else "NOT VALID"]
        for each in results
    ]
    lines = [plain(["JOB", "CHECKPOINT", "KIND", "STATE", ""], rows)]
    for each in results:
        lines += [f"{each.job} {each.id}: {error}" for error in each.errors]
    return "\n".join(lines)


COMMANDS = {
    "verify": CommandSpec(
        "Read every chunk of the checkpoints on a storage and compare it with its digest. Exit code 1 when "
        "the newest checkpoint of a job is damaged.",
        check,
        add_checkpoint,
    )
}
