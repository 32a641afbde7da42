"""Take what only the script knows of its steps: other work than training, and what it counts."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import operator
import time
from typing import TYPE_CHECKING, TypedDict

import torch

from holdfast.anatomy import policy
from holdfast.anatomy.phases import DATA, DECLARED
from holdfast.errors import SessionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.anatomy.recorder import StepRecorder
    from holdfast.ipc.progress_marks import ProgressMarks


@contextlib.contextmanager
def phase(progress: ProgressMarks, times: StepRecorder, name: str, timeout_s: float | None) -> Iterator[None]:
    """Declare slow work. "data" is a wait for data; the other names are no phase of training.

    Raises SessionError for an unknown name or an impossible time."""
    began_ns, facts = time.monotonic_ns(), times.facts
    try:
        with progress.phase(name, timeout_s), times.within(DATA if name == "data" else DECLARED):
            yield
    finally:
        if facts is not None and times.running and name in facts.declared_ns:
            facts.declared_ns[name] += time.monotonic_ns() - began_ns


class ComputeNumbers(TypedDict, total=False):
    """What `session.declare_compute` takes (`holdfast.anatomy.compute.DeclaredCompute`)."""

    layers: int
    hidden: int
    sequence: int
    parameters: int
    dtype: str
    peak_flops: float


def declare_compute(times: StepRecorder, numbers: ComputeNumbers) -> None:
    """Say what a token costs and what the device can do. What is declared again replaces what was.

    Raises SessionError for an unknown name, an impossible number, or a type that torch does not have."""
    for name, value in numbers.items():
        if name not in ComputeNumbers.__annotations__:
            known = ", ".join(ComputeNumbers.__annotations__)
            raise SessionError(f"declare_compute: {name!r} is not one of {known}")
        if name == "dtype":
            if not isinstance(getattr(torch, str(value), None), torch.dtype):
                raise SessionError(f"declare_compute: dtype must be a name as 'bfloat16', not {value!r:.80}")
        elif name == "peak_flops":
            _positive("declare_compute", name, value, policy.FLOPS_MAX)
        else:
            _whole("declare_compute", name, value, policy.PARAMETERS_MAX)
    if times.facts is not None:
        times.facts.declared = dataclasses.replace(times.facts.declared, **numbers)
        times.facts.forget()


def _whole(what: str, name: str, value: object, limit: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= limit:
        raise SessionError(f"{what}: {name} must be an integer from 0 to {limit:g}, not {value!r:.80}")


def _positive(what: str, name: str, value: object, limit: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= limit:
        raise SessionError(f"{what}: {name} must be a number above 0, up to {limit:g}, not {value!r:.80}")


def count(times: StepRecorder, tokens: object, flops: object) -> None:
    """Add to the running step. Raises SessionError for an impossible number."""
    times.count(int(_checked("tokens", tokens)), _checked("flops", flops))


def _checked(name: str, value: object) -> float:
    limit = policy.TOKENS_MAX if name == "tokens" else policy.FLOPS_MAX
    try:
        number = operator.index(value) if name == "tokens" else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError, RuntimeError):  # RuntimeError: a tensor of several elements
        number = math.nan
    if not 0 <= number <= limit:
        kind = "an integer" if name == "tokens" else "a number"
        raise SessionError(f"count: {name} must be {kind} from 0 to {limit:g}, not {value!r:.80}")
    return number
