"""List the workloads: what is run, on how many ranks, what a kill may cost, and which must be refused."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.workloads.blows import PHASES

SCRIPTS = Path(__file__).resolve().parents[2] / "examples" / "workloads"
SNAPSHOT_EVERY = 5
SNAPSHOT = SNAPSHOT_EVERY
"""Steps that a kill may cost where the dead rank's state comes from a snapshot."""
LARGE, LARGE_SHARDS = ("--inner", "4096"), ("--inner", "16384")
"""Make weights, or a rank's shards of them, large enough to be copied beside the next step."""
AHEAD = 1
"""Where it comes from a living rank: some of them may have completed a step that others have not."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One row. `loses`: steps that a kill may cost.

    `variant`: other rows train the same script, kind or kinds in nearly the same way; `make exhaustive` runs
    it. So do `moco` an average of weights beside a queue, `gan` several optimizers, `local_sgd` models that
    differ by rank, `continual` one training after the other, and `tensor_parallel` with `pipeline_gpipe` the
    parts of `three_d`.
    `tasks`: trainings one after the other in the script, `steps` of each; kills happen in the first `struck`
    of them (0: in all). `refused`: what the refusal must name, where it must be refused. `lazy`: large
    tensors are copied beside the next step."""

    name: str
    script: str
    arguments: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    nproc: int = 2
    steps: int = 24
    tasks: int = 1
    struck: int = 0
    loses: int = SNAPSHOT
    phases: tuple[str, ...] = PHASES
    refused: tuple[str, ...] = ()
    gpu: bool = False
    lazy: bool = False
    snapshot_every: str = str(SNAPSHOT_EVERY)
    variant: bool = False

    @property
    def path(self) -> Path:
        """The script."""
        return SCRIPTS / self.script

    @property
    def ranks(self) -> int:
        """How many ranks it has, on two nodes."""
        return 2 * self.nproc


WORKLOADS = (
    Workload("accumulation", "accumulation.py", loses=AHEAD),
    Workload("no_sync", "accumulation.py", ("--no-sync",), loses=AHEAD, variant=True),
    Workload("accumulation_across", "accumulation_across.py", loses=4 * SNAPSHOT),
    Workload("amp", "amp.py", loses=AHEAD),
    Workload("ema", "ema.py", variant=True),
    Workload("ema_every_ten", "ema.py", ("--every", "10"), variant=True),
    Workload("moco", "moco.py"),
    Workload("dino", "dino.py", variant=True),
    Workload("gan", "gan.py"),
    Workload("several_optimizers", "several_optimizers.py", variant=True),
    Workload("lbfgs", "lbfgs.py"),
    Workload("lazy_snapshots", "several_optimizers.py", LARGE, lazy=True, variant=True),
    Workload("lazy_moco", "moco.py", LARGE, lazy=True),
    Workload(
        "lazy_accumulation_across",
        "accumulation_across.py",
        LARGE,
        loses=4 * SNAPSHOT,
        lazy=True,
        variant=True,
    ),
    Workload("tensor_parallel", "tensor_parallel.py", flags=("--tensor-parallel", "2")),
    Workload("pipeline_gpipe", "pipeline.py", flags=("--pipeline-parallel", "2")),
    Workload(
        "pipeline_1f1b", "pipeline.py", ("--schedule", "1f1b"), ("--pipeline-parallel", "2"), variant=True
    ),
    Workload("context_parallel", "context_parallel.py", flags=("--context-parallel", "2"), loses=AHEAD),
    Workload(
        "three_d",
        "three_d.py",
        flags=("--tensor-parallel", "2", "--pipeline-parallel", "2"),
        nproc=4,
        variant=True,
    ),
    Workload("fsdp2", "fsdp2.py"),
    Workload("hsdp", "fsdp2.py", ("--hsdp",), variant=True),
    Workload("lazy_fsdp2", "fsdp2.py", LARGE_SHARDS, lazy=True),
    Workload(
        "lazy_tensor_parallel",
        "tensor_parallel.py",
        LARGE_SHARDS,
        flags=("--tensor-parallel", "2"),
        lazy=True,
        variant=True,
    ),
    Workload("zero1", "zero1.py"),
    Workload("moe", "moe.py"),
    Workload("moe_copies", "moe.py", ("--copies",), variant=True),
    Workload("several_tasks", "several_tasks.py"),
    Workload("two_tower", "two_tower.py", loses=AHEAD),
    Workload("federated", "federated.py", variant=True),
    Workload("local_sgd", "local_sgd.py"),
    Workload("local_sgd_outer", "local_sgd.py", ("--outer",), variant=True),
    Workload("continual", "continual.py", steps=10, tasks=3),
    Workload("distillation", "distillation.py", loses=0),
    Workload("qat", "qat.py", loses=AHEAD),
    Workload("search", "search.py", steps=14, tasks=3, struck=7, variant=True),
    Workload("evaluation", "evaluation.py"),
    Workload("compiled", "compiled.py", nproc=1),
    Workload("sync_batchnorm", "sync_batchnorm.py", nproc=1, gpu=True),
    Workload("local_sgd_undeclared", "refused/local_sgd.py", refused=("model.", "weight", "per_rank=True")),
    Workload(
        "experts_undeclared",
        "refused/experts.py",
        refused=("expert.", "weight", "per_rank=True"),
        variant=True,
    ),
    Workload("untracked_optimizer", "refused/optimizer.py", refused=("AdamW", "session.track")),
    Workload("ddp_outside", "refused/ddp_outside.py", refused=("@session.elastic", "ddp_outside.py")),
)
