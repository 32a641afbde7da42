"""Bearer tokens: a file of digests on the server's side, a file or the environment on the caller's.

A line of the server's file: ROLE NAME sha256:HEX [JOB,JOB]. Only digests are kept: who reads the file cannot
call. A token is compared with every line, each in constant time."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from pathlib import Path

from controlplane.access.callers import Caller, Unknown, caller
from controlplane.access.rereading import Reread
from controlplane.settings import SettingsError

VARIABLE = "HOLDFAST_TOKEN"
"""Of the environment: a token that is in no file."""
TOKEN_BYTES_MIN = 24
"""A shorter one could be guessed."""
_TOKEN = re.compile(rf"[\x21-\x7e]{{{TOKEN_BYTES_MIN},1024}}")
_WORDS = 3
"""Of a line whose caller is restricted to no job."""
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
MAKE = "make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'"


class Tokens:
    """Whose token is whose. The file is read anew when it changes: a line removed is a caller shut out."""

    def __init__(self, path: str) -> None:
        """Read the file. Raises SettingsError with the line that will not do."""
        self._file = Reread(path, _read, "tokens")

    def who(self, token: str) -> Caller:
        """The caller with this token. Raises Unknown."""
        return self.whose(self.digest(token))

    @staticmethod
    def digest(token: str) -> bytes:
        """What the file keeps of a token."""
        return hashlib.sha256(token.encode("utf-8", "replace")).digest()

    def whose(self, digest: bytes) -> Caller:
        """The caller whose token has this digest. Raises Unknown."""
        found: Caller | None = None
        for known, whose in self._file.refresh().items():
            if hmac.compare_digest(known, digest):
                found = whose
        if found is None:
            raise Unknown("the token is none of this cluster's: ask an operator for one")
        return found

    def refresh(self) -> int:
        """Look at the file; a number that grows with each change of it."""
        self._file.refresh()
        return self._file.version

    def still(self, digest: bytes) -> Caller | None:
        """Whom a digest that was let in before stands for, as the file was when it was looked at last."""
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
                    f"--tokens {path}, line {number} ends in a blank, where its jobs would stand (is a "
                    "variable of a template unset?): name them, or take out the blank for every job"
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
    except Unknown as error:
        raise SettingsError(f"{where}: {error}") from error


def read_token(path: str) -> str:
    """Our own token: of a file, else of the environment; "" when there is none. Raises SettingsError."""
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
            f"the token of {path or VARIABLE} will not do: {TOKEN_BYTES_MIN} or more printable characters "
            f"without spaces; {MAKE}"
        )
    if path and not token:
        raise SettingsError(f"--token-file {path} is empty: {MAKE}")
    return token
