"""Tell that ranks run different code: a script edited while it trains, or a node with other libraries.

A process that replaces a dead rank reads the script and its modules from the disk, and the survivors go on
with what they have read. All replicas still hold equal state then, so nothing else would show it. Each
generation compares one number of each rank; where these differ, one rank of each kind gives its names."""

from __future__ import annotations

import hashlib
import json
import linecache
import logging
import os
import platform
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

from holdfast.agreement.differing import listed
from holdfast.clean.looks.naming import shown
from holdfast.groups import transfer
from holdfast.groups.groups import carrier
from holdfast.launch.imports import libraries
from holdfast.state import sums

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.rank_state import RankState

KINDS_MAX = 4
"""Kinds of ranks, by what they run, whose names are exchanged: the most frequent ones."""
_NAMED_MAX = 3
_FILE_BYTES_MAX = 16 << 20
_VERSION = "version "
_LIBRARY_FOLDERS = ("/site-packages/", "/dist-packages/")
Code = dict[str, str]
"""By name: the digest of each file that is not a library's, and the version of each library."""
log = logging.getLogger("holdfast.sdk")


class RunningCode:
    """What this process runs, compared with what the other ranks run.

    A file counts as it was when it was first looked at: when there is a session, and when the process first
    waits for the others. What is imported later does not count: ranks may do that at different times."""

    def __init__(self, state: RankState) -> None:
        self._state = state
        self._code = found({})
        self._number: int | None = None
        self._told = ""

    def number(self) -> int:
        """One number for all of it, as an int64."""
        if self._number is None:
            self._code |= found(self._code)
            self._number = sums.signed(sums.text(json.dumps(sorted(self._code.items())).encode()))
        return self._number

    @property
    def names(self) -> Code:
        """What runs, by name, where `number` was asked for."""
        return self._code

    def compare(self, numbers: Sequence[int]) -> None:
        """Note what the incident is to say if ranks run different code. Every rank calls it with the numbers
        of all."""
        kinds = Counter(numbers).most_common(KINDS_MAX)
        if len(kinds) == 1:
            return
        device = carrier(self._state.backend, self._state.device)
        ranks = [[rank for rank, number in enumerate(numbers) if number == kind] for kind, _ in kinds]
        codes = [transfer.tell(self._code, each[0], self._state.rank, device) for each in ranks]
        words = described(ranks, codes)
        if self._state.rank or not words:
            return
        self._state.inexact.append(words)
        if words != self._told:
            log.warning("%s: what is trained from now on is computed by both", words)
        self._told = words


def described(ranks: Sequence[Sequence[int]], codes: Sequence[Code]) -> str:
    """What differs between kinds of ranks, the most frequent first; "": nothing that two of them both have.
    A module that only some ranks import is no difference."""
    texts = []
    for at in range(1, len(codes)):
        base, own = codes[0], codes[at]
        names = [name for name in own if name in base and own[name] != base[name]]
        if names:
            named, more = shown([_named(name, own[name], base[name]) for name in names], _NAMED_MAX)
            verb = "runs" if len(ranks[at]) == 1 else "run"
            texts.append(f"{listed(ranks[at])} {verb} another {named}{more} than rank {ranks[0][0]}")
    return "; ".join(texts)


def _named(name: str, own: str, base: str) -> str:
    return f"{name} ({own}, not {base.removeprefix(_VERSION)})" if own.startswith(_VERSION) else name


def found(known: Code) -> Code:
    """What is imported now and not known yet."""
    code = {"Python": _VERSION + platform.python_version()}
    outside = libraries()
    for name, module in list(sys.modules.items()):
        values: dict[str, Any] = getattr(module, "__dict__", {})
        path = values.get("__file__")
        if not isinstance(path, str) or name.partition(".")[0] == "holdfast":
            continue
        if path.startswith(outside) or any(each in path for each in _LIBRARY_FOLDERS):
            version = values.get("__version__")
            if "." not in name and isinstance(version, str):
                code[name] = _VERSION + version
        elif (file := _file(name, path)) not in known and (digest := _digest(name, path)):
            code[file] = digest
    return code


def _file(name: str, path: str) -> str:
    """What a module's file is called wherever it lies: `loss.py`, `model/layers.py`."""
    base = os.path.basename(path)
    folder = name.split(".") if base.startswith("__init__.") else name.split(".")[:-1]
    return "/".join([*folder, base])


def _digest(name: str, path: str) -> str:
    """The digest of a file's text, "" if there is none. The launcher keeps that of the script as it was
    run."""
    kept = linecache.cache.get(path) if name == "__main__" else None
    if kept is not None and len(kept) == 4 and kept[1] is None:
        data = "".join(kept[2]).encode()
    else:
        try:
            if os.path.getsize(path) > _FILE_BYTES_MAX:
                return ""
            with open(path, "rb") as file:
                data = file.read()
        except OSError:  # in an archive, or removed
            return ""
    return hashlib.blake2s(data, digest_size=8).hexdigest()
