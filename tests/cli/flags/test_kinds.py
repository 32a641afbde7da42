"""KIND/NAME, as kubectl takes it and `get -o name` prints it."""

from __future__ import annotations

import pytest

from controlplane.cli.errors import UsageError
from controlplane.cli.flags.kinds import in_words
from controlplane.cli.main import tree


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("get job/llm", "get job llm"),
        ("get jobs/llm jobs/eval -o json", "get job llm eval -o json"),
        ("get -o json job/llm", "get -o json job llm"),
        ("get job/llm node/n0", "get job llm node/n0"),
        ("describe checkpoint job/10-1", "describe checkpoint job/10-1"),
        ("describe checkpoint/llm/10-1", "describe checkpoint llm/10-1"),
        ("delete job/llm job/eval", "delete job llm eval"),
        ("logs job/llm --rank 0 -f", "logs llm --rank 0 -f"),
        ("wait job/llm --for running", "wait llm --for running"),
        ("drain node/n0", "drain n0"),
        ("why job/1", "why job/1"),
        ("run job/train.py job/llm", "run job/train.py job/llm"),
        ("get jobs", "get jobs"),
        ("", ""),
    ],
)
def test_the_kind_and_the_name_are_told_apart(words: str, meant: str) -> None:
    assert [word for word in in_words(words.split()) if word] == meant.split()


def test_an_unknown_kind_is_named_with_those_that_are_known() -> None:
    with pytest.raises(UsageError, match=r"unknown value 'pod/a'; known: jobs, nodes"):
        tree().parse_args(in_words(["get", "pod/a"]))
    with pytest.raises(UsageError, match=r"unknown value 'job'; did you mean jobs\?|unknown value 'jbs'"):
        tree().parse_args(["get", "jbs"])
