"""Flip one bit in the memory of another process of this machine, through /proc."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

BITS = range(16, 23)
"""Bits of a float of 32 bits that are flipped: the upper ones of its mantissa. Of the lowest ones, the next
step may round the difference away; of the exponent, the loss may not be finite any more, which another policy
judges (`--on-nan`)."""


class MemoryBit(NamedTuple):
    """Bit `number` (0: the lowest) of the word at `address`, in the tensor of this name."""

    tensor: str
    address: int
    number: int


def drawn_bit(tensors: Mapping[str, Any], seed: int) -> MemoryBit:
    """A bit of one of these tensors of 32-bit floats. Each has an `address` and a size in `bytes`."""
    chance = random.Random(seed)
    name = chance.choice(sorted(tensors))
    word = chance.randrange(tensors[name]["bytes"] // 4)
    return MemoryBit(name, tensors[name]["address"] + 4 * word, chance.choice(BITS))


def flip_bit(pid: int, address: int, bit: int) -> None:
    """Flip bit `bit` (0: the lowest) of the byte at `address`, and of those after it from 8 on.

    Raises OSError: the process is gone, has no memory there, or may not be written to."""
    at = address + bit // 8
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        memory.seek(at)
        (found,) = memory.read(1)
        memory.seek(at)
        memory.write(bytes([found ^ 1 << bit % 8]))
