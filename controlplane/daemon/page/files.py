"""Serve the page's own files from the package: read once, sent compressed, sent again only when changed."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from importlib import resources
from typing import TYPE_CHECKING

from controlplane.daemon.page.http import HttpAnswer, HttpRefused

if TYPE_CHECKING:
    from controlplane.daemon.page.http import HttpRequest

_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class Packed:
    """One file: its bytes, the same compressed, its media type, and a tag that changes with it."""

    plain: bytes
    packed: bytes
    kind: str
    tag: str


@cache
def all_files() -> dict[str, Packed]:
    """Return every file of the page, by its name."""
    folder = resources.files("controlplane.daemon.page") / "static"
    found = {}
    for each in folder.iterdir():
        kind = _KINDS.get(each.name[each.name.rfind(".") :])
        if kind is not None:
            plain = each.read_bytes()
            tag = f'"{hashlib.sha256(plain).hexdigest()[:16]}"'
            found[each.name] = Packed(plain, gzip.compress(plain, 9, mtime=0), kind, tag)
    return found


def file(request: HttpRequest, name: str) -> HttpAnswer:
    """Return the answer with a file. Raises HttpRefused when there is no file of this name."""
    found = all_files().get(name)
    if found is None:
        raise HttpRefused(HTTPStatus.NOT_FOUND, f"the page has no file {name!r:.80}")
    headers: tuple[tuple[str, str], ...] = (
        *(("Content-Type", found.kind), ("Cache-Control", "no-cache")),
        *(("ETag", found.tag), ("Vary", "Accept-Encoding")),
    )
    if request.headers.get("if-none-match") == found.tag:
        return HttpAnswer(HTTPStatus.NOT_MODIFIED, b"", headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return HttpAnswer(HTTPStatus.OK, found.packed, (*headers, ("Content-Encoding", "gzip")))
    return HttpAnswer(HTTPStatus.OK, found.plain, headers)
