"""The samples are what was written then, and nothing writes them again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.golden import samples, write


@pytest.mark.parametrize("commit", samples.DIGESTS)
def test_the_samples_are_as_they_were_written(commit: str) -> None:
    assert samples.digest(commit) == samples.DIGESTS[commit]


def test_every_folder_has_its_digest() -> None:
    folders = {path.parent.name for path in samples.HERE.glob("*/wire.json")}
    assert folders == set(samples.DIGESTS)
    assert samples.NEWEST in folders


@pytest.mark.parametrize("commit", samples.DIGESTS)
def test_what_is_written_is_not_written_again(commit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_REWRITE", "1")
    with pytest.raises(FileExistsError):
        write.main(str(Path(__file__).parents[2]), str(samples.folder(commit)))
    assert samples.digest(commit) == samples.DIGESTS[commit]


@dataclass(frozen=True)
class _Inner:
    count: int


@dataclass(frozen=True)
class _Outer:
    name: str
    inner: tuple[_Inner, ...]
    newer: int = 5


def test_a_difference_is_named() -> None:
    stated = {"name": "a", "inner": [{"count": 1}, {"count": 2}]}
    assert samples.differs(_Outer("a", (_Inner(1), _Inner(2))), stated) == []
    assert samples.differs(_Outer("b", (_Inner(1), _Inner(2))), stated) == [
        "_Outer.name: 'b', and the sample states 'a'"
    ]
    assert samples.differs(_Outer("a", (_Inner(1), _Inner(3))), stated) == [
        "_Outer.inner[1].count: 3, and the sample states 2"
    ]
    assert len(samples.differs(_Outer("a", (_Inner(1),)), stated)) == 1
    assert samples.differs(_Outer("a", (_Inner(1), _Inner(2)), 6), stated) == [
        "_Outer.newer: 6 is not in the sample, and no default"
    ]
    assert samples.differs(_Inner(1), {"count": 1, "gone": 2}) == ["_Inner.gone: it has no such field"]
    assert samples.differs(_Inner(1), {"count": 1.0}) != []
