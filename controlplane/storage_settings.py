"""Decide which storages an agent opens for jobs: those below its allowed URL prefixes. Pure.

URLs are parsed and compared one path segment at a time: `s3://bucket/team` does not allow
`s3://bucket/team2`. A URL that can be read in more than one way is refused (`..` in any encoding, a
backslash, `::` of chained URLs), because the storage's library might read it otherwise than this module."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from controlplane.setting import SettingsError, setting
from holdfast import masking

if TYPE_CHECKING:
    from collections.abc import Callable

FLAG = "--storage-allowed"
LOCAL = "file"
_SAME = {"local": LOCAL, "s3a": "s3", "gcs": "gs"}
"""Other names of a scheme: both name the same storages."""
_DECODINGS_MAX = 8
"""A path segment that is percent-encoded more often than this is refused."""


@dataclass(frozen=True)  # no slots: two bases with slots cannot be combined
class StorageSettings:
    """Settings of the storages that jobs may use."""

    storage_allowed: str = setting(
        "",
        "URL prefixes that the storage of a job must begin with, comma separated, such as "
        "s3://bucket/team,file:///checkpoints; a job with another storage is refused, and that storage is "
        "not opened; empty: any",
    )


@dataclass(frozen=True, slots=True)
class StoragePlace:
    """The place that a URL names. `parts` are the segments of its path."""

    scheme: str
    host: str
    parts: tuple[str, ...]

    @classmethod
    def of(cls, url: str) -> StoragePlace:
        """Parse a URL or a path. Raises ValueError when it can be read in more than one way."""
        if "::" in url or "\\" in url or not url.isprintable():
            raise ValueError("'::', '\\' and invisible characters are not allowed")
        scheme, found, rest = url.partition("://")
        if not found:
            scheme, rest = LOCAL, url
        scheme = _SAME.get(scheme, scheme)
        host, _, path = rest.partition("/")
        if scheme == LOCAL and (host or not rest):
            raise ValueError("a path must begin with '/'")
        if scheme != LOCAL and ("?" in rest or "#" in rest):
            raise ValueError("'?' and '#' are not allowed")
        parts = path.removesuffix("/").split("/") if path else []
        if any(_climbs(part) for part in parts):
            raise ValueError("'.' and '..' between slashes are not allowed, percent-encoded or not")
        kept = [part for part in parts if part or scheme != LOCAL]  # a bucket's names may have empty ones
        return cls(scheme, host, tuple(kept))

    def below(self, prefix: StoragePlace) -> bool:
        """Return whether this place is `prefix` or lies below it. A prefix without host and path allows its
        whole scheme."""
        whole = not prefix.host and not prefix.parts
        if self.scheme != prefix.scheme or not (whole or self.host == prefix.host):
            return False
        return self.parts[: len(prefix.parts)] == prefix.parts

    def really(self, real: Callable[[str], str]) -> StoragePlace:
        """Return this place with its links resolved by `real`; only a path on this machine can have links."""
        return StoragePlace.of(real("/" + "/".join(self.parts))) if self.scheme == LOCAL else self


class Allowed:
    """The URL prefixes that one agent allows; without any, it allows every storage."""

    def __init__(self, text: str) -> None:
        """Parse the setting. Raises SettingsError that names an invalid prefix."""
        self._text = ", ".join(part for each in text.split(",") if (part := each.strip()))
        self._prefixes = tuple(_prefix(part) for part in self._text.split(", ") if part)
        if text and not self._prefixes:
            raise SettingsError(f"{FLAG} {text!r} names no prefix: give one, or leave the flag out")

    def refusal(self, url: str, real: Callable[[str], str] = str) -> str:
        """Return why a job's storage is refused; "" when it is allowed, or when `url` is empty.

        `real` resolves the links of a path. The storage must lie below a prefix both before and after links
        are resolved."""
        if not url or not self._prefixes:
            return ""
        try:
            place = StoragePlace.of(url)
            held = any(
                place.below(prefix) and place.really(real).below(prefix.really(real))
                for prefix in self._prefixes
            )
            why = "is outside of what this agent may open"
        except ValueError as error:
            held, why = False, f"cannot be compared with what this agent may open: {error}"
        if held:
            return ""
        return (
            f"storage {masking.url(url)} {why} ({FLAG} {masking.url(self._text)}): submit the job with a "
            "storage below one of these, or have the agents' operator allow it"
        )


def check_storages(settings: StorageSettings) -> None:
    """Raise SettingsError on invalid prefixes."""
    Allowed(settings.storage_allowed)


def _prefix(text: str) -> StoragePlace:
    try:
        return StoragePlace.of(text)
    except ValueError as error:
        raise SettingsError(
            f"{FLAG} {masking.url(text)} is not a prefix of storages ({error}): give it as s3://bucket/team "
            "or file:///checkpoints"
        ) from error


def _climbs(part: str) -> bool:
    """Return whether a segment, decoded any number of times, is `.` or `..` or contains a separator."""
    for _ in range(_DECODINGS_MAX):
        if part in (".", "..") or "/" in part or "\\" in part or "\0" in part:
            return True
        decoded = unquote(part)
        if decoded == part:
            return False
        part = decoded
    return True
