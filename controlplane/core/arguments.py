"""A script's arguments as people are shown them: what looks like a secret is hidden."""

from __future__ import annotations

import itertools
import re

HIDDEN = "(hidden)"
_ALONE = frozenset({"token", "password", "passwd", "pwd", "secret", "apikey", "credential", "credentials"})
"""Words that name a secret. Not `tokens`, nor `tokenizer`: those are what scripts are about."""

_BEFORE_KEY = frozenset({"api", "access", "private", "secret", "auth", "account", "encryption"})
_USERINFO = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*://)[^/@\s:]*:[^/@\s]+@", re.IGNORECASE)


def names_a_secret(name: str) -> bool:
    """Whether a flag, or a key, of this name has a secret for a value."""
    parted = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    words = [word for word in re.split(r"[^a-z0-9]+", parted) if word]
    pairs = itertools.pairwise(words)
    return bool(_ALONE & set(words)) or any(a in _BEFORE_KEY and b == "key" for a, b in pairs)


def shown(argv: tuple[str, ...]) -> tuple[str, ...]:
    """The same arguments, with `--api-key VALUE`, `--api-key=VALUE`, `api_key=VALUE` and the user of
    `s3://user:password@host` hidden."""
    words, hide = [], False
    for word in argv:
        name, equals, _ = word.partition("=")
        flag = word.startswith("-")
        if hide and not flag:
            words.append(HIDDEN)
        elif equals and names_a_secret(name):
            words.append(f"{name}={HIDDEN}")
        else:
            words.append(_USERINFO.sub(rf"\g<scheme>{HIDDEN}@", word))
        hide = flag and not equals and names_a_secret(word)
    return tuple(words)
