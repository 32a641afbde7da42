"""A script may have modules named as ours are: `agent`, `controlplane`. It gets its own, and we ours."""

from __future__ import annotations

import json
import os
import signal
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.agent.support import LauncherProcess, folder
from tests.e2e.cli_running import running, until
from tests.helm.pod import pod
from tests.helm.test_exec import in_thread

if TYPE_CHECKING:
    from tests.e2e.cli_running import Run

FACTS = """
import agent, controlplane, parts.agent, parts.controlplane

def owned():
    return [agent.OWN, controlplane.OWN, parts.agent.OWN, parts.controlplane.OWN]

def strangers():
    import sys
    return sorted(name for name in sys.modules if name.partition(".")[0] in ("agent", "controlplane")
                  and not str(getattr(sys.modules[name], "OWN", "")).startswith("own"))
"""
PLAIN = """
import json, pathlib, sys
from facts import owned, strangers
import holdfast
pathlib.Path("facts.json").write_text(json.dumps([owned(), strangers(), holdfast.__version__ != ""]))
"""
ELASTIC = """
import json, os, pathlib, sys, time, torch
from facts import owned, strangers
import torch.distributed.checkpoint as dcp
import holdfast.dcp
from holdfast import Session
folder = pathlib.Path(sys.argv[1])

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        assert owned()[0] == "own agent"
        return torch.tensor([len(strangers())])

def main():
    session = Session()
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    session.track(model=model, optimizer=optimizer)

    @session.elastic
    def train():
        ddp = session.ddp(model)
        workers = {"num_workers": 1, "multiprocessing_context": "spawn"}
        for step in session.steps(40):
            if step == 1:
                rows = torch.cat(list(torch.utils.data.DataLoader(Rows(), batch_size=8, **workers)))
                assert not rows.any(), "a worker has modules of ours"
            optimizer.zero_grad()
            ddp(torch.ones(4, 8)).square().mean().backward()
            optimizer.step()
            if step == 8:
                session.checkpoint()
            while step == 20 and not (folder / "go").exists():
                (folder / f"at.{session.rank}").write_text(str(os.getpid()))
                time.sleep(0.02)
        saved = {"model": model.state_dict()}
        writer = holdfast.dcp.HoldfastWriter(str(folder / "dcp"), job="names", step=1)
        dcp.save(saved, storage_writer=writer)
        dcp.load(saved, storage_reader=holdfast.dcp.HoldfastReader(str(folder / "dcp"), job="names"))
        part = folder / f"rank.{session.rank}.part"
        part.write_text(json.dumps([owned(), strangers()]))
        part.rename(folder / f"rank.{session.rank}.json")

    train()

if __name__ == "__main__":
    main()
"""
OWN = [f"own {name}" for name in ("agent", "controlplane", "parts.agent", "parts.controlplane")]


def furnish(folder: Path) -> None:
    """Put the script's own modules beside it."""
    (folder / "parts").mkdir()
    (folder / "parts" / "__init__.py").touch()
    (folder / "facts.py").write_text(FACTS)
    for name in ("agent", "controlplane", "parts.agent", "parts.controlplane"):
        (folder / (name.replace(".", "/") + ".py")).write_text(f"OWN = 'own {name}'\n")


@pytest.mark.parametrize("fresh", [False, True], ids=["zygote", "fresh"])
def test_a_plain_script_has_its_own(fresh: bool) -> None:
    with folder() as path:
        furnish(path)
        launcher = LauncherProcess(path, preload=None)
        launcher.script(PLAIN)
        launcher.spawn("job.1")
        launcher.run("job.1", "script.py", env={"PYTHONHASHSEED": "7"} if fresh else {})
        assert bool(launcher.client.until("running", member="job.1")["fresh_for"]) is fresh
        assert launcher.client.until("exited", member="job.1")["code"] == 0, launcher.output("job.1")
        assert json.loads((path / "facts.json").read_text()) == [OWN, [], True]
        launcher.close()


def kill(run: Run, rank: int) -> None:
    """Kill a rank in step 20, and let all go on."""
    at = [run.folder / f"at.{each}" for each in (0, 1)]
    until(lambda: all(path.exists() and path.read_text() for path in at), lambda: run.output)
    os.kill(int(at[rank].read_text()), signal.SIGKILL)
    (run.folder / "go").touch()


def test_elastic_ranks_have_their_own_through_a_kill() -> None:
    every = ("--snapshot-every", "5", "--checkpoint-every", "10")
    with running("--nproc-per-node", "2", "--spares", "1", *every, script=ELASTIC, storage=True) as run:
        furnish(run.folder)
        kill(run, 1)
        assert run.end() == 0, run.output
        for rank in (0, 1):
            found = json.loads((run.folder / f"rank.{rank}.json").read_text())
            assert found == [OWN, []], run.output
        assert "killed at step" in run.output


async def test_beside_a_launcher_that_was_copied_into_an_image() -> None:
    async with pod(Path(sysconfig.get_path("purelib"))) as node:
        furnish(node.folder)
        (node.folder / "go").touch()
        (node.folder / "train.py").write_text(ELASTIC)
        node.start_agent()
        node.start_trainer("python", "train.py", flags=("--job", "job"))
        submitted = await in_thread(node, "--nproc-per-node", "2", "train.py", str(node.folder))
        assert submitted.returncode == 0, submitted.stderr + node.said()
        assert node.trainer_code() == 0, node.said()
        assert json.loads((node.folder / "rank.0.json").read_text()) == [OWN, []]
