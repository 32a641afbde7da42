"""Test which values have the same number in each process."""

from __future__ import annotations

import functools
from types import MethodType
from typing import Any

import numpy as np
import pytest

from holdfast.clean.looks.alike import digest_of


class Distribution:
    def moment(self, order: int) -> int:
        return order


def as_scipy_does(called: Any) -> MethodType:
    """A method whose function is an object that can be called."""
    return MethodType(called, Distribution())


@pytest.mark.parametrize("called", [np.vectorize(abs), functools.partial(print, end="")])
def test_a_method_of_an_object_counts_as_the_class_of_that_object(called: Any) -> None:
    number = digest_of("moment", as_scipy_does(called))
    assert number == digest_of("moment", called) is not None
    assert number != digest_of("moment", Distribution().moment)


def test_a_method_counts_as_its_function_whichever_object_it_is_of() -> None:
    assert digest_of("m", Distribution().moment) == digest_of("m", Distribution.moment) is not None
    assert digest_of("m", Distribution().moment) != digest_of("m", print)
