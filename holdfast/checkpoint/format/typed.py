"""Convert plain data to JSON and back exactly: what a snapshot holds besides tensors. No pickle, no code.

JSON's null, booleans, strings, arrays (lists) and short numbers stand for themselves. Everything else is an
object with one key that names its type: {"tuple": [...]}, {"dict": [[key, value], ...]}, {"bytes": base64},
{"int": hex}, {"float": 16 hex digits of the IEEE bits}, {"tensor": index}. Standard library only: the ranks
import it."""

from __future__ import annotations

import base64
import binascii
import math
import struct
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

DEPTH_MAX = 64
_SHORT_BITS = 53  # longer integers are not safe in every JSON reader
_INT_DIGITS_MAX = 1 << 16
_DOUBLE = struct.Struct(">d")
_MAPPINGS: dict[str, type[Any]] = {"dict": dict, "ordered_dict": OrderedDict, "counter": Counter}
_MAPPING_TAGS = {kind: tag for tag, kind in _MAPPINGS.items()}


class TypedDataError(ValueError):
    """Data that cannot be kept, or foreign JSON. The message names the path to it and its type."""


def encode(value: Any, leaf: Callable[[Any], int | None] | None = None, path: str = "state") -> Any:
    """`value` as JSON data.

    `leaf` is called with what is not plain data (a tensor, say): it keeps the value and returns its index, or
    None to refuse it. Raises TypedDataError for anything else."""
    return _encode(value, leaf or _no_leaf, path, 0)


def decode(data: Any, leaf: Callable[[int], Any] | None = None, path: str = "state") -> Any:
    """What `encode` was given. `leaf` turns an index into the tensor. Raises TypedDataError."""
    return _decode(data, leaf or _no_tensor, path, 0)


def _no_leaf(_: Any) -> int | None:
    return None


def _no_tensor(index: int) -> Any:
    raise TypedDataError(f"a reference to tensor {index}, but no tensor can be here")


def _encode(value: Any, leaf: Callable[[Any], int | None], path: str, depth: int) -> Any:
    if depth > DEPTH_MAX:
        raise TypedDataError(f"{path}: nested deeper than {DEPTH_MAX}, or contains itself")
    encoder = _ENCODERS.get(type(value))
    if encoder is not None:
        return encoder(value, leaf, path, depth)
    index = leaf(value)
    if index is None:
        kind = type(value)
        raise TypedDataError(
            f"{path}: a {kind.__module__}.{kind.__qualname__} cannot be kept in a checkpoint; "
            "keep tensors, numbers, strings, bytes, None, lists, tuples and dicts of them"
        )
    return {"tensor": index}


def _plain(value: Any, *_: Any) -> Any:
    return value


def _encode_int(value: int, *_: Any) -> Any:
    return value if value.bit_length() <= _SHORT_BITS else {"int": f"{value:x}"}


def _encode_float(value: float, *_: Any) -> Any:
    return value if math.isfinite(value) else {"float": _DOUBLE.pack(value).hex()}


def _encode_bytes(value: bytes, *_: Any) -> Any:
    return {"bytes": base64.b64encode(value).decode()}


def _encode_list(value: list[Any], leaf: Callable[[Any], int | None], path: str, depth: int) -> Any:
    return [_encode(item, leaf, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]


def _encode_tuple(value: tuple[Any, ...], leaf: Callable[[Any], int | None], path: str, depth: int) -> Any:
    return {"tuple": _encode_list(list(value), leaf, path, depth)}


def _encode_mapping(value: dict[Any, Any], leaf: Callable[[Any], int | None], path: str, depth: int) -> Any:
    pairs = []
    for key, item in value.items():
        _check_key(key, path)
        place = f"{path}[{key!r:.80}]"
        pairs.append([_encode(key, _no_leaf, place, depth + 1), _encode(item, leaf, place, depth + 1)])
    return {_MAPPING_TAGS[type(value)]: pairs}


def _check_key(key: Any, path: str) -> None:
    if isinstance(key, tuple):
        for part in key:
            _check_key(part, path)
    elif type(key) not in (str, int, bool, float, bytes, type(None)):
        raise TypedDataError(f"{path}: a key of type {type(key).__qualname__} cannot be kept")


_ENCODERS: dict[type[Any], Callable[..., Any]] = {
    type(None): _plain,
    bool: _plain,
    str: _plain,
    int: _encode_int,
    float: _encode_float,
    bytes: _encode_bytes,
    list: _encode_list,
    tuple: _encode_tuple,
    **dict.fromkeys(_MAPPING_TAGS, _encode_mapping),
}


def _decode(data: Any, leaf: Callable[[int], Any], path: str, depth: int) -> Any:
    if depth > DEPTH_MAX:
        raise TypedDataError(f"{path}: nested deeper than {DEPTH_MAX}")
    if isinstance(data, list):
        return [_decode(item, leaf, f"{path}[{index}]", depth + 1) for index, item in enumerate(data)]
    if not isinstance(data, dict):
        return data
    if len(data) != 1:
        raise TypedDataError(f"{path}: an object with {len(data)} keys, one was expected")
    ((tag, content),) = data.items()
    decoder = _DECODERS.get(tag)
    if decoder is None:
        raise TypedDataError(f"{path}: unknown type {tag!r:.80}")
    return decoder(content, leaf, f"{path}", depth, tag)


def _decode_tuple(content: Any, leaf: Callable[[int], Any], path: str, depth: int, _: str) -> Any:
    return tuple(_decode(_expect(content, list, path), leaf, path, depth))


def _decode_mapping(content: Any, leaf: Callable[[int], Any], path: str, depth: int, tag: str) -> Any:
    mapping = _MAPPINGS[tag]()
    for pair in _expect(content, list, path):
        if not isinstance(pair, list) or len(pair) != 2:
            raise TypedDataError(f"{path}: an entry is not a pair of key and value")
        key = _decode(pair[0], _no_tensor, f"{path} (key)", depth + 1)
        _check_key(key, path)
        if key in mapping:
            raise TypedDataError(f"{path}: key {key!r:.80} twice")
        mapping[key] = _decode(pair[1], leaf, f"{path}[{key!r:.80}]", depth + 1)
    return mapping


def _decode_bytes(content: Any, _: Any, path: str, *__: Any) -> bytes:
    try:
        return base64.b64decode(_expect(content, str, path), validate=True)
    except (binascii.Error, ValueError) as error:
        raise TypedDataError(f"{path}: the bytes are not base64: {error}") from error


def _decode_int(content: Any, _: Any, path: str, *__: Any) -> int:
    text = _expect(content, str, path)
    if len(text) > _INT_DIGITS_MAX:
        raise TypedDataError(f"{path}: an integer of {len(text)} digits")
    try:
        return int(text, 16)
    except ValueError as error:
        raise TypedDataError(f"{path}: {text!r:.80} is not a hexadecimal integer") from error


def _decode_float(content: Any, _: Any, path: str, *__: Any) -> float:
    try:
        value: float = _DOUBLE.unpack(bytes.fromhex(_expect(content, str, path)))[0]
    except (ValueError, struct.error) as error:
        raise TypedDataError(f"{path}: a float must be 16 hexadecimal digits") from error
    return value


def _decode_tensor(content: Any, leaf: Callable[[int], Any], path: str, *_: Any) -> Any:
    if type(content) is not int or content < 0:
        raise TypedDataError(f"{path}: a tensor's index must be a number, not {content!r:.80}")
    return leaf(content)


def _expect(content: Any, kind: type[Any], path: str) -> Any:
    if type(content) is not kind:
        raise TypedDataError(f"{path}: {type(content).__name__} where {kind.__name__} was expected")
    return content


_DECODERS: dict[str, Callable[..., Any]] = {
    "tuple": _decode_tuple,
    "bytes": _decode_bytes,
    "int": _decode_int,
    "float": _decode_float,
    "tensor": _decode_tensor,
    **dict.fromkeys(_MAPPINGS, _decode_mapping),
}
