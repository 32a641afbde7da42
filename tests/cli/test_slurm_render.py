"""`holdfast slurm render`: what the batch script says, and which input is refused before it is queued."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from controlplane.cli.errors import UsageError
from controlplane.cli.main import main
from controlplane.cli.slurm.checks import time_limit_s

if TYPE_CHECKING:
    from pathlib import Path

PLAIN = ("--insecure", "--nodes", "4", "--spare-nodes", "1", "--storage", "s3://bucket/run7")


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script in the working directory."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.py"
    path.write_text("print('trains')\n")
    return path


def rendered(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    code = main(["slurm", "render", *words, "train.py", "--lr", "3e-4"])
    said = capsys.readouterr()
    assert code == 0, said.err
    return said.out


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["slurm", "render", *words]) == 2
    said = capsys.readouterr()
    assert said.out == "", "half a script could be submitted"
    assert "Traceback" not in said.err
    return said.err


def directives(text: str) -> list[str]:
    """The options of sbatch in a script, without the comments behind them."""
    lines = [line.partition("    #")[0] for line in text.splitlines() if line.startswith("#SBATCH ")]
    return [line.removeprefix("#SBATCH ").strip() for line in lines]


def test_the_allocation_has_spare_nodes_and_outlives_a_lost_one(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = directives(rendered(capsys, *PLAIN, "--gpus-per-node", "8", "--time", "1-00:00:00"))
    for option in (
        *("--job-name=train", "--nodes=5", "--ntasks-per-node=1", "--no-kill", "--requeue"),
        *("--signal=B:USR1@300", "--open-mode=append", "--gpus-per-node=8", "--time=1-00:00:00"),
        *("--dependency=singleton", "--exclusive", f"--chdir={script.parent}"),
    ):
        assert option in found


def test_agents_are_named_by_slurm_and_ranks_by_gpus(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = rendered(capsys, *PLAIN, "--gpus-per-node", "8")
    text = re.sub(r" \\\n +", " ", text)
    assert '--node="$SLURMD_NODENAME"' in text and "--slots=8" in text
    assert "srun --no-kill --kill-on-bad-exit=0 --wait=0" in text
    assert "--nnodes=4:4 --nproc-per-node=8" in text and "-- train.py --lr 3e-4" in text


def test_words_with_blanks_and_quotes_reach_the_script_as_they_are(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["slurm", "render", *PLAIN, "train.py", "it's $HOME", "a b"])
    text = capsys.readouterr().out
    assert code == 0
    line = text[text.index("hf operator submit") : text.index("submit=$!")].replace("9>&- &", "")
    printed = subprocess.run(
        ["bash", "-c", line.replace("hf operator submit", "printf '<%s>'")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert printed.stdout.endswith("<train.py><it's $HOME><a b>")


def test_a_leading_python_is_left_out(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["slurm", "render", *PLAIN, "--", "python3", "train.py", "7"]) == 0
    assert "-- train.py 7" in capsys.readouterr().out


VARIANTS = {
    "all inside": PLAIN,
    "own coordinators": (*PLAIN, "--coordinator", "h0:7070,h1:7070"),
    "own etcd": (*PLAIN, "--etcd", "e0:2379", "--coordinator-flag=--etcd-ca=/etc/ca.crt"),
    "never requeued": ("--insecure", "--requeue", "never"),
    "always requeued": ("--insecure", "--requeue", "always", "--setup", "module load cuda"),
    "certificates": ("--tls-dir", "/shared/tls", "--storage", "s3://bucket/run7", "--nodes-min", "1"),
}


@pytest.mark.parametrize("words", VARIANTS.values(), ids=VARIANTS)
def test_bash_and_shellcheck_find_nothing(
    words: tuple[str, ...], script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.sh"
    path.write_text(rendered(capsys, *words))
    subprocess.run(["bash", "-n", str(path)], check=True)
    if shutil.which("shellcheck") is None:
        pytest.skip("no shellcheck here: apt-get install shellcheck")
    done = subprocess.run(["shellcheck", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_with_own_coordinators_nothing_is_started_but_agents(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = rendered(capsys, *PLAIN, "--coordinator", "h0:7070,h1:7070")
    assert "HOLDFAST_COORDINATOR=h0:7070,h1:7070" in text and "--cluster=default" in text
    assert "listen-client-urls" not in text and "hf coordinator" not in text and "state=" not in text


def test_with_certificates_nothing_is_plaintext(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = rendered(capsys, "--tls-dir", "/shared/tls", "--storage", "s3://bucket/run7")
    assert "INSECURE" not in text and "--insecure" not in text
    assert "HOLDFAST_TLS_CA=/shared/tls/ca.crt" in text and "$tls/$1.crt" in text


def test_a_place_that_only_one_node_sees_is_named(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--insecure", "--nodes", "2", "--storage", "/dev/shm/c", "--state-dir", "/tmp/s")
    assert main(["slurm", "render", *words, "train.py"]) == 0
    said = capsys.readouterr().err
    assert "/dev/shm/c: every node must see the same files there" in said and "/tmp/s" in said


STORED = ("--insecure", "--storage", "s3://b/r")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--insecure", "train.py"), "give --storage URL"),
        (("--storage", "s3://b/r", "train.py"), "give --tls-dir FOLDER"),
        ((*STORED, "--tls-dir", "/t", "train.py"), "cannot be combined with --tls-dir: drop one"),
        ((*STORED, "--nodes", "2", "--spare-nodes", "3", "train.py"), "give fewer spare nodes"),
        ((*STORED, "--nodes", "2", "--nodes-min", "3", "train.py"), "give at most 2"),
        ((*STORED, "--name", "a b", "train.py"), "job name 'a b' is invalid: use letters"),
        ((*STORED, "--cluster", "c/d", "train.py"), "cluster name 'c/d' is invalid"),
        ((*STORED, "--time", "soon", "train.py"), "'soon' is not a time of Slurm's: give MINUTES"),
        ((*STORED, "--time", "5", "train.py"), "is over before training begins"),
        ((*STORED, "--save-s", "10", "train.py"), "give 60 or more"),
        ((*STORED,), "no script given"),
        ((*STORED, "trian.py"), "script trian.py not found in"),
        ((*STORED, "--flag=--snapshot-evry=2", "train.py"), "--flag: unknown flag --snapshot-evry"),
        ((*STORED, "--agent-flag=--slotz=2", "train.py"), "--agent-flag: unknown flag --slotz"),
        ((*STORED, "--coordinator-flag=--lease-ttl-s=0", "train.py"), "--lease-ttl-s 0.0 is too small"),
        ((*STORED, "--coordinator", "h", "train.py"), "--coordinator 'h' is not an address"),
        ((*STORED, "--etcd", "h", "train.py"), "'h' is not an address"),
        ((*STORED, "--coordinator", "h:1", "--etcd", "e:1", "train.py"), "drop --etcd"),
        ((*STORED, "--sbatch=--signal=USR2", "train.py"), "the script has that flag"),
        ((*STORED, "--sbatch=-N3", "train.py"), "the script has that flag"),
        ((*STORED, "--sbatch=constraint=h100", "train.py"), "give one word, as --sbatch=--constraint"),
        ((*STORED, "--partition", "gpu large", "train.py"), "give one word"),
        ((*STORED, "--state-dir", "/my folder", "train.py"), "give another"),
        ((*STORED, "train.py", "two\nlines"), "line break"),
    ],
)
def test_what_would_fail_in_the_queue_is_refused(
    words: tuple[str, ...], said: str, script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refused(capsys, *words)


def test_without_an_etcd_the_ways_to_one_are_named(
    script: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ETCD_BIN", "/nowhere/etcd")
    said = refused(capsys, *PLAIN, "train.py")
    assert "apt-get install etcd" in said and "--etcd-binary" in said and "--etcd" in said
    assert "etcd=/apps/etcd" in rendered(capsys, *PLAIN, "--etcd-binary", "/apps/etcd")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("", None),
        ("UNLIMITED", None),
        ("90", 5400),
        ("2:30", 150),
        ("1:00:00", 3600),
        ("1-12", 129600),
        ("1-12:30", 131400),
        ("1-12:30:15", 131415),
    ],
)
def test_times_are_read_as_slurm_reads_them(text: str, seconds: int | None) -> None:
    assert time_limit_s(text) == seconds


@pytest.mark.parametrize("text", ["1:2:3:4", "-5", "1-", "1d", "1-2:3:4:5", "5 minutes"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a time"):
        time_limit_s(text)
