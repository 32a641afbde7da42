"""Run simulations: one setup with its failures, or a sweep over the values of one field."""

from __future__ import annotations

import dataclasses
import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

from controlplane.simulation import outcome
from controlplane.simulation.failures import FailureInputError
from controlplane.simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from controlplane.simulation.costs import Setup
    from controlplane.simulation.failures import Failures
    from controlplane.simulation.outcome import SimulationOutcome


def simulate(setup: Setup, failures: Failures, cpu: Callable[[], float]) -> SimulationOutcome:
    """Simulate these failures. `cpu` returns the processor time (s) spent so far.

    Raises FailureInputError when the setup is not possible, SimulationError when the core ends the job."""
    with _uncollected():
        return _lived(setup, failures, cpu)


def _lived(setup: Setup, failures: Failures, cpu: Callable[[], float]) -> SimulationOutcome:
    world = World(setup, failures)
    began = cpu()
    world.run()
    return outcome.of(world, cpu() - began)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Pause the garbage collector of cycles, and collect afterwards.

    A run makes no cycles, and to search for them in the records of eighty thousand ranks took a quarter of
    its time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
            gc.collect()


_WHOLE = ("spares", "nodes", "nodes_per_replica", "nodes_min", "fixed")
_SPANS = ("checkpoint_every_s", "stall_s", "step_s", "days")
SWEPT = {name.replace("_", "-"): name for name in (*_WHOLE, *_SPANS)}
"""What a sweep may vary: the name that users write -> the field of `Setup`."""


def sweep(text: str) -> tuple[str, list[float]]:
    """Parse `spares=0,2,8` into a field of `Setup` and its values. Raises FailureInputError."""
    name, equals, values = text.partition("=")
    field = SWEPT.get(name.strip().lstrip("-").replace("_", "-"))
    if not equals or field is None:
        raise FailureInputError(
            f"--compare {text!r}: give NAME=VALUE,VALUE with NAME one of {', '.join(SWEPT)}"
        )
    numbers = []
    for value in values.split(","):
        try:
            numbers.append(float(value))
        except ValueError as error:
            raise FailureInputError(f"--compare {text!r}: {value!r} is no number") from error
        if field == "fixed" and numbers[-1] not in (0, 1):
            raise FailureInputError(f"--compare {text!r}: {value}: give 0 (elastic) or 1 (one size)")
        if field in _WHOLE and numbers[-1] != int(numbers[-1]):
            raise FailureInputError(f"--compare {text!r}: {value} is no whole number")
    return field, numbers


def variants(setup: Setup, field: str, values: Sequence[float]) -> list[Setup]:
    """Return the setup once for each of these values of `field`."""
    kind = bool if field == "fixed" else int if field in _WHOLE else float
    return [dataclasses.replace(setup, **{field: kind(value)}) for value in values]  # type: ignore[arg-type]
