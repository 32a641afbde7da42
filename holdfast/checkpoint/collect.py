"""Collect garbage: delete what a job has on storage and no checkpoint needs any more.

The order makes it safe: first the manifests of the checkpoints that are removed, then chunks (all chunks of a
base that no manifest names; a bundle goes when no manifest names any of its chunks), then drafts. So at no
moment does a visible manifest lack a chunk. Whatever is named by a manifest that stays is kept, whether the
coordinator knows that manifest or not. A base that a save is writing to (busy) is not touched. No chunk or
draft is deleted that is younger than a grace period, by the storage's clock."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.checkpoint.errors import CheckpointCorrupt, CheckpointError, CheckpointRefused, NameRefused
from holdfast.checkpoint.format import envelope, names
from holdfast.checkpoint.format.manifest import MANIFEST_BYTES_MAX, decode_manifest
from holdfast.checkpoint.storage import lease

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from holdfast.checkpoint.format.manifest_records import Manifest
    from holdfast.checkpoint.format.names import StoredFile
    from holdfast.checkpoint.storage.store import Store

GRACE_S = 3600.0
"""The default grace period, s."""
_DELETERS = 8
_RENEW_EVERY = 512  # deletions
_TRIES = 3


@dataclass(frozen=True, slots=True)
class Deletion:
    """A file that is to be deleted. `size` in bytes."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class CollectionPlan:
    """What would be deleted, in the order of the stages.

    - `removed`: ids of checkpoints that are not wanted any more.
    - `kept`: ids of the manifests that stay.
    - `blocked`: why no chunk may be deleted; "": chunks may be."""

    job: str
    removed: tuple[str, ...]
    manifests: tuple[Deletion, ...]
    bases: tuple[str, ...]  # deleted as a whole
    chunks: tuple[Deletion, ...]
    drafts: tuple[Deletion, ...]
    kept: tuple[str, ...]
    blocked: str = ""
    seen: frozenset[str] = frozenset()  # manifests, pending manifests and parts that it was made from

    @property
    def nbytes(self) -> int:
        """Bytes that it frees."""
        return sum(doomed.size for doomed in (*self.manifests, *self.chunks, *self.drafts))


@dataclass(frozen=True, slots=True)
class CollectionOutcome:
    """What was deleted.

    - `removed`: ids of checkpoints that were removed.
    - `bytes_freed`, `files`: of all stages.
    - `reason`: why not everything was deleted; "": it was.
    - `kept`: ids of the manifests that stay.
    - `bases`: bases that were deleted as a whole."""

    removed: tuple[str, ...]
    bytes_freed: int
    files: int
    reason: str = ""
    kept: tuple[str, ...] = ()
    bases: tuple[str, ...] = ()


@dataclass(slots=True)
class _Found:
    """What is in a job's folder, by kind."""

    manifests: dict[str, StoredFile] = field(default_factory=dict)  # by id
    pending: dict[str, StoredFile] = field(default_factory=dict)  # by file
    parts: dict[str, StoredFile] = field(default_factory=dict)  # by file
    marks: dict[str, StoredFile] = field(default_factory=dict)  # of suspect checkpoints, by id
    bases: dict[str, list[StoredFile]] = field(default_factory=dict)  # files with chunks, by base

    @property
    def words(self) -> frozenset[str]:
        """Names of manifests, pending manifests and parts."""
        return frozenset([*self.manifests, *self.pending, *self.parts])


def plan(
    store: Store,
    job: str,
    remove: Collection[str],
    keep: Collection[str],
    busy: Collection[str],
    *,
    now_s: float,
    grace_s: float = GRACE_S,
) -> CollectionPlan:
    """What would be deleted if the checkpoints `remove` are not wanted any more. Touches nothing.

    `keep`: ids that the coordinator knows. `busy`: bases that running saves write to. `now_s`: Unix time by
    the storage's clock.

    Raises StorageError; CheckpointError if an id is both to be removed and kept."""
    both = sorted(set(remove) & set(keep))
    if both:
        raise CheckpointError(
            f"checkpoints {', '.join(both)} are listed both as to be removed and as to be kept"
        )
    found = _find(store, job)
    old = _Old(now_s - grace_s)
    drafts = _drafts(found, remove, keep, busy, old)
    living, blocked = _living(store, job, found, remove, {entry.name for entry in drafts})
    folder = names.job_folder(job)
    bases, chunks = ((), []) if blocked else _garbage(found, living, busy, old, folder)
    gone = [checkpoint for checkpoint in found.manifests if checkpoint in set(remove)]
    return CollectionPlan(
        job=job,
        removed=tuple(remove),
        manifests=_doomed(folder, (found.manifests[checkpoint] for checkpoint in gone)),
        bases=tuple(bases),
        chunks=_doomed(folder, chunks),
        drafts=_doomed(folder, drafts),
        kept=tuple(checkpoint for checkpoint in found.manifests if checkpoint not in set(remove)),
        blocked=blocked,
        seen=found.words,
    )


def run(
    store: Store,
    job: str,
    remove: Collection[str],
    keep: Collection[str],
    busy: Collection[str],
    *,
    now_s: float,
    grace_s: float = GRACE_S,
) -> CollectionOutcome:
    """Delete it, under a lease on the storage. If it is killed at any moment, it can be run again.

    Raises LeaseHeldError if another collector runs, StorageError if the storage fails."""
    with lease.held(store, job) as held:
        freed = files = 0
        bases: tuple[str, ...] = ()
        when = held.now_s if held.now_s is not None else now_s
        reason = "new checkpoints appeared during planning: run it again"
        for _ in range(_TRIES):
            made = plan(store, job, remove, keep, busy, now_s=when, grace_s=grace_s)
            freed, files = freed + _delete(store, made.manifests, held), files + len(made.manifests)
            store.flush()
            if _find(store, job, chunks=False).words - made.seen:
                continue
            freed += _delete(store, (*made.chunks, *made.drafts), held)
            files += len(made.chunks) + len(made.drafts)
            store.flush()
            for base in made.bases:
                store.prune(f"{names.bases(job)}/{base}")
            reason, bases = made.blocked, made.bases
            break
        store.sweep()
        store.flush()
        return CollectionOutcome(tuple(remove), freed, files, reason, made.kept, bases)


class _Old:
    """Whether a file was there before a moment. A file of unknown age is never old."""

    def __init__(self, before_s: float) -> None:
        self._before_s = before_s

    def __call__(self, entry: StoredFile) -> bool:
        return entry.modified_s is not None and entry.modified_s < self._before_s


def _find(store: Store, job: str, *, chunks: bool = True) -> _Found:
    """What is in the job's folder; names are relative to it."""
    found, folder = _Found(), names.job_folder(job)
    places = ["manifests", "pending", "parts", "suspect", *(["bases"] if chunks else [])]
    for place in places:
        for entry in store.walk(f"{folder}/{place}"):
            _SORTERS[place](found, entry._replace(name=f"{place}/{entry.name}"), entry.name)
    return found


def _sort_manifest(found: _Found, entry: StoredFile, file: str) -> None:
    checkpoint = file.removesuffix(".json")
    if _is_id(checkpoint) and file.endswith(".json"):
        found.manifests[checkpoint] = entry


def _sort_pending(found: _Found, entry: StoredFile, file: str) -> None:
    if names.split_draft(file):
        found.pending[file] = entry


def _sort_part(found: _Found, entry: StoredFile, file: str) -> None:
    if names.split_draft(file):
        found.parts[file] = entry


def _sort_chunk(found: _Found, entry: StoredFile, file: str) -> None:
    base, _, rest = file.partition("/")
    if _is_id(base) and names.holds_chunks(rest):
        found.bases.setdefault(base, []).append(entry)


def _sort_mark(found: _Found, entry: StoredFile, file: str) -> None:
    checkpoint = file.removesuffix(".json")
    if _is_id(checkpoint) and file.endswith(".json"):
        found.marks[checkpoint] = entry


_SORTERS: dict[str, Callable[[_Found, StoredFile, str], None]] = {
    "manifests": _sort_manifest,
    "pending": _sort_pending,
    "parts": _sort_part,
    "suspect": _sort_mark,
    "bases": _sort_chunk,
}


def _is_id(checkpoint: str) -> bool:
    try:
        names.split_id(checkpoint)
    except NameRefused:
        return False
    return True


def _drafts(
    found: _Found, remove: Collection[str], keep: Collection[str], busy: Collection[str], old: _Old
) -> list[StoredFile]:
    """What saves have left behind: of checkpoints that are removed, published, or were given up; and marks of
    those that are removed."""
    gone = []
    for file, entry in (*found.pending.items(), *found.parts.items()):
        checkpoint = file.partition(".")[0]
        needed = checkpoint in keep and checkpoint not in found.manifests
        given_up = checkpoint in remove or checkpoint in found.manifests or not busy
        if old(entry) and given_up and not needed:
            gone.append(entry)
    return gone + [entry for checkpoint, entry in found.marks.items() if checkpoint in remove]


def _living(
    store: Store, job: str, found: _Found, remove: Collection[str], drafts: set[str]
) -> tuple[dict[str, set[str]], str]:
    """For each base, the files whose chunks are named by manifests that stay, published or pending.

    The second value says why that is not known; "" if it is."""
    named: dict[str, set[str]] = {}
    places = [
        (entry, checkpoint) for checkpoint, entry in found.manifests.items() if checkpoint not in remove
    ]
    places += [
        (entry, file.partition(".")[0]) for file, entry in found.pending.items() if entry.name not in drafts
    ]
    for entry, checkpoint in places:
        try:
            manifest = _read(store, job, entry, checkpoint)
        except FileNotFoundError:  # published or given up since it was listed: the next run will see
            return {}, f"{entry.name} has disappeared since it was listed: run it again"
        except (CheckpointCorrupt, CheckpointRefused) as error:
            return {}, f"the chunks of {entry.name} cannot be determined: {error}"
        named.setdefault(manifest.base, set()).update(manifest.file(chunk) for chunk in manifest.chunks)
    return named, ""


def _read(store: Store, job: str, entry: StoredFile, checkpoint: str) -> Manifest:
    content = store.read(f"{names.job_folder(job)}/{entry.name}", MANIFEST_BYTES_MAX)
    return decode_manifest(content, job, checkpoint)


def _garbage(
    found: _Found, living: dict[str, set[str]], busy: Collection[str], old: _Old, folder: str
) -> tuple[list[str], list[StoredFile]]:
    """The bases to be deleted as a whole, and all files with chunks to be deleted."""
    whole: list[str] = []
    gone: list[StoredFile] = []
    for base, entries in found.bases.items():
        if base in busy:
            continue
        if base not in living and all(old(entry) for entry in entries):
            whole.append(base)
            gone += entries
        elif base in living:
            needed = living[base]
            gone += [entry for entry in entries if old(entry) and f"{folder}/{entry.name}" not in needed]
    return whole, gone


def _doomed(folder: str, entries: Iterable[StoredFile]) -> tuple[Deletion, ...]:
    return tuple(Deletion(f"{folder}/{entry.name}", entry.size) for entry in entries)


def _delete(store: Store, doomed: Sequence[Deletion], held: lease.CollectorLease) -> int:
    """Delete these files. Returns the bytes they had."""
    with ThreadPoolExecutor(_DELETERS, "collect") as pool:
        for start in range(0, len(doomed), _RENEW_EVERY):
            held.renew()
            list(pool.map(lambda one: _delete_one(store, one.name), doomed[start : start + _RENEW_EVERY]))
    return sum(one.size for one in doomed)


def _delete_one(store: Store, name: str) -> None:
    """Delete one file that is proven ours.

    A manifest's name can be guessed, so its first bytes are checked. Other names are digests of their
    content."""
    try:
        guessable = name.split("/")[2] == "manifests"
        if guessable and not envelope.begins(store.read(name, envelope.HEAD_BYTES)):
            raise CheckpointRefused(
                f"storage {store.url}: {name} is not a manifest of Holdfast and is not deleted: move it away"
            )
        store.delete(name)
    except FileNotFoundError:
        return
