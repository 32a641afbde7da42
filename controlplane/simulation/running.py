"""From what a person asks to failures and a run of them."""

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
    from controlplane.simulation.outcome import Outcome


def simulate(setup: Setup, failures: Failures, cpu: Callable[[], float]) -> Outcome:
    """Live through these failures. `cpu` tells the processor time spent so far, in s."""
    with _uncollected():
        return _lived(setup, failures, cpu)


def _lived(setup: Setup, failures: Failures, cpu: Callable[[], float]) -> Outcome:
    world = World(setup, failures)
    began = cpu()
    world.run()
    return outcome.of(world, cpu() - began)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without the collector of cycles: a run makes none, and looking for them in the records of eighty
    thousand ranks again and again took a quarter of its time. What is left of the run goes afterwards."""
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
"""What a sweep may vary, as it is written, and the field of the setup."""


def sweep(text: str) -> tuple[str, list[float]]:
    """`spares=0,2,8` as the field and its values. Raises FailureInputError with the mend."""
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
    """The setup with each of these values."""
    kind = bool if field == "fixed" else int if field in _WHOLE else float
    return [dataclasses.replace(setup, **{field: kind(value)}) for value in values]  # type: ignore[arg-type]
