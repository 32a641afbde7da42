"""Pickles: plain data is read exactly, everything else is refused by name, and nothing of it runs."""

from __future__ import annotations

import os
import pickle
from collections import OrderedDict
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest

from controlplane.cli.doctor.readers import plain_pickle
from controlplane.cli.doctor.readers.plain_pickle import PlainPickleError, loads

PLAIN = {
    "version": "2.9",
    "entries": [{"sizes": [[4, 8], []], "state": None, "retired": True, "id": each} for each in range(40)],
    "numbers": [0, 1, -1, 255, 256, 65_536, -(1 << 31), 1 << 62, -(1 << 70), 1.5, float("inf")],
    "texts": ["", "a", "é" * 200, "x" * 70_000],
    "tuples": ((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)),
    7: {"nested": [[[[["deep"]]]]]},
}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_data_is_read_as_it_was_written(protocol: int) -> None:
    assert loads(pickle.dumps(PLAIN, protocol=protocol)) == PLAIN


@pytest.mark.parametrize("protocol", [2, 5])
def test_values_that_are_used_twice_are_read(protocol: int) -> None:
    shared = [[1, 2], "text"]
    value = {"a": shared, "b": shared, "c": [shared, shared]}
    assert loads(pickle.dumps(value, protocol=protocol)) == value


class Harm:
    """Its pickle makes a folder, where a pickle is run."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_that_calls_something_is_refused_and_not_run(
    protocol: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("harm") / "done"
    with pytest.raises(PlainPickleError, match=r"GLOBAL .*makes no plain data"):
        loads(pickle.dumps({"entries": [Harm(str(folder))]}, protocol=protocol))
    assert not folder.exists()


@pytest.mark.parametrize(
    ("program", "name"),
    [
        (b"\x80\x02cos\nsystem\n(X\x02\x00\x00\x00lstR.", "GLOBAL"),
        (b"\x80\x02(ios\nsystem\n.", "INST"),
        (b"\x80\x02(cos\nsystem\no.", "GLOBAL"),
        (b"\x80\x02]]R.", "REDUCE"),
        (b"\x80\x02]]b.", "BUILD"),
        (b"\x80\x02]]\x81.", "NEWOBJ"),
        (b"\x80\x02X\x01\x00\x00\x00aQ.", "BINPERSID"),
        (b"\x80\x02Pa\n.", "PERSID"),
        (b"\x80\x02\x82\x01.", "EXT1"),
        (b"\x80\x05\x97.", "NEXT_BUFFER"),
        (b"\x80\x022.", "DUP"),
        (b"\x80\x02\xff.", "0xff"),
        (b"\x80\x02I1\n.", "INT"),
    ],
)
def test_every_other_instruction_is_refused_by_name(program: bytes, name: str) -> None:
    with pytest.raises(PlainPickleError, match=f"instruction {name} at byte"):
        loads(program)


@pytest.mark.parametrize("value", [OrderedDict(a=1), datetime(2026, 1, 1, tzinfo=UTC), {1, 2}, b"x" * 9])
def test_objects_that_are_no_plain_data_are_refused(value: object) -> None:
    with pytest.raises(PlainPickleError, match="makes no plain data"):
        loads(pickle.dumps(value, protocol=4))


def test_much_of_little_is_refused() -> None:
    laughs: list[Any] = ["ha"]
    for _ in range(40):
        laughs = [laughs] * 10
    with pytest.raises(PlainPickleError, match="nests more than"):
        loads(pickle.dumps(laughs, protocol=2))
    with pytest.raises(PlainPickleError, match="nests more than"):
        loads(b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b".")
    with pytest.raises(PlainPickleError, match="a text of 1099511627776 bytes"):
        loads(b"\x80\x04\x8d" + (1 << 40).to_bytes(8, "little") + b"x.")
    with pytest.raises(PlainPickleError, match="more than"):
        loads(b"\x80\x02" + b"N" * (plain_pickle.INSTRUCTIONS_MAX + 1))
    with pytest.raises(PlainPickleError, match="a number of 200 bytes"):
        loads(b"\x80\x02\x8a\xc8" + b"\x01" * 200 + b".")


def test_a_memo_of_four_billion_places_takes_no_memory() -> None:
    assert loads(b"\x80\x02Nr\xff\xff\xff\xffj\xff\xff\xff\xff\x86.") == (None, None)


@pytest.mark.parametrize(
    "program",
    [
        b"\x80\x02]q\x00h\x00a.",  # a list within itself
        b"\x80\x02]q\x00]q\x01h\x00ah\x00h\x01a0.",
        b"\x80\x02}q\x00X\x01\x00\x00\x00ah\x00s.",
    ],
)
def test_a_list_that_contains_itself_is_refused(program: bytes) -> None:
    with pytest.raises(PlainPickleError):
        loads(program)


@pytest.mark.parametrize(
    "program",
    [
        b"",
        b".",
        b"NN.",
        b"(.",
        b"a.",
        b"e.",
        b"h\x07.",
        b"K",
        b"Na.",
        b"N(]u.",
        b"]]h",
        b"X\x09\x00\x00\x00ab.",
    ],
)
def test_programs_that_are_damaged_are_refused(program: bytes) -> None:
    with pytest.raises(PlainPickleError):
        loads(b"\x80\x02" + program)
    with pytest.raises(PlainPickleError, match="no pickle of protocol 2"):
        loads(program)


def test_a_protocol_of_the_future_is_refused() -> None:
    with pytest.raises(PlainPickleError, match="pickle protocol 9 is unknown"):
        loads(b"\x80\x09N.")


def test_no_bytes_do_anything_but_be_read_or_refused() -> None:
    """Damage of every kind: cut off, bytes changed, bytes of any kind. Only the one error comes out."""
    random, whole = Random(5), pickle.dumps(PLAIN["entries"], protocol=2)
    read = 0
    for _ in range(3000):
        data = bytearray(whole)
        for _ in range(random.randint(1, 6)):
            data[random.randrange(len(data))] = random.randrange(256)
        try:
            loads(bytes(data[: random.randint(1, len(data))] if random.random() < 0.3 else data))
            read += 1
        except PlainPickleError as error:
            assert str(error)
    assert 0 < read < 3000
