"""torchrun's stand-in, as processes: run with the variables that Kubeflow Trainer's controller sets."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sysconfig
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.cli_running import DEADLINE_S, until
from tests.helm.pod import HOLDFAST, Pod, copied, ended, image, pod
from tests.leashed import leashed
from tests.training import elastic

if TYPE_CHECKING:
    from collections.abc import Iterator

JOB = "team-a.train"
SCRIPT = """
import json, os, pathlib, sys
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_RANK", "OF_THE_IMAGE", "PET_NNODES")
facts = {"argv": sys.argv, "env": {name: os.environ.get(name) for name in names}}
pathlib.Path(f"rank{os.environ['RANK']}.json").write_text(json.dumps(facts))
"""
KILLED_ONCE = elastic(
    6,
    before="import os, pathlib, signal",
    each="if step == 3 and os.environ['RANK'] == '1' and not os.path.exists('died'): "
    "pathlib.Path('died').touch(); os.kill(os.getpid(), signal.SIGKILL)",
)


def controllers(rank: int, nodes: int, per_node: str) -> dict[str, str]:
    """What pkg/runtime/framework/plugins/torch of Kubeflow Trainer 2.3 sets, and what the runtime sets."""
    theirs = {
        "PET_NNODES": str(nodes),
        "PET_NPROC_PER_NODE": per_node,
        "PET_NODE_RANK": str(rank),
        "PET_MASTER_ADDR": "train-node-0-0.train",
        "PET_MASTER_PORT": "29500",
    }
    return theirs | {"HOLDFAST_JOB": JOB, "HOLDFAST_SLOTS": "2", "HOLDFAST_GRACE_S": "5"}


@contextmanager
def submitter(node: Pod, job: str = JOB) -> Iterator[subprocess.Popen[bytes]]:
    """The container of the pod that may submit."""
    flags = ["--order", str(node.run_dir / "torchrun"), "--rdzv-id", job, "--coordinator", node.coordinator]
    with (node.folder / f"submit-{node.name}.log").open("ab") as log:
        process = subprocess.Popen(leashed([*HOLDFAST, "submit", *flags]), stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def beside(first: Pod, name: str) -> Iterator[Pod]:
    """Another pod of the TrainJob."""
    node = first.beside(name)
    try:
        yield node
    finally:
        node.end()


async def ends(*nodes: Pod) -> list[int]:
    return [await asyncio.to_thread(node.trainer_code) for node in nodes]


async def test_a_trainjob_of_two_nodes_runs_under_holdfast() -> None:
    async with pod() as first:
        (first.folder / "train.py").write_text(SCRIPT)
        with beside(first, "n1") as second, submitter(first):
            for rank, node in enumerate((first, second)):
                node.start_agent(f"--jobs={JOB}")
                # Kubeflow's own SDK starts torchrun from bash, by its bare name.
                node.start_in_image(["bash", "-c", "torchrun train.py --lr 1"], **controllers(rank, 2, "1"))
            assert await ends(first, second) == [0, 0], first.said()
        for rank in (0, 1):
            found = json.loads((first.folder / f"rank{rank}.json").read_text())
            assert found["argv"] == ["train.py", "--lr", "1"]
            assert found["env"]["WORLD_SIZE"] == "2" and found["env"]["RANK"] == str(rank)
            assert found["env"]["OF_THE_IMAGE"] == "yes"
        assert "without effect here, nodes find each other" in first.said()


async def test_a_rank_that_is_killed_is_replaced_by_a_spare() -> None:
    async with pod(Path(sysconfig.get_path("purelib"))) as node:
        (node.folder / "train.py").write_text(KILLED_ONCE)
        node.start_agent(f"--jobs={JOB}")
        asked = controllers(0, 1, "2") | {"PET_SPARES": "1", "PET_SNAPSHOT_EVERY": "1"}
        with submitter(node):
            node.start_in_image(["torchrun", "train.py"], **asked)
            assert await ends(node) == [0], node.said()
        assert (node.folder / "died").exists()


async def test_a_new_pod_of_node_0_continues_the_job() -> None:
    async with pod() as node:
        (node.folder / "train.py").write_text(
            "import pathlib, time\npathlib.Path('began').touch()\n"
            "while not pathlib.Path('done').exists(): time.sleep(0.02)\n"
        )
        node.start_agent(f"--jobs={JOB}")
        log = node.folder / "submit-n0.log"
        with submitter(node):
            node.start_in_image(["torchrun", "train.py"], **controllers(0, 1, "1"))
            await asyncio.to_thread(until, (node.folder / "began").exists, node.said)
            assert node.trainer is not None
            node.trainer.send_signal(signal.SIGKILL)
            node.trainer.wait()
            node.start_in_image(["torchrun", "train.py"], **controllers(0, 1, "1"))
            await asyncio.to_thread(until, lambda: f"{JOB} continues" in log.read_text(), node.said)
            (node.folder / "done").touch()
            assert await ends(node) == [0], node.said()


async def test_an_order_for_another_job_is_refused_and_ends_the_trainjob() -> None:
    async with pod() as node:
        (node.folder / "train.py").write_text(SCRIPT)
        with submitter(node, "team-b.other"):
            node.start_in_image(["torchrun", "train.py"], **controllers(0, 1, "1"))
            assert await ends(node) == [41], node.said()
        assert "only 'team-b.other' may be ordered here" in node.said()


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an image that has nothing of ours, and the launcher's copy."""
    folder = tmp_path_factory.mktemp("bare")
    image(folder / "image")
    assert copied(folder / "copy") == 0
    (folder / "train.py").write_text(SCRIPT)
    return folder


def said(bare: Path, words: list[str], **variables: str) -> str:
    """What torchrun prints when it refuses to run, in the image."""
    path = f"{bare / 'copy/bin'}:{bare / 'image/bin'}:/usr/bin:/bin"
    env = {"PATH": path, "HOLDFAST_RUN_DIR": str(bare / "run"), "HOLDFAST_NODE": "n0", **variables}
    refused = ended(["torchrun", *words], cwd=bare, env=env)
    assert refused.returncode == 2, refused.stderr
    assert not (bare / "run" / "torchrun").exists()
    return refused.stderr


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--virtual-local-rank", "train.py"], "--virtual-local-rank is not possible"),
        (["--tee", "3", "train.py"], "--tee/-t: not possible here"),
        (["-r", "3", "train.py"], "--redirects/-r: not possible here"),
        (["--log_dir=x", "train.py"], "--log-dir: not possible here"),
        (["--logs-specs", "mine", "train.py"], "--logs-specs: not possible here"),
        (["--unheard-of", "train.py"], "unknown flag --unheard-of"),
        (["nowhere.py"], "script nowhere.py not found"),
        (["--nproc-per-node=3", "train.py"], "--nproc-per-node 3: the runtime's agents have 2 slots"),
        ([], "no script given"),
    ],
    ids=str,
)
def test_what_cannot_be_kept_is_refused_by_name(bare: Path, words: list[str], named: str) -> None:
    assert named in said(bare, words, **controllers(0, 2, "2"))


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"PET_RUN_PATH": "1"}, "--run-path: not possible here"),
        ({"PET_LOCAL_RANKS_FILTER": "0"}, "--local-ranks-filter: not possible here"),
        ({"PET_NNODES": "many"}, "'many' is neither a number of nodes nor MIN:MAX"),
        ({"PET_NO_PYTHON": "yes"}, "PET_NO_PYTHON='yes' is neither 0 nor 1"),
        ({"PET_NODE_RANK": ""}, "PET_NODE_RANK is not set"),
        ({"HOLDFAST_SPARE_NODES": "2"}, "HOLDFAST_SPARE_NODES=2 of 2 nodes leaves none"),
        ({"HOLDFAST_SPARE_NODES": "x"}, "HOLDFAST_SPARE_NODES='x' is not a count"),
        ({"HOLDFAST_NODES_MIN": "3"}, "HOLDFAST_NODES_MIN=3 is more than the 2 nodes"),
        ({"HOLDFAST_JOB": f"team-a.{'t' * 60}"}, "give the TrainJob a shorter one"),
    ],
    ids=str,
)
def test_variables_that_cannot_be_kept_are_refused_by_name(
    bare: Path, variables: dict[str, str], named: str
) -> None:
    assert named in said(bare, ["train.py"], **{**controllers(0, 2, "1"), **variables})


def test_several_nodes_without_a_cluster_are_refused() -> None:
    refused = ended([*HOLDFAST, "torchrun", "x.py"], env={**os.environ, "PET_NNODES": "2"})
    assert refused.returncode == 2
    assert "here is one machine, and no agent of a cluster" in refused.stderr


def test_without_an_agent_it_is_a_local_run(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    env = {**os.environ, "PET_NPROC_PER_NODE": "2", "HOME": str(tmp_path)}
    done = ended([*HOLDFAST, "torchrun", "train.py", "--lr", "1"], DEADLINE_S, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "rank1.json").read_text())["env"]["WORLD_SIZE"] == "2"
