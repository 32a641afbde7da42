"""Turn bytes of a log into lines of text that a terminal can show. Pure.

A log may hold anything: other encodings, progress bars, binary data without an end of line. So bytes that are
no UTF-8 are shown as escapes, a carriage return ends a line like a newline, and a line that is too long is
shown in pieces. Control characters are neutralised where it is printed."""

from __future__ import annotations

import codecs

LINE_CHARS_MAX = 16 << 10
"""A longer line is shown in pieces: memory must not grow with a log that has no lines."""


class LogLines:
    """Takes blocks of bytes, and gives whole lines, without their ends."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._rest = ""

    def take(self, data: bytes) -> list[str]:
        """The lines that are complete with these bytes."""
        text = self._rest + self._decoder.decode(data)
        held = text.endswith("\r")  # perhaps the first half of an end of line
        lines = (text[:-1] if held else text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._rest = lines.pop() + ("\r" if held else "")
        while len(self._rest) > LINE_CHARS_MAX:
            lines.append(self._rest[:LINE_CHARS_MAX])
            self._rest = self._rest[LINE_CHARS_MAX:]
        return [piece for line in lines for piece in _pieces(line)]

    def end(self) -> list[str]:
        """What is left: a line without an end."""
        text = (self._rest + self._decoder.decode(b"", final=True)).removesuffix("\r")
        self._rest = ""
        self._decoder.reset()
        return list(_pieces(text)) if text else []


def _pieces(line: str) -> list[str]:
    return [line[at : at + LINE_CHARS_MAX] for at in range(0, len(line), LINE_CHARS_MAX)] or [""]
