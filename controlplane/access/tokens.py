"""Check bearer tokens against a file of digests, and read our own from a file or the environment.

A line of the server's file is ROLE NAME sha256:HEX [JOB,JOB]. It holds digests only: reading the file does
not let anybody call. A token is compared with every line, each in constant time."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from pathlib import Path

from controlplane.access.callers import Caller, Unauthenticated, caller
from controlplane.access.file_watch import ReloadedFile
from controlplane.settings import SettingsError

VARIABLE = "HOLDFAST_TOKEN"
"""The environment variable that may hold our token instead of a file."""
TOKEN_BYTES_MIN = 24
"""A shorter token could be guessed."""
_TOKEN = re.compile(rf"[\x21-\x7e]{{{TOKEN_BYTES_MIN},1024}}")
_WORDS = 3
"""Words in a line whose caller is not restricted to jobs."""
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
MAKE = "make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'"


class Tokens:
    """The callers by the digests of their tokens. The file is read again when it changes: to remove a line is
    to shut its caller out."""

    def __init__(self, path: str) -> None:
        """Read the file. Raises SettingsError that names the invalid line."""
        self._file = ReloadedFile(path, _read, "tokens")

    def who(self, token: str) -> Caller:
        """Return the caller with this token. Raises Unauthenticated."""
        return self.whose(self.digest(token))

    @staticmethod
    def digest(token: str) -> bytes:
        """Return the digest of a token, as the file has it."""
        return hashlib.sha256(token.encode("utf-8", "replace")).digest()

    def whose(self, digest: bytes) -> Caller:
        """Return the caller whose token has this digest. Raises Unauthenticated."""
        found: Caller | None = None
        for known, whose in self._file.refresh().items():
            if hmac.compare_digest(known, digest):
                found = whose
        if found is None:
            raise Unauthenticated("the token is not valid for this cluster: ask an operator for one")
        return found

    def refresh(self) -> int:
        """Read the file again if it has changed. Return a number that grows with each change."""
        self._file.refresh()
        return self._file.version

    def still(self, digest: bytes) -> Caller | None:
        """Return whom a digest that was accepted before stands for, by the file as it was read last; None:
        nobody any more."""
        return self._file.value.get(digest)


def _read(path: Path) -> dict[bytes, Caller]:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"--tokens {path} cannot be read: {error}; name a text file") from error
    found: dict[bytes, Caller] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if words and not words[0].startswith("#"):
            digest, whose = _line(f"--tokens {path}, line {number}", words)
            found[digest] = whose
            if len(words) == _WORDS and line[-1].isspace():
                raise SettingsError(
                    f"--tokens {path}, line {number} ends in a space where its jobs should be (is a "
                    "variable of a template unset?): name them, or remove the space to allow every job"
                )
    return found


def _line(where: str, words: list[str]) -> tuple[bytes, Caller]:
    digest = _DIGEST.fullmatch(words[2]) if len(words) in (_WORDS, _WORDS + 1) else None
    if digest is None:
        raise SettingsError(
            f"{where}: give ROLE NAME sha256:HEX [JOB,JOB], HEX as `printf %s TOKEN | sha256sum` prints it"
        )
    jobs = words[3].split(",") if len(words) > _WORDS else []
    try:
        return bytes.fromhex(digest[1]), caller(words[0], words[1], jobs, f"token of {words[1]}")
    except Unauthenticated as error:
        raise SettingsError(f"{where}: {error}") from error


def read_token(path: str) -> str:
    """Return our own token, from the file, else from the environment; "" when there is none. Raises
    SettingsError."""
    if path:
        try:
            token = Path(path).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(
                f"--token-file {path} cannot be read: {error}; name the token's file"
            ) from error
    else:
        token = os.environ.get(VARIABLE, "")
    if token and not _TOKEN.fullmatch(token):
        raise SettingsError(
            f"the token of {path or VARIABLE} is invalid: give {TOKEN_BYTES_MIN} or more printable "
            f"characters without spaces; {MAKE}"
        )
    if path and not token:
        raise SettingsError(f"--token-file {path} is empty: {MAKE}")
    return token
