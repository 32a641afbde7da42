"""Compare the state of two trainings that took the same steps. Pure but for what the manifests say.

Tensors are compared by the digests of their chunks, plain data (rates, counters, random generators) value by
value. What is in a text of JSON or of lines is, too: a time in it hides nothing that stands beside it."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from controlplane.cli.checkpoint.comparing import compare
from holdfast.checkpoint.format import typed
from holdfast.holds import OF_FAILURES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.checkpoint.format.manifest_records import Manifest, ManifestShard


_BEFORE, _SHOWN = 24, 48
"""Characters that are shown of a value, and how many of them lie before the first that differs."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A tensor or a value that is not the same in both. `shard`: whose it is; "": of all ranks alike."""

    name: str
    shard: str
    what: str
    is_tensor: bool = False

    @property
    def place(self) -> tuple[str, str]:
        """Where it is."""
        return self.name, self.shard

    def __str__(self) -> str:
        whose = f" of {self.shard}" if self.shard else ""
        return f"{self.name}{whose} ({self.what})"


Places = dict[str, str]
"""Folders that one training alone was given, and what stands for them in the plan."""


def between(one: Manifest, other: Manifest, of_one: Places, of_other: Places) -> list[Difference]:
    """All that differs between two checkpoints of the same step, in the order of the first."""
    rows = [Difference(row["name"], row["shard"], row["what"], is_tensor=True) for row in compare(one, other)]
    shards = {shard.shard: shard for shard in other.shards}
    for shard in one.shards:
        if (peer := shards.get(shard.shard)) is not None:
            pair = _renamed(_plain(shard), of_one), _renamed(_plain(peer), of_other)
            rows += [Difference(name, shard.shard, what) for name, what in _values(*pair)]
    return rows


def tensors(manifest: Manifest) -> int:
    """How many tensors a checkpoint holds."""
    return sum(len(shard.tensors) for shard in manifest.shards)


def _plain(shard: ManifestShard) -> dict[str, Any]:
    """The plain data of a shard, with numbers in the places of tensors; but for what the script has made
    where its processes began (`began`): after a restart it also has what was made for later epochs."""
    if not shard.state:
        return {}
    kept = {key: value for key, value in shard.state.items() if key not in ("objects", "began")}
    return kept | dict(typed.decode(shard.state["objects"], lambda number: f"tensor {number}"))


def _renamed(value: Any, places: Places) -> Any:
    """The value with what stands for its training's own folders in its texts, also where these are bytes."""
    if isinstance(value, bytes):
        with contextlib.suppress(UnicodeDecodeError):  # no text
            value = value.decode()
    if isinstance(value, dict):
        return {key: _renamed(each, places) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([_renamed(each, places) for each in value])
    if isinstance(value, str):
        for told, planned in places.items():
            value = value.replace(told, planned)
    return value


def _values(one: Any, other: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """The places at which two values differ, and how."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in [*one, *(key for key in other if key not in one)]:
            below = f"{path}.{key}" if path else str(key)
            if key == OF_FAILURES:
                continue
            if key not in other:
                yield below, "removed"
            elif key not in one:
                yield below, "added"
            else:
                yield from _values(one[key], other[key], below)
    elif isinstance(one, list | tuple) and type(one) is type(other) and len(one) == len(other):
        for at, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from _values(left, right, f"{path}[{at}]")
    elif (parsed := _parsed(one, other)) is not None:
        yield from _values(*parsed, path)
    elif type(one) is not type(other) or repr(one) != repr(other):  # as text: NaN is the same as NaN
        yield path, " and ".join(_shown(repr(one), repr(other)))


def _parsed(one: Any, other: Any) -> tuple[Any, Any] | None:
    """What two texts that differ say, if both are JSON of the same kind or have equally many lines."""
    if not (isinstance(one, str) and isinstance(other, str)) or one == other:
        return None
    try:
        pair = _read(one), _read(other)
    except ValueError:
        lines = one.splitlines(), other.splitlines()
        return lines if len(lines[0]) == len(lines[1]) > 1 else None
    return pair if type(pair[0]) is type(pair[1]) and isinstance(pair[0], dict | list) else None


def _read(text: str) -> Any:
    """What a text of JSON says, as typed data if it is that. Raises ValueError."""
    data = json.loads(text)
    try:
        return typed.decode(data)
    except typed.TypedDataError:
        return data


def _shown(one: str, other: str) -> Iterator[str]:
    """Both texts, from a little before the place where they differ first."""
    pairs = enumerate(zip(one, other, strict=False))
    at = next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))
    begin = max(0, at - _BEFORE)
    for text in (one, other):
        yield f"{'...' if begin else ''}{text[begin : begin + _SHOWN]}"
