"""Name what a job keeps on storage, and check names from outside: nothing else becomes a path.

jobs/<job>/bases/<base>/chunks/<aa>/<blake3>[.s<n>z]  a chunk, named by its content (and its codec)
jobs/<job>/bases/<base>/bundles/<blake3>              several chunks, named by the bytes of them all
jobs/<job>/parts/<step>-<generation>.<blake3>.json    what one writer has saved of a checkpoint
jobs/<job>/pending/<step>-<generation>.<blake3>.json  a manifest's content before the commit
jobs/<job>/manifests/<step>-<generation>.json         a committed checkpoint
jobs/<job>/suspect/<step>-<generation>.json           why its state is not trusted; most have none
jobs/<job>/leases/                                    which process may delete
probe/<random>                                        written and read at the start
"""

from __future__ import annotations

import re
from typing import NamedTuple

from holdfast.checkpoint.errors import NameRefused

Bytes = bytes | memoryview
"""What is put on storage."""


class StoredFile(NamedTuple):
    """A file on storage. `name` is relative to the folder that was listed."""

    name: str
    size: int  # bytes
    modified_s: float | None  # by the storage's clock; None: not known


_JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_CHECKPOINT = re.compile(r"([0-9]{1,18})-([0-9]{1,18})")
_DIGEST = re.compile(r"[0-9a-f]{64}")
PLAIN = "none"
"""The codec of chunks that are stored as they are."""
_CODEC = re.compile(r"shuffle([1248])\+zstd")
_CHUNK_FILE = re.compile(r"([0-9a-f]{64})(?:\.s([1248])z)?")
_JOB_FOLDER = rf"jobs/{_JOB.pattern}"
_BASE = re.compile(rf"{_JOB_FOLDER}/bases/{_CHECKPOINT.pattern}")
_STAMP = r"[0-9a-f]{32}"
_FILES = re.compile(
    "|".join(
        (
            rf"{_BASE.pattern}/chunks/[0-9a-f]{{2}}/{_CHUNK_FILE.pattern}",
            rf"{_BASE.pattern}/bundles/{_DIGEST.pattern}",
            rf"{_JOB_FOLDER}/(parts|pending)/{_CHECKPOINT.pattern}\.{_DIGEST.pattern}\.json",
            rf"{_JOB_FOLDER}/(manifests|suspect)/{_CHECKPOINT.pattern}\.json",
            rf"{_JOB_FOLDER}/leases/(collector\.json|{_STAMP})",
            rf"probe/{_STAMP}",
        )
    )
)


def chunk(job: str, base: str, digest: str, codec: str = PLAIN) -> str:
    """Where a chunk of a base is. Its name is the blake3 of its raw bytes, and its codec."""
    return f"{chunks(job, base)}/{_digest(digest)[:2]}/{digest}{_suffix(codec)}"


def bundle(job: str, base: str, digest: str) -> str:
    """Where a bundle of a base is: a file with several chunks. Its name is the blake3 of its bytes."""
    return f"{base_folder(job, base)}/bundles/{_digest(digest)}"


def chunks(job: str, base: str) -> str:
    """The folder of a base's chunks that are files of their own."""
    return f"{base_folder(job, base)}/chunks"


def base_folder(job: str, base: str) -> str:
    """The folder of all that a base has on storage."""
    return f"{bases(job)}/{_id(base)}"


def bases(job: str) -> str:
    """The folder of a job's bases."""
    return f"jobs/{_job(job)}/bases"


def split_chunk(path: str) -> tuple[str, str] | None:
    """Digest and codec of a file `<aa>/<file>` below a base's chunks; None: it is not a chunk of ours."""
    folder, _, file = path.rpartition("/")
    found = _CHUNK_FILE.fullmatch(file)
    if found is None or folder != file[:2]:
        return None
    return found[1], f"shuffle{found[2]}+zstd" if found[2] else PLAIN


def holds_chunks(path: str) -> bool:
    """Whether a file of a base holds a chunk, or several."""
    folder, _, file = path.partition("/")
    return is_digest(file) if folder == "bundles" else folder == "chunks" and split_chunk(file) is not None


def item_bytes(codec: str) -> int:
    """The width of the items that a codec shuffles; 0: it keeps the bytes as they are. Raises NameRefused."""
    if codec == PLAIN:
        return 0
    found = _CODEC.fullmatch(codec) if isinstance(codec, str) else None
    if found is None:
        raise NameRefused(f"{codec!r:.40} is not a codec of chunks")
    return int(found[1])


def part(job: str, checkpoint: str, digest: str) -> str:
    """Where one writer's part of a checkpoint is until the checkpoint is published."""
    return f"{parts(job)}/{_id(checkpoint)}.{_digest(digest)}.json"


def parts(job: str) -> str:
    """The folder of a job's parts."""
    return f"jobs/{_job(job)}/parts"


def drafts(job: str) -> str:
    """The folder of a job's manifests that wait for their commit."""
    return f"jobs/{_job(job)}/pending"


def split_draft(file: str) -> tuple[str, str] | None:
    """Id and digest of a file in `drafts` or `parts`; None: it is not ours."""
    checkpoint, _, rest = file.partition(".")
    digest, _, kind = rest.partition(".")
    if kind != "json" or not _CHECKPOINT.fullmatch(checkpoint) or not is_digest(digest):
        return None
    return checkpoint, digest


def manifest(job: str, checkpoint: str) -> str:
    """Where a committed checkpoint's manifest is."""
    return f"jobs/{_job(job)}/manifests/{_id(checkpoint)}.json"


def pending(job: str, checkpoint: str, digest: str) -> str:
    """Where a manifest's content waits for the commit."""
    return f"jobs/{_job(job)}/pending/{_id(checkpoint)}.{_digest(digest)}.json"


def manifests(job: str) -> str:
    """The folder of a job's manifests."""
    return f"jobs/{_job(job)}/manifests"


def suspect(job: str, checkpoint: str) -> str:
    """Where the mark of a checkpoint is whose state is not trusted."""
    return f"{suspects(job)}/{_id(checkpoint)}.json"


def suspects(job: str) -> str:
    """The folder of these marks."""
    return f"jobs/{_job(job)}/suspect"


def job_folder(job: str) -> str:
    """The folder of everything that a job has on storage."""
    return f"jobs/{_job(job)}"


def leases(job: str) -> str:
    """The folder of leases: files that say which process may delete."""
    return f"jobs/{_job(job)}/leases"


def checkpoint_id(step: int, generation: int) -> str:
    """The id of a checkpoint."""
    return _id(f"{step}-{generation}")


def split_id(checkpoint: str) -> tuple[int, int]:
    """Step and generation of an id. Raises NameRefused."""
    found = _CHECKPOINT.fullmatch(checkpoint)
    if found is None:
        raise NameRefused(f"{checkpoint!r} is not a checkpoint id: write <step>-<generation>")
    return int(found[1]), int(found[2])


def is_ours(name: str) -> bool:
    """Whether a file on storage has a name that only Holdfast gives. No other file is ever deleted."""
    return _FILES.fullmatch(name) is not None


def is_base(name: str) -> bool:
    """Whether this is the folder of a base."""
    return _BASE.fullmatch(name) is not None


def is_digest(digest: object) -> bool:
    """Whether this is a blake3 digest in hex."""
    return isinstance(digest, str) and _DIGEST.fullmatch(digest) is not None


def _suffix(codec: str) -> str:
    items = item_bytes(codec)
    return f".s{items}z" if items else ""


def _job(job: str) -> str:
    if not _JOB.fullmatch(job):
        raise NameRefused(f"job name {job!r} is not valid: use letters, digits, '.', '_', '-', at most 63")
    return job


def _id(checkpoint: str) -> str:
    split_id(checkpoint)
    return checkpoint


def _digest(digest: str) -> str:
    if not is_digest(digest):
        raise NameRefused(f"{digest!r} is not a blake3 digest in hex")
    return digest
