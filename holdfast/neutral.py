"""Show text of others on a terminal with what the terminal would obey escaped.

An exception's text, a name, a label may hold escape sequences: they move the cursor, hide lines, rename
windows, and some terminals type what they are told to. Ends of lines and tabs stay. What replaces a character
is its escape in JSON, so that JSON and YAML which hold it stay what they are."""

from __future__ import annotations

import re
from typing import Any

_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters, of one and of two bytes
    "\u200e\u200f\u2028-\u202e\u2066-\u2069"  # what turns the direction of text, or ends lines
    "\ud800-\udfff]"  # halves of a character, which no stream takes
)


def neutral(text: str) -> str:
    """The same text, with nothing in it that a terminal obeys but ends of lines and tabs."""
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class Neutral:
    """A text stream that writes neutral text to `raw`; all else is that stream's."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    def write(self, text: str) -> int:
        """Write it; how many characters were given."""
        self.raw.write(neutral(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Write them, one after the other."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


def raw(stream: Any) -> Any:
    """The stream below, for what our own hand writes to the terminal."""
    return stream.raw if isinstance(stream, Neutral) else stream
