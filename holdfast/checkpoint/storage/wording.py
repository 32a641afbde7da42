"""Word a storage's failure for people."""

from __future__ import annotations

import re

from holdfast import masking as arguments
from holdfast.checkpoint.errors import StorageError
from holdfast.checkpoint.storage import causes

_PASSWORD = re.compile(r"(?<=://)([^/@:\s]*):[^/\s]*@")


def shown(text: str) -> str:
    """A URL, or a driver's text that repeats one, without secrets."""
    return arguments.query(_PASSWORD.sub(r"\1:...@", text))


def storage_error(url: str, doing: str, error: Exception, tried: str = "") -> StorageError:
    """A StorageError that names the storage, the operation, the cause, what was tried, and the fix."""
    fix = causes.fix(error)
    message = f"storage {url}: {doing}: {shown(causes.words(error))}"
    return StorageError(
        message + (f"; {tried}" if tried else "") + (f"; {fix}" if fix else ""),
        url=url,
        doing=doing,
        fix=fix,
    )
