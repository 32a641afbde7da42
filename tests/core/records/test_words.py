"""Sentences stay readable however many nodes they are about."""

from __future__ import annotations

import pytest

from controlplane.core.records.words import NAMED_MAX, some_of


@pytest.mark.parametrize(
    ("count", "ends"),
    [(1, "n0"), (NAMED_MAX, "n6, n7"), (NAMED_MAX + 1, "n7 and 1 more"), (512, " 504 more")],
)
def test_a_sentence_names_so_many_at_most_and_counts_the_others(count: int, ends: str) -> None:
    said = some_of([f"n{number}" for number in range(count)])
    assert said.startswith("n0") and said.endswith(ends) and len(said) < 60
    assert some_of([]) == ""
