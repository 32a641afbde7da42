"""Refuse callers whose credentials are good: a deny list in a file, read again when it changes.

A line is `serial HEX`, a certificate by its number as `openssl x509 -noout -serial` prints it, or `caller
ROLE/NAME`, whichever credentials that caller shows. A NAME that ends in an asterisk stands for all names that
begin with the rest. What follows a `#` is a comment."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.access.callers import ANY, CallerRole
from controlplane.access.file_watch import ReloadedFile
from controlplane.settings import NAME, SettingsError

if TYPE_CHECKING:
    from pathlib import Path

    from controlplane.access.callers import Caller

_SERIAL = re.compile(r"(?:serial=)?(?:0x)?([0-9A-Fa-f]{1,2}(?::[0-9A-Fa-f]{2})+|[0-9A-Fa-f]{1,64})")
_NAME = re.compile(rf"{NAME.pattern}\*?|\*")


@dataclass(frozen=True, slots=True)
class _Denied:
    """The parsed file: serial numbers, (role, whole name), and (role, beginning of the name)."""

    serials: frozenset[int]
    names: frozenset[tuple[str, str]]
    begins: tuple[tuple[str, str], ...]


class DenyList:
    """One deny list, as its file was read last."""

    def __init__(self, path: str) -> None:
        """Read the file. Raises SettingsError that names the invalid line."""
        self._file = ReloadedFile(path, _read, "deny list")

    def refresh(self) -> int:
        """Read the file again if it has changed. Return a number that grows with each change."""
        self._file.refresh()
        return self._file.version

    def why(self, caller: Caller, serial: int) -> str:
        """Return why this caller is refused; "" when it is not. `serial` is its certificate's number, -1
        without one."""
        entries, role, name = self._file.value, str(caller.role), caller.name
        if serial in entries.serials:
            return f"the certificate {serial:x} of {caller} is on the deny list"
        if (role, name) in entries.names or any(
            role == of and name.startswith(begin) for of, begin in entries.begins
        ):
            return f"{caller} is on the deny list"
        return ""


def _read(path: Path) -> _Denied:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"--deny-list {path} cannot be read: {error}; name a text file") from error
    serials, callers = set(), []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        where = f"--deny-list {path}, line {number}"
        if len(words) != 2 or words[0] not in ("serial", "caller"):
            raise SettingsError(f"{where}: give `serial HEX` or `caller ROLE/NAME`")
        if words[0] == "serial":
            serials.add(_serial(where, words[1]))
        else:
            callers.append(_caller(where, words[1]))
    whole = frozenset(each for each in callers if not each[1].endswith(ANY))
    begins = tuple((role, name.removesuffix(ANY)) for role, name in callers if name.endswith(ANY))
    return _Denied(frozenset(serials), whole, begins)


def _serial(where: str, text: str) -> int:
    found = _SERIAL.fullmatch(text)
    if found is None:
        raise SettingsError(
            f"{where}: {text!r:.80} is not a serial number: give it in hex, as `openssl x509 -noout -serial` "
            "prints it"
        )
    return int(found[1].replace(":", ""), 16)


def _caller(where: str, text: str) -> tuple[str, str]:
    role, _, name = text.partition("/")
    if role not in tuple(CallerRole) or not _NAME.fullmatch(name):
        raise SettingsError(
            f"{where}: {text!r:.80} is not a caller: give ROLE/NAME, ROLE one of {', '.join(CallerRole)}, "
            f"NAME as its certificate or token has it; {ANY} at its end matches all names that begin so"
        )
    return role, name
