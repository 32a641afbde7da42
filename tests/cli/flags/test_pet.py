"""torchrun's variables: read as torchrun reads them; of its flags none is unknown, and none silently lost."""

from __future__ import annotations

import pytest
from torch.distributed.run import get_args_parser

from controlplane.cli.errors import UsageError
from controlplane.cli.flags.parser import Parser
from controlplane.cli.flags.pet import IN_A_POD, REFUSED, variables
from controlplane.cli.torchrun import COMMANDS


def parser(monkeypatch: pytest.MonkeyPatch, job: str) -> Parser:
    """torchrun's stand-in in the pod of this job; "": on one machine."""
    monkeypatch.setenv("HOLDFAST_JOB", job)
    made = Parser(prog="torchrun")
    made.become(COMMANDS["torchrun"])
    return made


@pytest.mark.parametrize("job", ["", "ns.job"], ids=["machine", "pod"])
def test_every_flag_of_torchruns_is_taken_or_refused_with_a_reason(
    job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = parser(monkeypatch, job)
    refused = REFUSED | (IN_A_POD if job else {})
    for action in get_args_parser()._actions:
        for flag in (each for each in action.option_strings if each not in ("-h", "--help")):
            assert flag.replace("_", "-") in ours._option_string_actions, flag
    for flag, why in refused.items():
        words = [flag] if flag == "--run-path" else [f"{flag}=1"]
        with pytest.raises(UsageError) as told:
            ours.parse_args([*words, "t.py"])
        assert flag in str(told.value) and why in str(told.value)


@pytest.mark.parametrize("job", ["", "ns.job"], ids=["machine", "pod"])
def test_a_variable_counts_less_than_a_word(job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = parser(monkeypatch, job)
    given = {"PET_NNODES": "1:4", "PET_NPROC_PER_NODE": "2", "PET_NODE_RANK": "3", "PET_MODULE": "1"}
    given |= {"PET_STANDALONE": "0", "PET_NO_PYTHON": "0", "PET_CHECKPOINT_EVERY": "5", "PET_OF_OTHERS": "x"}
    words = variables(ours, given)
    values = ours.parse_args([*words, "--nproc_per_node", "8", "mod", "--nnodes", "7"])
    assert (values.nnodes, values.nproc_per_node, values.node_rank) == ((1, 4), 8, "3")
    assert (values.module, values.standalone, values.no_python) == (True, False, False)
    assert values.checkpoint_every == 5 and values.command == ["mod", "--nnodes", "7"]


def test_the_values_of_torchruns_own_parser_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "PET_NPROC_PER_NODE": "2",
        "PET_NODE_RANK": "1",
        "PET_MASTER_ADDR": "a",
        "PET_MASTER_PORT": "29500",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    theirs = get_args_parser().parse_args(["t.py"])
    ours = parser(monkeypatch, "ns.job")
    values = ours.parse_args([*variables(ours, given), "t.py"])
    for name in ("nproc_per_node", "node_rank", "master_addr", "master_port"):
        assert str(getattr(values, name)) == str(getattr(theirs, name))
