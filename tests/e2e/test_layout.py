"""A layout from the plan to the ranks: refused by the divisor that fails, told to every rank, and kept whole
when the job shrinks and grows: tensor groups on a node, data parallel first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controlplane.cli.local.processes import freeze_and_kill
from controlplane.cli.main import main
from tests.e2e.cli_running import running, until
from tests.e2e.test_elastic import formed, strategies, unsupervised, world

if TYPE_CHECKING:
    import pytest

    from tests.e2e.cli_running import Run

ROOT = Path(__file__).resolve().parents[2]
PLAN = (
    "plan", "--model", str(ROOT / "examples/models/gpt-175b.toml"),
    "--cluster", str(ROOT / "examples/clusters/1024-a100.toml"),
)  # fmt: skip
PACE = (
    "--node-timeout-s", "12", "--process-timeout-s", "4", "--stop-timeout-s", "20", "--shrink-after-s", "1",
    "--grow-after-s", "1", "--resize-every-s", "1", "--lease-ttl-s", "4",
)  # fmt: skip
TENSORS = """
import json, os, pathlib, sys, time, torch
from holdfast import Session
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
folder = pathlib.Path(sys.argv[1])
session = Session()
data = torch.randn(100, 8, generator=torch.Generator().manual_seed(7))


@session.elastic
def train():
    torch.manual_seed(0)
    mesh = session.mesh()
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 2))
    model = parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    optimizer = torch.optim.AdamW(model.parameters())
    session.track(model=model, optimizer=optimizer)
    replicas = mesh["dp"].get_group()
    for step in session.steps(100_000):
        chosen = session.sample_indices(100, 12)
        optimizer.zero_grad()
        (model(data[chosen]).square().mean() * session.loss_weight).backward()
        for parameter in model.parameters():
            local = parameter.grad.to_local() if hasattr(parameter.grad, "to_local") else parameter.grad
            torch.distributed.all_reduce(local, group=replicas)
            local /= mesh["dp"].size()
        optimizer.step()
        told = {name[9:]: value for name, value in os.environ.items() if name[-5:] in ("_RANK", "_SIZE")}
        row = {"place": session.layout.place, "env": told, "samples": chosen.tolist(), "step": step}
        path = folder / f"told-{session.world_size}-{session.rank}"
        path.with_suffix(".part").write_text(json.dumps(row))
        path.with_suffix(".part").rename(path)
        (folder / f"world-{session.world_size}-{session.generation}").touch()
        if session.rank == 0 and (folder / "done").exists():
            (folder / "last").touch()
        time.sleep(0.02)
        flag = torch.tensor([float((folder / "last").exists())])
        torch.distributed.broadcast(flag, 0)
        if flag:
            break
    weights = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
    return [round(float(weight.detach().double().sum()), 9) for weight in weights]


weights = train()
(folder / f"weights.{session.rank}").write_text(json.dumps(weights))
session.close()
"""


def told(run: Run, ranks: int) -> list[dict[str, Any]]:
    return [json.loads((run.folder / f"told-{ranks}-{rank}").read_text()) for rank in range(ranks)]


def shards(run: Run) -> set[str]:
    """What the ranks of every node have told that they hold, once all have."""
    statuses = [body["status"] for body in run.journal("MemberReport")]
    newest = {status["member"]: status["shard"] for status in statuses if status["phase"] == "running"}
    return set(newest.values()) if len(newest) == 4 and all(newest.values()) else set()


def test_tensor_groups_stay_whole_when_the_job_shrinks_and_grows() -> None:
    flags = ("--nnodes", "1:2", "--nproc-per-node", "2", "--tensor-parallel", "2", *PACE)
    with running(*flags, script=TENSORS) as run:
        first = world(run, 4)
        until(lambda: len(shards(run)) == 2, lambda: f"what every rank holds; {run.output[-6000:]}")
        lost = run.pid_of("n1")
        with unsupervised(run):
            freeze_and_kill(lost)
            until(lambda: "shrink" in strategies(run), lambda: f"a shrink; {run.output[-6000:]}")
            second = world(run, 2, first)
        third = world(run, 4, second)
        (run.folder / "done").touch()
        assert run.end(120) == 0, run.output[-6000:]
        weights = [path.read_text() for path in run.folder.glob("weights.*")]
        assert len(weights) == 4 and len(set(weights)) == 1, f"{weights} {run.output[-6000:]}"
        for ranks in (4, 2):
            rows = told(run, ranks)
            assert [row["place"] for row in rows] == [[rank // 2, 0, 0, rank % 2] for rank in range(ranks)]
            assert rows[1]["env"]["DP_SIZE"] == str(ranks // 2) and rows[1]["env"]["TP_RANK"] == "1"
            assert all(rows[at]["samples"] == rows[at + 1]["samples"] for at in range(0, ranks, 2))
            assert all(len(row["samples"]) == 12 // (ranks // 2) for row in rows)
        for number in (first, second, third):
            seats = formed(run)[number]
            assert all(seats[at]["node"] == seats[at + 1]["node"] for at in range(0, len(seats), 2))
        reasons = [body["state"]["reason"] for body in run.journal("JobChanged")]
        assert any("tp 2 x dp 1" in reason for reason in reasons), reasons
        plans = [body["plan"] for body in run.journal("Judged")]
        (left,) = [plan["reason"] for plan in plans if plan["strategy"] == "shrink"]
        assert left.endswith(
            "layout tp 2 x dp 1, it was tp 2 x dp 2: data parallel gives way, replicas of 2 ranks stay whole"
        )
        assert any("the job grows to 2 nodes (tp 2 x dp 2)" in reason for reason in reasons), reasons


def test_a_planned_layout_is_taken_from_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "layout.toml"
    assert main([*PLAN, "-o", str(path)]) == 0
    assert "[layout]" in path.read_text()
    script = tmp_path / "train.py"
    script.write_text("print('hello')\n")
    for text, words in (
        (path.read_text(), "holds no multiple of --replica-nodes"),
        ("[layout]\ntp = 3\n", "--nproc-per-node 8 is not divisible by --tensor-parallel 3"),
        ("[layout]\ntpp = 3\n", "tpp is unknown"),
        ("[layout]\ntp = 0\n", "tp is 0"),
        ("tp = 2\n", "the table [layout] is missing"),
        ("[layout", "is not valid TOML"),
    ):
        path.write_text(text)
        capsys.readouterr()
        assert main(["run", "--layout", str(path), "--nproc-per-node", "8", str(script)]) == 2
        assert words in capsys.readouterr().err
    path.write_text("[layout]\ntp = 2\n")
    assert main(["run", "--layout", str(path), "--tensor-parallel", "2", str(script)]) == 2
    assert "set the same size: drop one" in capsys.readouterr().err
    assert main([*PLAN, "-o", str(tmp_path / "no" / "such")]) == 2
