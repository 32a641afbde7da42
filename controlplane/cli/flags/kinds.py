"""Take KIND/NAME, as kubectl does and `holdfast get -o name` prints it: `get job/a`, `logs job/a`. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_OF_A_KIND = frozenset({"get", "describe", "delete"})
_OF_A_JOB = frozenset({"logs", "wait", "stacks", "stop", "pause", "resume"})
_OF_A_NODE = frozenset({"drain", "cordon", "uncordon"})
_KIND = r"(job|node|rank|checkpoint)s?"
_NAMED = re.compile(rf"{_KIND}/(.+)", re.DOTALL)


def in_words(words: Sequence[str]) -> list[str]:
    """The words of a command line, with the kind and the name of KIND/NAME apart; or the name alone, where
    the command is about one kind, or the kind has been given."""
    command, kind = (words[0] if words else ""), ""
    if command in _OF_A_JOB | _OF_A_NODE:
        kind = "job" if command in _OF_A_JOB else "node"
    elif command not in _OF_A_KIND:
        return list(words)
    found, given = [command], kind != ""
    for word in words[1:]:
        named = _NAMED.fullmatch(word)
        if not given and re.fullmatch(_KIND, word):
            given = True  # what follows are names, as they are: a job may be called so too
        elif named is not None and not given:
            given, kind = True, named[1]
            found.append(kind)
        found.append(named[2] if named is not None and named[1] == kind else word)
    return found
