"""Escape what a terminal would obey in text that others wrote.

Exceptions, names and labels may contain escape sequences: these move the cursor, hide lines, rename windows,
and make some terminals type what they contain. Newlines and tabs stay. A character is replaced by its JSON
escape, so that JSON and YAML with such text keep their meaning."""

from __future__ import annotations

import re
from typing import Any

_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters, one and two bytes
    "\u200e\u200f\u2028-\u202e\u2066-\u2069"  # change the direction of text, or end lines
    "\ud800-\udfff]"  # lone surrogates, which no stream can write
)


def neutral(text: str) -> str:
    """The same text with every character escaped that a terminal would obey, except newlines and tabs."""
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class Neutral:
    """A text stream that writes neutral text to `raw` and otherwise behaves like it."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    def write(self, text: str) -> int:
        """Write the text, neutralised; returns the number of characters given."""
        self.raw.write(neutral(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Write the lines one after the other."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


def raw(stream: Any) -> Any:
    """The stream below, for escape sequences of our own."""
    return stream.raw if isinstance(stream, Neutral) else stream
