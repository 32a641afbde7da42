"""torchrun's flags of workers and output: its notation, what is refused, and what is said instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
from torch.distributed.run import get_args_parser

from controlplane.cli.errors import UsageError
from controlplane.cli.flags.job import read_job, unused_flags
from controlplane.cli.flags.torchrun import shown_ranks, streams
from controlplane.cli.main import tree

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

WANTED = (
    "tee redirects log-dir local-ranks-filter role monitor-interval start-method numa-binding "
    "virtual-local-rank nnodes nproc-per-node max-restarts rdzv-id rdzv-backend rdzv-endpoint rdzv-conf "
    "standalone module no-python node-rank master-addr master-port"
).split()


def read(words: str) -> argparse.Namespace:
    values: argparse.Namespace = tree().parse_args(["run", *words.split(), "t.py"])
    return values


@pytest.mark.parametrize("text", ["0", "1", "2", "3", "0:3,1:0", "0:1,1:2", "7:3"])
def test_streams_are_read_as_torchrun_reads_them(text: str) -> None:
    assert streams(text) == Std.from_str(text)


@pytest.mark.parametrize("text", ["4", "x", "0:4", "0:1,", "-1", "0:1 1:2", ""])
def test_what_names_no_streams_is_refused_with_the_notation(text: str) -> None:
    with pytest.raises(UsageError, match=r"--redirects: .*names no streams.*0:3,1:0"):
        tree().parse_args(["run", f"--redirects={text}", "t.py"])


@pytest.mark.parametrize(
    "words",
    [
        "",
        "--redirects 3",
        "--tee 3",
        "--redirects 3 --tee 3",
        "-r 3 -t 1:3",
        "-r 0:3",
        "--tee 1",
        "--local-ranks-filter 0,2",
        "--local_ranks_filter=2 --redirects 0:3",
        "-r 3 -t 0:3,1:3 --local-ranks-filter 1",
    ],
)
def test_the_same_ranks_are_shown_as_by_torchrun(words: str, tmp_path: Path) -> None:
    given = get_args_parser().parse_args([*words.split(), "t.py"])
    wanted = {int(rank) for rank in given.local_ranks_filter.split(",") if rank} or None
    theirs = DefaultLogsSpecs(
        str(tmp_path), Std.from_str(given.redirects), Std.from_str(given.tee), wanted
    ).reify({rank: {} for rank in range(3)})
    shown = [rank for rank in range(3) if theirs.stdouts[rank] == "" or rank in theirs.tee_stdouts]
    assert list(shown_ranks(read(f"{words} --nproc-per-node 3"))) == shown


@pytest.mark.parametrize("words", ["--redirects 1", "-r 0:2", "-r 3 -t 1"])
def test_one_stream_without_the_other_is_refused(words: str) -> None:
    with pytest.raises(UsageError, match="both go into one file here, so give 3 or 0"):
        shown_ranks(read(words))


@pytest.mark.parametrize("words", ["--redirects 0:3,2:3", "--tee 2:3", "--local-ranks-filter 0,2"])
def test_a_local_rank_that_no_node_has_is_refused(words: str) -> None:
    with pytest.raises(UsageError, match=r"names local rank 2, .* --nproc-per-node 2: .* 0 to 1"):
        shown_ranks(read(f"{words} --nproc-per-node 2"))


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        ("--start-method fork", "--start-method has no effect: every rank is a process of its own"),
        ("--monitor_interval=0.5", "--monitor-interval has no effect: the end of a rank is noticed at once"),
        ("--numa-binding node", "--numa-binding has no effect: ranks are not bound to CPUs"),
    ],
)
def test_what_is_done_otherwise_is_said_in_one_line(words: str, instead: str) -> None:
    (line,) = unused_flags(read(words)).splitlines()
    assert line.startswith(instead)


def test_what_the_script_would_miss_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--virtual-local-rank is not possible: .* must see all GPUs"):
        unused_flags(read("--virtual-local-rank"))
    with pytest.raises(UsageError, match="--monitor-interval: 'often' is not a number"):
        unused_flags(read("--monitor-interval often"))


def test_the_role_goes_into_the_ranks_environment() -> None:
    assert dict(read_job(read("--role trainer"), ["t.py"], "j").env) == {"ROLE_NAME": "trainer"}
    assert read_job(read(""), ["t.py"], "j").env == ()


@pytest.mark.parametrize("flag", WANTED)
def test_every_flag_of_torchruns_is_known_in_both_spellings(flag: str) -> None:
    theirs = get_args_parser()._option_string_actions[f"--{flag}"]
    assert f"--{flag.replace('-', '_')}" in theirs.option_strings
    value = {"nnodes": "1", "nproc-per-node": "1", "max-restarts": "1", "start-method": "spawn"}.get(flag)
    value = value or {"numa-binding": "node"}.get(flag, "0")
    for spelling in (f"--{flag}", f"--{flag.replace('-', '_')}"):
        words = [spelling] if theirs.nargs == 0 else [f"{spelling}={value}"]
        assert tree().parse_args(["run", *words, "t.py"]).command == ["t.py"]
