"""Typed data: exact there and back, and nothing hostile gets through."""

from __future__ import annotations

import json
import math
import random
import struct
from collections import Counter, OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import pytest

from holdfast.checkpoint.format.typed import DEPTH_MAX, TypedDataError, decode, encode


def through_json(value: Any) -> Any:
    return decode(json.loads(json.dumps(encode(value), allow_nan=False)))


def same(left: Any, right: Any) -> bool:
    """Equal in type, value, order and bits."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return struct.pack("d", left) == struct.pack("d", right)
    if isinstance(left, dict):
        return same(list(left.items()), list(right.items()))
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        False,
        0,
        -1,
        2**53,
        2**53 + 1,
        -(2**64),
        2**4000,
        0.0,
        -0.0,
        0.1,
        5e-324,
        math.inf,
        -math.inf,
        struct.unpack("d", b"\x01\x00\x00\x00\x00\x00\xf8\x7f")[0],  # a NaN with a payload
        "",
        "naïve \x00 \ud800 😀",
        b"",
        bytes(range(256)),
        [],
        (),
        {},
        [1, (2, [3.0, None]), {"a": (b"x",)}],
        {1: "a", "1": "b", None: "c", (1, "x"): "d", 2.5: "e", b"k": "f"},
        {True: 1, 0: 2},
        {"b": 1, "a": 2},
        OrderedDict([("b", 1), ("a", 2)]),
        Counter({30: 2, 80: 1}),
        {"tensor": 3},
    ],
    ids=repr,
)
def test_there_and_back(value: Any) -> None:
    assert same(through_json(value), value)


def grow(source: random.Random, depth: int) -> Any:
    leaves = [None, True, source.randint(-(2**70), 2**70), source.gauss(0, 1e10), source.randbytes(5), "text"]
    if depth == 0 or source.random() < 0.3:
        return source.choice(leaves)
    parts = [grow(source, depth - 1) for _ in range(source.randrange(4))]
    return source.choice([parts, tuple(parts), {str(index): part for index, part in enumerate(parts)}])


def test_random_structures_there_and_back() -> None:
    source = random.Random(5)
    for _ in range(500):
        value = grow(source, 5)
        assert same(through_json(value), value)


def test_tensors_are_kept_by_the_caller() -> None:
    tensors: list[bytearray] = []

    def keep(value: Any) -> int | None:
        if not isinstance(value, bytearray):
            return None
        tensors.append(value)
        return len(tensors) - 1

    value = {"a": bytearray(b"1"), "b": [bytearray(b"2"), 3]}
    data = encode(value, keep)
    assert decode(data, lambda index: tensors[index]) == value


@pytest.mark.parametrize(
    ("value", "place", "kind"),
    [
        ({"model": [1, {2, 3}]}, r"state\['model'\]\[1\]", "builtins.set"),
        ((Path("x"),), r"state\[0\]", "PosixPath"),
        ({"f": len}, r"state\['f'\]", "builtin_function"),
        (defaultdict(int), "state", "defaultdict"),
        ({frozenset(): 1}, "state", "frozenset"),
        (1j, "state", "complex"),
        (type("MyInt", (int,), {})(3), "state", "MyInt"),
    ],
)
def test_anything_else_is_named_with_its_path(value: Any, place: str, kind: str) -> None:
    with pytest.raises(TypedDataError, match=f"{place}.*{kind}"):
        encode(value)


def test_data_that_contains_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(TypedDataError, match="contains itself"):
        encode(value)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_depth_is_bounded_both_ways() -> None:
    assert through_json(nested(DEPTH_MAX)) == nested(DEPTH_MAX)
    with pytest.raises(TypedDataError, match="nested deeper"):
        encode(nested(DEPTH_MAX + 1))
    with pytest.raises(TypedDataError, match="nested deeper"):
        decode(nested(DEPTH_MAX + 1))


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"a": 1, "b": 2},
        {"pickle": "gASVAAAA"},
        {"__class__": "os.system"},
        {"tuple": 3},
        {"dict": {"a": 1}},
        {"dict": [[1]]},
        {"dict": [[1, 2, 3]]},
        {"dict": [[[1], 2]]},
        {"dict": [[{"dict": []}, 2]]},
        {"dict": [["a", 1], ["a", 2]]},
        {"dict": [[{"tensor": 0}, 1]]},
        {"counter": 1},
        {"bytes": "!"},
        {"bytes": "äö"},
        {"bytes": 7},
        {"int": "xyz"},
        {"int": "f" * 70_000},
        {"int": 4},
        {"float": "00"},
        {"float": "zz" * 8},
        {"float": None},
        {"tensor": -1},
        {"tensor": True},
        {"tensor": "0"},
        {"tensor": 0},
        [1, {"tuple": [{"nope": 1}]}],
    ],
    ids=lambda data: repr(data)[:40],
)
def test_hostile_json_is_refused(data: Any) -> None:
    with pytest.raises(TypedDataError):
        decode(data)
