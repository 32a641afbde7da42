"""Hide values that look like secrets in a script's arguments before they are shown to people."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

HIDDEN = "(hidden)"
_ALONE = frozenset({"token", "password", "passwd", "pwd", "secret", "apikey", "credential", "credentials"})
"""Words that name a secret by themselves. `tokens` and `tokenizer` are not among them: scripts use those for
text."""

_BEFORE_KEY = frozenset({"api", "access", "private", "secret", "auth", "account", "encryption"})
"""Words that name a secret when `key` follows, as in `api_key`."""
_USERINFO = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*://)(?P<user>[^/@\s:]*:[^/\s]+)@", re.IGNORECASE)
_VALUE = re.compile(r"(?P<name>[?&;](?P<bare>[^=&;#\s]*)=)(?P<value>[^&;#\s]+)")
_NAMED = re.compile(
    r"(?P<name>\b[A-Za-z][\w.-]{0,60})(?P<is>[\"']?\s{0,4}(?:=|:)\s{0,4}[\"']?(?:Bearer |Basic )?)"
    r"(?P<value>[^\s\"',;&)}\]]{1,400})"
)
_BARE = re.compile(
    r"\b(?:Bearer|Basic) [\w.~+/-]{8,400}=*"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\b(?:hf|ghp|gho|ghs|glpat|sk|xoxb|xoxp)[_-][\w-]{16,200}"
    r"|\beyJ[\w-]{8,400}\.[\w-]{8,2000}\.[\w-]{0,400}"
)
"""Values that are secrets by their form: tokens of clouds and forges, JSON web tokens."""
_SIGNED = frozenset({"sig", "signature", "x-amz-signature", "x-goog-signature", "sas"})


def names_a_secret(name: str) -> bool:
    """Whether a flag or key of this name has a secret as its value."""
    parted = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    words = [word for word in re.split(r"[^a-z0-9]+", parted) if word]
    pairs = itertools.pairwise(words)
    return bool(_ALONE & set(words)) or any(a in _BEFORE_KEY and b == "key" for a, b in pairs)


def url(text: str, word: Callable[[str], str] = lambda value: HIDDEN) -> str:
    """The text with the `user:password` of each URL, and secret values in its query, replaced by
    `word(value)`."""
    return query(_USERINFO.sub(lambda found: f"{found['scheme']}{word(found['user'])}@", text), word)


def query(text: str, word: Callable[[str], str] = lambda value: HIDDEN) -> str:
    """The text with only the secret values in the queries of URLs replaced by `word(value)`."""

    def value(found: re.Match[str]) -> str:
        name = found["bare"]
        secret = names_a_secret(name) or name.lower() in _SIGNED
        return found["name"] + word(found["value"]) if secret else found[0]

    return _VALUE.sub(value, text) if "://" in text else text


def shown(argv: tuple[str, ...]) -> tuple[str, ...]:
    """The arguments with secrets hidden: `--api-key VALUE`, `--api-key=VALUE`, `api_key=VALUE`, the user of
    `s3://user:password@host`, and secrets in the queries of URLs."""
    words, hide = [], False
    for word in argv:
        name, equals, _ = word.partition("=")
        flag = word.startswith("-")
        if hide and not flag:
            words.append(HIDDEN)
        elif equals and names_a_secret(name):
            words.append(f"{name}={HIDDEN}")
        else:
            words.append(url(word))
        hide = flag and not equals and names_a_secret(word)
    return tuple(words)


def line(text: str) -> str:
    """A line of a log with secrets hidden: `password=VALUE`, `"api_key": "VALUE"`, tokens that are known by
    their form, and those in URLs. Rather too much is hidden than too little."""

    def value(found: re.Match[str]) -> str:
        name = found["name"]
        return f"{name}{found['is']}{HIDDEN}" if names_a_secret(name) else found[0]

    return _BARE.sub(HIDDEN, _NAMED.sub(value, url(text)))
