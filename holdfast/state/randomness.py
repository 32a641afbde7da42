"""Seed a step from (seed, step, group) alone, or keep the random generators as they are at its start."""

from __future__ import annotations

import array
import functools
import random
import sys
from typing import Any

import torch

_MASK = (1 << 64) - 1


def mix(value: int) -> int:
    """A 64-bit hash of a 64-bit integer (splitmix64's finaliser)."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def mixed(seed: int, place: int, part: int) -> int:
    """A 64-bit hash of a seed and two numbers that say what it is used for."""
    return mix(mix(mix(seed & _MASK) ^ place) ^ part)


@functools.cache
def _has_cuda() -> bool:
    return torch.cuda.is_available()


def seed_step(seed: int, step: int, group: int) -> None:
    """Seed torch on all devices, random, and numpy if it is loaded.

    `group`: the number of this rank's tensor-parallel group; its ranks draw the same."""
    value = mixed(seed, step, group) >> 1
    torch.default_generator.manual_seed(value)
    if _has_cuda():
        torch.cuda.manual_seed_all(value)
    random.seed(value)
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "random"):
        numpy.random.seed(value & 0xFFFFFFFF)


class GeneratorsAtStart:
    """Generator states at a step's start, for scripts that seed for themselves."""

    def __init__(self) -> None:
        numpy: Any = sys.modules.get("numpy")
        self._torch = torch.default_generator.get_state()
        self._cuda = torch.cuda.get_rng_state_all() if _has_cuda() else None
        self._random = random.getstate()
        self._numpy = numpy.random.get_state() if numpy is not None else None

    def restore(self) -> None:
        """Put the generator states back."""
        torch.default_generator.set_state(self._torch)
        if self._cuda is not None:
            torch.cuda.set_rng_state_all(self._cuda)
        random.setstate(self._random)
        if self._numpy is not None:
            sys.modules["numpy"].random.set_state(self._numpy)


def capture(rank: int) -> dict[str, Any]:
    """The generators' states as plain data, for a snapshot: torch, its GPU, random, numpy if loaded."""
    version, internal, gauss = random.getstate()
    found: dict[str, Any] = {
        "rank": rank,
        "torch": _bytes(torch.default_generator.get_state()),
        "python": (version, array.array("I", internal).tobytes(), gauss),
    }
    if _has_cuda():
        found["cuda"] = _bytes(torch.cuda.get_rng_state())
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        name, keys, *rest = numpy.random.get_state()
        found["numpy"] = (str(name), keys.tobytes(), int(rest[0]), int(rest[1]), float(rest[2]))
    return found


def apply(found: dict[str, Any]) -> None:
    """Restore captured states, as far as they are present.

    Raises LookupError, TypeError, ValueError or RuntimeError if they are malformed."""
    torch.default_generator.set_state(_tensor(found["torch"]))
    version, internal, gauss = found["python"]
    random.setstate((version, tuple(array.array("I", internal)), gauss))
    if "cuda" in found and _has_cuda():
        torch.cuda.set_rng_state(_tensor(found["cuda"]))
    numpy: Any = sys.modules.get("numpy")
    if "numpy" in found and numpy is not None:
        name, keys, *rest = found["numpy"]
        numpy.random.set_state((name, numpy.frombuffer(keys, numpy.uint32), *rest))


def is_generator(thing: Any) -> bool:
    """Whether this is a random generator whose state can be read: torch's, numpy's, or Python's."""
    kind = type(thing)
    kinds: tuple[type[Any], ...] = (torch.Generator, random.Random, *_kinds_of_numpy())
    own = issubclass(kind, kinds) and not issubclass(kind, random.SystemRandom)
    return own and not hasattr(kind, "state_dict")


def state_of(generator: Any) -> Any:
    """The state of a random generator of the script, as plain data (of torch's: a tensor)."""
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    if isinstance(generator, random.Random):
        version, internal, gauss = generator.getstate()
        return version, array.array("I", internal).tobytes(), gauss
    if hasattr(generator, "bit_generator"):
        return _plain(generator.bit_generator.state)
    return _plain(generator.get_state(legacy=False))


def bits_of(generator: Any) -> bytes | str:
    """What `state_of` returns, as something that can be compared and hashed."""
    state = state_of(generator)
    return state.numpy().tobytes() if isinstance(state, torch.Tensor) else repr(state)


def set_state(generator: Any, state: Any) -> None:
    """Give a random generator a state that `state_of` has returned."""
    if isinstance(generator, torch.Generator):
        generator.set_state(state)
    elif isinstance(generator, random.Random):
        version, internal, gauss = state
        generator.setstate((version, tuple(array.array("I", internal)), gauss))
    elif hasattr(generator, "bit_generator"):
        generator.bit_generator.state = _of_numpy(state)
    else:
        generator.set_state(_of_numpy(state))


def seed(generator: Any, value: int) -> None:
    """Seed a random generator of the script with a 63-bit number."""
    if isinstance(generator, torch.Generator):
        generator.manual_seed(value)
    elif isinstance(generator, random.Random):
        generator.seed(value)
    elif hasattr(generator, "bit_generator"):
        bits = generator.bit_generator
        bits.state = type(bits)(value).state
    else:
        generator.seed(value & 0xFFFFFFFF)


def seeded() -> tuple[Any, ...]:
    """The generators that each step is seeded with, as far as they are objects of their own."""
    kinds = _kinds_of_numpy()
    return (torch.default_generator, *([sys.modules["numpy"].random.mtrand._rand] if kinds else ()))


def _kinds_of_numpy() -> tuple[type[Any], ...]:
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or not hasattr(numpy, "random"):
        return ()
    return numpy.random.Generator, numpy.random.RandomState


def _plain(value: Any) -> Any:
    """What numpy gives as a generator's state, as plain data."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if hasattr(value, "tobytes"):
        return (value.dtype.str, value.tobytes()) if value.ndim else value.item()
    return value


def _of_numpy(value: Any) -> Any:
    """What `_plain` was given."""
    if isinstance(value, dict):
        return {key: _of_numpy(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return sys.modules["numpy"].frombuffer(value[1], value[0]).copy()
    return value


def _bytes(state: torch.Tensor) -> bytes:
    return bytes(state.tolist())


def _tensor(state: bytes) -> torch.Tensor:
    return torch.tensor(list(state), dtype=torch.uint8)
