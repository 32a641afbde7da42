"""Parameters that move outside of their optimizer's step are noticed, whatever wrote to them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from holdfast.clean.owned import Owned
from holdfast.clean.samples import ChosenValues, DeviceValues


def test_parameters_that_move_before_their_optimizer_are_noticed() -> None:
    parameters = [torch.randn(50, 20, requires_grad=True) for _ in range(3)]
    owned = Owned()
    owned.arm(parameters)
    for _ in range(4):
        owned.begin()
        assert owned.moved() == []
        with torch.no_grad():
            parameters[0].mul_(0.9)
        assert owned.moved() == parameters[:1]
        owned.end_of_optimizers(decides=True)
        assert owned.moved() == []
    noticed = set()
    for _ in range(
        100
    ):  # beyond the first steps some values are looked at now and then, all bits at the hundredth
        owned.begin()
        parameters[2].data.mul_(0.99)
        noticed |= {id(found) for found in owned.moved()}
    assert noticed == {id(parameters[2])}


class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what torch computes."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return function(*args, **(kwargs or {}))


def test_samples_on_a_device_are_compared_together() -> None:
    """Each comparison by itself takes some microseconds, and on a GPU waits for it."""
    counts = []
    for number in (2, 40):
        tensors = [torch.randn(50, 20) for _ in range(number)]
        samples = DeviceValues(list(enumerate(tensors)))
        seen = samples.take()
        with Operations() as operations:
            assert samples.changed(seen) == set()
        counts.append(operations.count)
        tensors[1].mul_(0.99)
        assert samples.changed(seen) == {1}
    assert counts[0] == counts[1] > 0


def test_samples_on_the_host_are_compared_without_torch() -> None:
    owned = Owned()
    owned.arm([torch.randn(50, 20, requires_grad=True) for _ in range(40)])
    with Operations() as operations:
        for _ in range(3):
            owned.begin()
        before = operations.count
        owned.begin()
        assert owned._seen is not None, "the first steps are over: samples are compared"
        assert owned.moved() == []
    assert operations.count == before


@pytest.mark.parametrize(
    "dtype",
    [
        *(torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn),
        *(torch.complex64, torch.complex128),
    ],
)
def test_samples_of_every_dtype_show_a_write_that_no_counter_counts(*, dtype: torch.dtype) -> None:
    tensors = [torch.ones(size, dtype=dtype) for size in ((), (3,), (31, 5), (100, 100))]
    tensors += [torch.empty(0, dtype=dtype), torch.ones(4, 4, dtype=dtype).t()]
    samples = ChosenValues(tensors)
    seen = samples.take()
    for index, tensor in enumerate(tensors):
        tensor.detach().fill_(2)
        left_out = not tensor.numel() or not tensor.is_contiguous()
        assert samples.changed(seen) == (set() if left_out else {index})
        tensor.detach().fill_(1)
    assert samples.changed(seen) == set()


def test_samples_of_tensors_between_two_words_and_of_several_dtypes() -> None:
    """A write shows wherever the memory begins, and only in the tensor that was written to."""
    area = bytearray(4097)
    between = torch.frombuffer(area, dtype=torch.float32, offset=1, count=1000)
    tensors = [between, torch.ones(7, dtype=torch.float64), torch.ones(9), torch.ones(5, dtype=torch.int16)]
    samples = ChosenValues(tensors)
    seen = samples.take()
    assert tensors[0].data_ptr() % 4
    for index, tensor in enumerate(tensors):
        before = tensor.clone()
        tensor.fill_(2)
        assert samples.changed(seen) == {index}
        assert samples.changed(seen, gone={index}) == set()
        tensor.copy_(before)
    assert samples.changed(seen) == set()


def test_memory_that_a_parameter_no_longer_has_is_not_read() -> None:
    parameters = [torch.randn(50, 20, requires_grad=True) for _ in range(3)]
    owned = Owned()
    owned.arm(parameters)
    for _ in range(4):
        owned.begin()
    assert owned._seen is not None
    parameters[0].untyped_storage().resize_(0)
    parameters[1].data = parameters[1].data.clone()
    parameters[2].data.mul_(0.99)
    assert owned.moved() == parameters


def test_comparing_samples_takes_its_share_of_the_time_and_no_more() -> None:
    """By this clock a comparison takes two seconds, and a step without one 120."""
    idle_s, ticks = 0, itertools.count()
    owned = Owned(clock=lambda: float(next(ticks) + idle_s))
    owned.arm([torch.randn(50, 20, requires_grad=True)])
    costs = []
    for _ in range(90):
        owned.begin()
        assert owned.moved() == []
        costs.append(2 * (owned._seen is not None))
        idle_s += 120
    later = costs[20:]
    assert 0 < sum(later) <= 0.004 * 120 * len(later) and max(later) > 0.004 * 120
