"""Lines of any log: in pieces of bounded length, and none is lost."""

from __future__ import annotations

import pytest

from controlplane.reporting.log_lines import LINE_CHARS_MAX, LogLines


def shown(data: bytes, at_once: int) -> list[str]:
    lines = LogLines()
    found = [line for at in range(0, len(data), at_once) for line in lines.take(data[at : at + at_once])]
    return found + lines.end()


@pytest.mark.parametrize("at_once", [1, 2, 3, 1000])
@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"one\ntwo\n", ["one", "two"]),
        (b"one\n\ntwo", ["one", "", "two"]),
        (b"dos\r\nunix\n", ["dos", "unix"]),
        (b"\r 10%\r 20%\rdone\n", ["", " 10%", " 20%", "done"]),
        ("Größe ü €\n".encode(), ["Größe ü €"]),
        (b"bad \xff\xfe byte\n", ["bad \\xff\\xfe byte"]),
        (b"cut \xe2\x82", ["cut \\xe2\\x82"]),
        (b"last\r", ["last"]),
        (b"", []),
    ],
)
def test_lines(data: bytes, found: list[str], at_once: int) -> None:
    assert shown(data, at_once) == found


def test_a_line_without_an_end_is_shown_in_pieces() -> None:
    lines = LogLines()
    pieces = [piece for _ in range(100) for piece in lines.take(b"x" * 10_000)]
    assert max(map(len, pieces)) == LINE_CHARS_MAX
    assert "".join([*pieces, *lines.end()]) == "x" * 1_000_000
    assert len(shown(b"y" * (3 * LINE_CHARS_MAX) + b"\n", 1 << 20)) == 3
