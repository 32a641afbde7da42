"""Read a pickle of plain data without running any of it: numbers, texts, None, lists, tuples, dicts.

A pickle is a program. This reads only the instructions that make plain data; there is none among them that
could name or call anything, so nothing has to be forbidden. Every other one is refused by name (GLOBAL,
REDUCE, INST, BUILD, ...). So are programs that make much of little: more instructions than
`INSTRUCTIONS_MAX`, deeper than `DEPTH_MAX`, longer texts than `TEXT_BYTES_MAX`, a list that contains itself.
The standard unpickler is not used: its memo takes memory for the largest number that a file names.

Protocols 2 to 5 (torch writes 2)."""

from __future__ import annotations

import pickletools
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

INSTRUCTIONS_MAX = 4_000_000
"""A dump of 10,000 operations with stacks of 30 frames has about 3.5 million; torch keeps 2,000 operations
unless told otherwise. One instruction takes 200 bytes of memory at most."""
DEPTH_MAX = 16
"""A dump nests 6 deep: dict, entries, entry, frames, frame, text."""
TEXT_BYTES_MAX = 1 << 20
"""The longest text of a dump is the list of a group's ranks: 115 KB for 16,384 ranks."""
NUMBER_BYTES_MAX = 16


class PlainPickleError(ValueError):
    """The bytes are no pickle of plain data. The message says why, and where."""


Container = list[Any] | dict[Any, Any] | tuple[Any, ...]


def loads(data: bytes) -> Any:
    """The value in a pickle. Raises PlainPickleError."""
    if data[:1] != b"\x80":
        raise PlainPickleError(f"it begins with {data[:4]!r}: it is no pickle of protocol 2 or newer")
    machine = _PickleReader(data)
    try:
        return machine.run()
    except (IndexError, struct.error) as error:
        raise PlainPickleError(f"it is cut off or damaged near byte {machine.at}") from error


class _PickleReader:
    """The stack, the memo and the place in the bytes."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.depths: dict[int, int] = {}  # of lists, dicts and tuples, by id
        self.held: set[int] = set()  # those that are within another one
        self.kept: list[Container] = []  # keeps all of them alive, so that no id is used twice

    def run(self) -> Any:
        """Carry out the instructions up to STOP."""
        instructions, data = _INSTRUCTIONS, self.data
        for _ in range(INSTRUCTIONS_MAX):
            code = data[self.at]
            self.at += 1
            if code == _STOP:
                if len(self.stack) != 1 or self.marks:
                    raise PlainPickleError("it ends with less or more than one value")
                return self.stack[0]
            instruction = instructions.get(code)
            if instruction is None:
                raise PlainPickleError(
                    f"instruction {_named(code)} at byte {self.at - 1} makes no plain data"
                )
            instruction(self)
        raise PlainPickleError(f"it has more than {INSTRUCTIONS_MAX} instructions")

    def take(self, count: int) -> bytes:
        """The next bytes. Raises IndexError beyond the end."""
        end = self.at + count
        if end > len(self.data):
            raise IndexError(end)
        found = self.data[self.at : end]
        self.at = end
        return found

    def number(self, form: str) -> int:
        """The next bytes as a number."""
        (found,) = struct.unpack(form, self.take(struct.calcsize(form)))
        return int(found)

    def text(self, size: int) -> None:
        """Push the next bytes as text."""
        if size > TEXT_BYTES_MAX:
            raise PlainPickleError(f"a text of {size} bytes at byte {self.at}, {TEXT_BYTES_MAX} at most")
        try:
            self.stack.append(self.take(size).decode("utf-8", "surrogatepass"))
        except UnicodeDecodeError as error:
            raise PlainPickleError(f"the text at byte {self.at - size} is no UTF-8") from error

    def big_number(self) -> None:
        """Push a number of up to 16 bytes."""
        size = self.number("<B")
        if size > NUMBER_BYTES_MAX:
            raise PlainPickleError(f"a number of {size} bytes at byte {self.at}, {NUMBER_BYTES_MAX} at most")
        self.stack.append(int.from_bytes(self.take(size), "little", signed=True))

    def since_mark(self) -> list[Any]:
        """Take what was pushed since the last mark."""
        mark = self.marks.pop()
        found = self.stack[mark:]
        del self.stack[mark:]
        return found

    def pushed(self, count: int) -> list[Any]:
        """Take the last values."""
        if len(self.stack) < count:
            raise IndexError(count)
        found = self.stack[-count:]
        del self.stack[-count:]
        return found

    def add(self, made: Container) -> None:
        """Push a list, dict or tuple."""
        self.kept.append(made)
        self.depths[id(made)] = 1
        self.stack.append(made)

    def group(self, values: list[Any]) -> None:
        """Push a tuple of these values."""
        made = tuple(values)
        self.add(made)
        self.nest(made, values)

    def nest(self, outer: Container, values: list[Any]) -> None:
        """Note that `outer` contains these values. A list that is within another one grows no more."""
        depth = self.depths[id(outer)]
        for value in values:
            if type(value) in _CONTAINERS:
                inner = id(value)
                self.held.add(inner)
                depth = max(depth, 1 + self.depths[inner])
        if depth > DEPTH_MAX:
            raise PlainPickleError(f"it nests more than {DEPTH_MAX} deep at byte {self.at}")
        self.depths[id(outer)] = depth
        if id(outer) in self.held:
            raise PlainPickleError(f"at byte {self.at} it changes what is within another list already")

    def append(self, values: list[Any]) -> None:
        """Append values to the list on top."""
        target = self.stack[-1]
        if type(target) is not list:
            raise PlainPickleError(f"at byte {self.at} it appends to what is no list")
        self.nest(target, values)
        target.extend(values)

    def assign(self, values: list[Any]) -> None:
        """Set keys of the dict on top: key, value, key, value."""
        target = self.stack[-1]
        if type(target) is not dict or len(values) % 2:
            raise PlainPickleError(f"at byte {self.at} it sets a key of what is no dict")
        self.nest(target, values)
        for key, value in zip(values[::2], values[1::2], strict=True):
            if type(key) not in (str, int):
                raise PlainPickleError(f"a key before byte {self.at} is neither text nor a whole number")
            target[key] = value

    def put(self, place: int) -> None:
        """Remember the value on top."""
        self.memo[place] = self.stack[-1]

    def get(self, place: int) -> None:
        """Push a remembered value."""
        if place not in self.memo:
            raise PlainPickleError(f"value {place}, used before byte {self.at}, was never made")
        self.stack.append(self.memo[place])

    def protocol(self) -> None:
        """Check the protocol."""
        if (version := self.number("<B")) > 5:
            raise PlainPickleError(f"pickle protocol {version} is unknown, 5 is the newest")


_CONTAINERS = (list, dict, tuple)
_STOP = ord(".")
_INSTRUCTIONS: dict[int, Callable[[_PickleReader], object]] = {
    0x80: _PickleReader.protocol,
    0x95: lambda its: its.take(8),  # FRAME: how much to read ahead
    ord("("): lambda its: its.marks.append(len(its.stack)),
    ord("]"): lambda its: its.add([]),
    ord("}"): lambda its: its.add({}),
    ord(")"): lambda its: its.group([]),
    ord("t"): lambda its: its.group(its.since_mark()),
    0x85: lambda its: its.group(its.pushed(1)),
    0x86: lambda its: its.group(its.pushed(2)),
    0x87: lambda its: its.group(its.pushed(3)),
    ord("a"): lambda its: its.append(its.pushed(1)),
    ord("e"): lambda its: its.append(its.since_mark()),
    ord("s"): lambda its: its.assign(its.pushed(2)),
    ord("u"): lambda its: its.assign(its.since_mark()),
    ord("N"): lambda its: its.stack.append(None),
    0x88: lambda its: its.stack.append(True),
    0x89: lambda its: its.stack.append(False),
    ord("K"): lambda its: its.stack.append(its.number("<B")),
    ord("M"): lambda its: its.stack.append(its.number("<H")),
    ord("J"): lambda its: its.stack.append(its.number("<i")),
    0x8A: _PickleReader.big_number,
    ord("G"): lambda its: its.stack.append(struct.unpack(">d", its.take(8))[0]),
    ord("X"): lambda its: its.text(its.number("<I")),
    0x8C: lambda its: its.text(its.number("<B")),
    0x8D: lambda its: its.text(its.number("<Q")),
    ord("q"): lambda its: its.put(its.number("<B")),
    ord("r"): lambda its: its.put(its.number("<I")),
    0x94: lambda its: its.put(len(its.memo)),
    ord("h"): lambda its: its.get(its.number("<B")),
    ord("j"): lambda its: its.get(its.number("<I")),
}
"""What each instruction does. An instruction that is not here is refused."""


def _named(code: int) -> str:
    return next((each.name for each in pickletools.opcodes if each.code == chr(code)), f"0x{code:02x}")
