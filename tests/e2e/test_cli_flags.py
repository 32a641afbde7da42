"""The command line as a stranger meets it: help, exit codes, errors that name the thing and the mend."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from controlplane.cli.errors import UsageError
from controlplane.cli.flags.job import job_name, read_job
from controlplane.cli.flags.parser import Parser
from controlplane.cli.flags.settings import as_flags, read_settings
from controlplane.cli.main import COMMANDS, main, tree
from controlplane.cli.simulate import EPILOG
from controlplane.settings import AgentSettings, CoordinatorSettings, check_agent, check_coordinator
from holdfast.version import __version__

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


def holdfast(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The real program in a process of its own."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "controlplane", *words],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=cwd,
        check=False,
    )


def run_flags(words: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """What `holdfast run` reads from these words: its flags, and the script with its arguments."""
    values = tree().parse_args(["run", *words])
    return values, values.command


def refused(*words: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that these words are refused with."""
    assert main(words) == 2
    said = capsys.readouterr().err
    assert said.startswith("holdfast") and "Traceback" not in said
    return said


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text("print('hello')\n")
    return str(path)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    assert f"holdfast {command}" in capsys.readouterr().out


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from controlplane.cli.main import main; main(['run', '--help']); "
        "sys.exit(', '.join({'grpc', 'torch', 'rich', 'fsspec', 'asyncio'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


def test_overview_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in COMMANDS) and "exit codes" in said
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"holdfast {__version__}\n"
    assert main([]) == 2


def test_unknown_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert "did you mean status?" in refused("staus", capsys=capsys)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["run", "--nproc", "2"], "--nproc-per-node"),
        (["run", "--nnode=2"], "--nnodes"),
        (["run", "--storag", "x"], "--storage"),
        (["coordinator", "--node-timeout", "3"], "--node-timeout-s"),
        (["agent", "--beat-intervall-s", "3"], "--beat-interval-s"),
        (["get", "rnks"], "ranks"),
        (["get", "jobs", "-o", "jason"], "json"),
        (["demo", "--kill", "rnk=2@step=3"], "rank"),
    ],
)
def test_unknown_flag_or_value_names_the_nearest(
    words: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"did you mean {hint}?" in refused(*words, capsys=capsys)


@pytest.mark.parametrize(
    ("flag", "value", "reason"),
    [
        ("--spares", "-1", "0 or more"),
        ("--nproc-per-node", "0", "1 or more"),
        ("--nproc-per-node", "two", "neither a number"),
        ("--nnodes", "0", "1 or more"),
        ("--nnodes", "3:2", "2:3"),
        ("--nnodes", "many", "MIN:MAX"),
        ("--max-restarts", "-2", "0 or more"),
        ("--snapshot-every", "0", "1 or more"),
        ("--process-timeout-s", "0.5", "must be less than"),
        ("--lease-ttl-s", "nan", "not a number"),
    ],
)
def test_impossible_values_are_refused(
    flag: str, value: str, reason: str, script: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused("run", f"{flag}={value}", script, capsys=capsys)
    assert reason in said and flag in said


def test_cadences_that_do_not_fit(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused("run", "--snapshot-every", "7", "--checkpoint-every", "10", script, capsys=capsys)
    assert "not a multiple" in said and "14" in said


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--checkpoint-auto --checkpoint-every 50", "drop it, or --checkpoint-every"),
        ("--checkpoint-auto --checkpoint-every-s 5", "drop it, or --checkpoint-every-s"),
        ("--keep-every 1000", "give --keep-last N too"),
        ("--commit-when first", "give --mirror URL"),
        ("--mirror /b", "name the first with --storage URL"),
        ("--storage /b --mirror file:///b", "name another place"),
        ("--checkpoint-every-s nan", "--checkpoint-every-s: 'nan' is not a finite number"),
        ("--scrub-every-s -1", "0 or more"),
        ("--codec gzip", "none, zstd, auto"),
    ],
)
def test_checkpoint_flags_that_contradict(
    flags: str, words: str, script: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert words in refused("run", *flags.split(), script, capsys=capsys)


def test_script_not_found_names_a_similar_one(
    script: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert "did you mean train.py?" in refused("run", str(tmp_path / "trian.py"), capsys=capsys)
    assert "is a folder" in refused("run", str(tmp_path), capsys=capsys)
    assert "no script given" in refused("run", "--nnodes", "2", capsys=capsys)
    assert "module" in refused("run", "-m", "no_such_module_anywhere", capsys=capsys)
    assert "program" in refused("run", "--no-python", "no-such-program-anywhere", capsys=capsys)


@pytest.mark.parametrize("url", ["s4://bucket/x", "file://relative/path", "/proc/no/such/folder"])
def test_storage_that_will_not_do(url: str, script: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "storage" in refused("run", "--storage", url, script, capsys=capsys)


def test_both_spellings_and_what_belongs_to_the_script() -> None:
    words = [
        "--nproc_per_node=2",
        "--nnodes",
        "1:3",
        "--max_restarts",
        "1",
        "train.py",
        "--nnodes",
        "9",
        "-x",
    ]
    values, command = run_flags(words)
    assert (values.nproc_per_node, values.nnodes, values.max_restarts) == (2, (1, 3), 1)
    assert command == ["train.py", "--nnodes", "9", "-x"]


def test_double_dash_ends_the_flags() -> None:
    values, command = run_flags(["--spares", "1", "--", "-odd-name.py", "-v"])
    assert values.spares == 1 and command == ["-odd-name.py", "-v"]


def test_more_ranks_than_cores_is_fine() -> None:
    values, _ = run_flags(["--nproc-per-node", str(8 * (os.cpu_count() or 1)), "x.py"])
    assert values.nproc_per_node == 8 * (os.cpu_count() or 1)
    assert run_flags(["--nproc-per-node", "cpu", "x.py"])[0].nproc_per_node >= 1


def test_the_spec_that_flags_describe() -> None:
    words = [
        "--nnodes",
        "2:4",
        "--spares",
        "1",
        "--storage",
        "ckpt",
        "--checkpoint-every",
        "25",
        "t.py",
        "-a",
    ]
    values, command = run_flags(words)
    spec = read_job(values, command, "job")
    assert (spec.nnodes_min, spec.nnodes_max, spec.spares_per_node) == (2, 4, 1)
    assert (spec.snapshot_every, spec.checkpoint_every, spec.full_every) == (5, 25, 1000)
    assert spec.storage == (Path.cwd() / "ckpt").as_uri() and spec.argv == ("t.py", "-a")


def test_what_the_checkpoint_flags_say() -> None:
    words = "--storage /a --mirror s3://b/c --commit-when first --codec zstd --checkpoint-auto --keep-last 3 "
    words += "--keep-every 500 --replicas 2 --scrub-every-s 60 t.py"
    spec = read_job(*run_flags(words.split()), "job")
    assert (spec.storage, spec.mirror, spec.commit_when) == ("file:///a", "s3://b/c", "first")
    assert (spec.codec, spec.replicas, spec.scrub_every_s) == ("zstd", 2, 60.0)
    assert (spec.checkpoint_auto, spec.keep_last, spec.keep_every) == (True, 3, 500)
    plain = read_job(*run_flags(["--snapshot-every", "7", "t.py"]), "job")
    assert (plain.snapshot_every, plain.checkpoint_every, plain.full_every) == (7, 70, 1050)


def test_the_same_command_gives_the_same_job() -> None:
    def name(*words: str) -> tuple[str, bool]:
        return job_name(*run_flags([*words, "dir/train.py"]))

    assert name("--rdzv-id", "mine") == ("mine", True)
    assert name("--rdzv-id", "my job/1")[0].startswith("my-job-1-")
    assert name("--storage", "/a") == name("--storage", "/a") != name("--storage", "/b")
    assert name()[1] is False and name() != name()


def test_torchruns_flags_without_effect_are_told(script: str) -> None:
    done = holdfast("run", "--rdzv-backend", "c10d", "--node_rank=0", "--nnodes", "1", "/no/such/script.py")
    assert done.returncode == 2 and "script" in done.stderr
    values, _ = run_flags(["--rdzv_backend=c10d", "--master-port", "29500", script])
    assert values.rdzv_backend == "c10d" and values.master_port == "29500"


@pytest.mark.parametrize(
    ("kind", "check", "settings"),
    [
        (
            AgentSettings,
            check_agent,
            {"node": "n7", "slots": 3, "show_output": False, "beat_interval_s": 0.25},
        ),
        (
            CoordinatorSettings,
            check_coordinator,
            {"listen": "0.0.0.0:1", "insecure": True, "lease_ttl_s": 5.0},
        ),
    ],
)
def test_settings_survive_the_command_line(kind: Any, check: Any, settings: dict[str, object]) -> None:
    from controlplane.cli.flags.settings import add_settings

    parser = Parser(prog="holdfast test")
    add_settings(parser, kind)
    values = parser.parse_args(as_flags(kind, settings))
    assert read_settings(kind, values, check) == kind(**settings)


def test_bad_settings_are_usage_errors() -> None:
    from controlplane.cli.flags.settings import add_settings

    parser = Parser(prog="holdfast agent")
    add_settings(parser, AgentSettings)
    with pytest.raises(UsageError, match="--slots -1 is too small"):
        read_settings(AgentSettings, parser.parse_args(["--slots", "-1"]), check_agent)
    with pytest.raises(UsageError, match="not a whole number"):
        parser.parse_args(["--slots", "x"])


def test_unreachable_coordinator_is_exit_code_3(unused_tcp_port: int) -> None:
    done = holdfast("status", "--coordinator", f"127.0.0.1:{unused_tcp_port}")
    assert done.returncode == 3
    assert "no coordinator answers" in done.stderr and "Traceback" not in done.stderr
    assert main(["get", "jobs", "--coordinator", "nonsense"]) == 2


def test_journal_file_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = {"sequence": 1, "wall_s": 0.0, "type": "NodeBroken", "body": {"node": "n1", "reason": "reset"}}
    path = tmp_path / "journal.jsonl"
    path.write_text(json.dumps(line) + "\n" + '{"sequence": 2, "wa')  # torn off by a crash
    assert main(["events", "--journal", str(path)]) == 0
    assert "node n1: connection broken: reset" in capsys.readouterr().out
    assert main(["events", "--journal", str(tmp_path / "none")]) == 1
    path.write_text("garbage\n")
    assert main(["events", "--journal", str(path)]) == 1
    assert "not a line of a journal" in capsys.readouterr().err


def test_a_demo_that_cannot_be(capsys: pytest.CaptureFixture[str]) -> None:
    assert "counted from 0" in refused("demo", "--kill", "rank=4@step=5", capsys=capsys)
    assert "give 1 to 9" in refused("demo", "--steps", "10", "--kill", "all@step=10", capsys=capsys)
    assert "has no step: give one" in refused("demo", "--kill", "rank=1", capsys=capsys)


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_help_shows_a_default_once(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    flags = re.split(r"\n  (?=-)", capsys.readouterr().out)
    assert [flag for flag in flags if flag.count("(default:") > 1] == []
    assert "(default: [])" not in "".join(flags)


def test_the_examples_of_simulate_are_lines_to_copy(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--help"]) == 0
    assert EPILOG in capsys.readouterr().out
