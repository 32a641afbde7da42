"""Names of what a job keeps on storage, and what a name may look like. Nothing else becomes a path.

jobs/<job>/bases/<base>/chunks/<aa>/<blake3>          a chunk, named by its content
jobs/<job>/pending/<step>-<generation>.<blake3>.json  a manifest's content before the commit
jobs/<job>/manifests/<step>-<generation>.json         a committed checkpoint
"""

from __future__ import annotations

import re

from agent.checkpoint.errors import NameRefused

Bytes = bytes | memoryview
"""What is put on storage."""

_JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_CHECKPOINT = re.compile(r"([0-9]{1,18})-([0-9]{1,18})")
_DIGEST = re.compile(r"[0-9a-f]{64}")


def chunk(job: str, base: str, digest: str) -> str:
    """Where a chunk of a base lies."""
    return f"jobs/{_job(job)}/bases/{_id(base)}/chunks/{_digest(digest)[:2]}/{digest}"


def manifest(job: str, checkpoint: str) -> str:
    """Where a committed checkpoint's manifest lies."""
    return f"jobs/{_job(job)}/manifests/{_id(checkpoint)}.json"


def pending(job: str, checkpoint: str, digest: str) -> str:
    """Where a manifest's content waits for the commit."""
    return f"jobs/{_job(job)}/pending/{_id(checkpoint)}.{_digest(digest)}.json"


def manifests(job: str) -> str:
    """The folder of a job's manifests."""
    return f"jobs/{_job(job)}/manifests"


def checkpoint_id(step: int, generation: int) -> str:
    """The id of a checkpoint."""
    return _id(f"{step}-{generation}")


def split_id(checkpoint: str) -> tuple[int, int]:
    """Step and generation of an id. Raises NameRefused."""
    found = _CHECKPOINT.fullmatch(checkpoint)
    if found is None:
        raise NameRefused(f"checkpoint {checkpoint!r} is no id: <step>-<generation> is one")
    return int(found[1]), int(found[2])


def is_digest(digest: object) -> bool:
    """Whether this is a blake3 digest in hex."""
    return isinstance(digest, str) and _DIGEST.fullmatch(digest) is not None


def _job(job: str) -> str:
    if not _JOB.fullmatch(job):
        raise NameRefused(f"job name {job!r} will not do: letters, digits, '.', '_', '-', 63 at most")
    return job


def _id(checkpoint: str) -> str:
    split_id(checkpoint)
    return checkpoint


def _digest(digest: str) -> str:
    if not is_digest(digest):
        raise NameRefused(f"{digest!r} is no blake3 digest in hex")
    return digest
