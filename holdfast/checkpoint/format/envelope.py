"""Frame a manifest or a part as one JSON object whose file is named by the digest of its own bytes.

The file is `{"blake3":"<hex>","<kind>":<body>}` and a newline, without other blanks. The digest is that of
the body's bytes, so no byte of the file can change unnoticed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.checkpoint.errors import CheckpointCorrupt, CheckpointRefused, NameRefused
from holdfast.checkpoint.format.chunks import name

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
SCHEMA, SCHEMA_BUNDLES = 2, 3
"""The versions of the bodies' schema: where each chunk is a file, and where some are in bundles."""
MALFORMED = (KeyError, TypeError, ValueError, NameRefused)
"""What parsing raises for a body that makes no sense."""
_HEAD, _TAIL = b'{"blake3":"', b"}\n"
_HEX = 64
HEAD_BYTES = len(_HEAD)
"""Bytes at the start of a file that show that it is one of these."""
_WHO = {"manifest": "the commit record", "part": "its writer"}


def encode(kind: str, body: dict[str, Any]) -> tuple[bytes, str]:
    """The file and its digest. The same content always gives the same bytes."""
    content = json.dumps(body, separators=(",", ":"), allow_nan=False).encode()
    digest = name(content)
    return _HEAD + digest.encode() + _middle(kind) + content + _TAIL, digest


def decode(kind: str, content: bytes, checkpoint: str) -> tuple[dict[str, Any], str]:
    """The body and its digest.

    Raises CheckpointCorrupt if a byte is not as it was written, CheckpointRefused for a schema that this
    version does not read."""
    body, digest = _open(kind, content, checkpoint)
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise CheckpointCorrupt(checkpoint, kind, f"is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise CheckpointCorrupt(checkpoint, kind, "is not a JSON object")
    _check_schema(fields, checkpoint)
    return fields, digest


def begins(head: bytes) -> bool:
    """Whether a file with this head is one of these. If its writer was killed, it may hold less."""
    return head[: len(_HEAD)] == _HEAD[: len(head)]


def parsed(
    kind: str,
    content: bytes,
    job: str,
    checkpoint: str,
    *,
    parse: Callable[[dict[str, Any]], T],
    digest: str,
) -> tuple[T, str]:
    """What `parse` makes of a file's body, and the file's digest.

    `digest`: the expected one, from its writer or its commit; "": not known. Raises CheckpointCorrupt if a
    byte is not as it was written or the body makes no sense; CheckpointRefused if it is valid but of another
    checkpoint or job, or of an unknown schema."""
    fields, found = decode(kind, content, checkpoint)
    if digest and digest != found:
        raise CheckpointCorrupt(checkpoint, kind, f"has digest {found}, but {_WHO[kind]} says {digest}")
    _check_identity(fields, kind, job, checkpoint)
    try:
        return parse(fields), found
    except MALFORMED as error:
        raise CheckpointCorrupt(checkpoint, kind, f"is malformed: {type(error).__name__} {error}") from error


def _check_identity(fields: dict[str, Any], kind: str, job: str, checkpoint: str) -> None:
    """Raise CheckpointRefused if a valid body is of another job or checkpoint."""
    if fields.get("job") != job:
        raise CheckpointRefused(
            f"checkpoint {checkpoint}: belongs to job {fields.get('job')!r}, not to {job!r}"
        )
    if fields.get("id") != checkpoint:
        raise CheckpointRefused(
            f"checkpoint {checkpoint}: its {kind} belongs to checkpoint {fields.get('id')!r}"
        )


def _middle(kind: str) -> bytes:
    return b'","' + kind.encode() + b'":'


def _open(kind: str, content: bytes, checkpoint: str) -> tuple[bytes, str]:
    middle = _middle(kind)
    start = len(_HEAD) + _HEX + len(middle)
    digest, body = content[len(_HEAD) : len(_HEAD) + _HEX], content[start : -len(_TAIL)]
    framed = content.startswith(_HEAD) and content.endswith(_TAIL)
    if not framed or content[len(_HEAD) + _HEX : start] != middle:
        raise CheckpointCorrupt(checkpoint, kind, f"{len(content)} bytes are not a complete {kind}")
    found = name(body)
    if digest != found.encode():
        raise CheckpointCorrupt(
            checkpoint, kind, f"its content has digest {found}, not the one in its header"
        )
    return body, found


def _check_schema(fields: dict[str, Any], checkpoint: str) -> None:
    schema = fields.get("schema")
    if schema in (SCHEMA, SCHEMA_BUNDLES):
        return
    writer = fields.get("holdfast", "?")
    fix = (
        "upgrade Holdfast"
        if isinstance(schema, int) and schema > SCHEMA_BUNDLES
        else "read it with that version"
    )
    raise CheckpointRefused(
        f"checkpoint {checkpoint}: schema {schema!r}, written by Holdfast {writer}; this Holdfast reads "
        f"schemas {SCHEMA} and {SCHEMA_BUNDLES}: {fix}"
    )
