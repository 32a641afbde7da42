"""List the cases: a script in a framework's own style, the lines that port it, and where it is killed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tests.frameworks.ports import (
    ACCELERATE_ON_GPU,
    ACCELERATE_PORT,
    AVERAGE_PORT,
    FABRIC_AVERAGE_PORT,
    FABRIC_ON_GPU,
    FABRIC_PORT,
    FABRIC_SCALED,
    HF_PORT,
    HF_RESUMES,
    LIGHTNING_PORT,
    LIGHTNING_RESUMES,
    LIGHTNING_SCALED,
    PLATEAU_PORT,
    Changes,
)

if TYPE_CHECKING:
    from collections.abc import Collection

SCRIPTS = Path(__file__).resolve().parent / "scripts"
PACKAGES = {"hf": "transformers", "lightning": "lightning", "accelerate": "accelerate", "fabric": "lightning"}
"""The package of each framework, as pip names it."""
IN_STEP = ("forward", "backward", "optimizer", "scheduler", "evaluation")
"""Kill points that torch itself shows; `evaluation`: a forward without gradients. Any other one is the name
of a framework's event."""


@dataclass(frozen=True, slots=True)
class Kill:
    """One SIGKILL of the process at `rank`.

    `at`: one of IN_STEP, or a framework's event (`on_save`), killed before the event has returned. `step`:
    how often an optimizer of this process has stepped, for IN_STEP; else the number that the framework gives
    with the event. `nth`: how often the place is reached in that step before the kill."""

    at: str
    step: int
    rank: int = 1
    nth: int = 0

    def __str__(self) -> str:
        return f"{self.at}, step {self.step}, rank {self.rank}"


@dataclass(frozen=True, slots=True)
class Case:
    """One row.

    `changes`: the lines that port the script, as (line, line in its place); each is in it exactly once. None:
    the script is ported already. `again`: events that may be begun again for a step, so their number is not
    compared. `setting`: other lines that are changed, likewise. `only`: the parts of what ranks come to that
    are compared; (): all. `refused`: nothing is killed; the undisturbed run must end with an error that says
    this. `on_gpu`: the changes that put the script on a GPU, where it runs as one rank over NCCL; None: it
    has two ranks on CPUs."""

    name: str
    framework: str
    script: Path
    kill: Kill
    arguments: tuple[str, ...] = ()
    changes: Changes | None = ()
    again: frozenset[str] = frozenset()
    setting: Changes = ()
    only: tuple[str, ...] = ()
    refused: str = ""
    on_gpu: Changes | None = None

    def ported(self) -> str:
        """The text of the ported script. Raises ValueError if a line to be changed is not there once."""
        lines = self.script.read_text().splitlines()
        for line, instead in (*(self.changes or ()), *self.setting, *(self.on_gpu or ())):
            if lines.count(line) != 1:
                raise ValueError(f"{self.script.name}: it has {line!r} {lines.count(line)} times, not once")
            lines[lines.index(line)] = instead
        return "\n".join(lines) + "\n"

    @property
    def changed_lines(self) -> int:
        """How many lines porting changes; for a script that is ported already, those that name holdfast."""
        if self.changes is None:
            return sum("holdfast" in line for line in self.script.read_text().splitlines())
        return sum(each != line for line, instead in self.changes for each in instead.split("\n"))

    def words(self, out: Path) -> tuple[str, ...]:
        """The script's arguments. One that is given by hand gets none: it runs in the run's folder."""
        return self.arguments if self.changes is None else (*self.arguments, "--output-dir", str(out))


def by_hand(script: Path, step: int, framework: str = "") -> Case:
    """The case of a script that is ported already: killed in the first forward of this step, at rank 1.

    `framework`: "" for the one that the script imports first. Raises ValueError if it imports none."""
    text = script.read_text()
    places = {name: text.find(word) for name, word in PACKAGES.items() if word in text}
    if not (framework or places):
        raise ValueError(f"{script}: it imports none of {', '.join(PACKAGES)}: say --only NAME")
    found = framework or min(places, key=lambda name: places[name])
    again = MAY_BEGIN_AGAIN | WITHIN_A_STEP | ONCE_PER_PROCESS | OWN_AGAIN
    return Case(script.stem, found, script, Kill("forward", step), (), None, again)


MAY_BEGIN_AGAIN = frozenset({"on_train_begin", "on_step_begin", "on_substep_end", "on_prediction_step"})


def _hf(name: str, kill: Kill) -> Case:
    return Case(f"hf_{name}", "hf", SCRIPTS / "hf_trainer.py", kill, (), HF_PORT, MAY_BEGIN_AGAIN)


_AVERAGES = "    def on_optimizer_step(self, training_args, state, control, model=None, **_) -> None:"
_KEEPS = "    def state_dict(self) -> dict[str, torch.Tensor]:"
_WEIGHTED = (
    "    class Weighted(Trainer):\n"
    "        def _get_train_sampler(self, dataset=None):\n"
    "            return torch.utils.data.WeightedRandomSampler([1.0] * 150, 150)\n\n"
    "    trainer = Weighted("
)
_LOCAL = (
    "    from accelerate.local_sgd import LocalSGD\n\n"
    "    local = LocalSGD(accelerator, model, 4).__enter__()\n    progress = Progress()"
)


def _hf_logs(name: str, kill: Kill) -> Case:
    """A callback evaluates in `on_step_end`, so that may be called again at all ranks."""
    again = MAY_BEGIN_AGAIN | {"on_step_end"}
    return Case(f"hf_logs_{name}", "hf", SCRIPTS / "hf_logs.py", kill, (), AVERAGE_PORT, again)


def _plateau(name: str, kill: Kill) -> Case:
    script = SCRIPTS / "hf_plateau.py"
    return Case(f"hf_plateau_{name}", "hf", script, kill, (), PLATEAU_PORT, MAY_BEGIN_AGAIN)


METRICS = "lightning_metrics.py"
BATCHES = frozenset({"on_train_batch_end"})
SAVED = frozenset({"on_train_epoch_end", "on_save_checkpoint"})
ONCE_PER_PROCESS = frozenset({"on_train_start"})
WITHIN_A_STEP = frozenset(
    {
        *("on_train_epoch_start", "on_substep_end", "on_before_optimizer_step"),
        *("on_validation_start", "on_validation_batch_end"),
    }
)
"""What begins or continues a step that runs again if it breaks, in Lightning."""


def _lightning(
    name: str, kill: Kill, *arguments: str, ends: Collection[str] = (), script: str = "lightning_trainer.py"
) -> Case:
    """`ends`: events at the end of the step in which the kill is: the step runs again, and they with it."""
    again = ONCE_PER_PROCESS | WITHIN_A_STEP | set(ends)
    return Case(f"lightning_{name}", "lightning", SCRIPTS / script, kill, arguments, LIGHTNING_PORT, again)


EVERYTHING = (
    MAY_BEGIN_AGAIN
    | WITHIN_A_STEP
    | ONCE_PER_PROCESS
    | SAVED
    | BATCHES
    | {"on_epoch_begin", "on_epoch_end", "on_step_end", "on_log", "on_evaluate", "on_save", "on_exception"}
    | {"on_validation_end"}
)
"""All but the end of the training."""
OWN_AGAIN = frozenset({"gather_for_metrics", "save_state", "save"})
"""What is done again in a step that runs again, in a loop of the script's own."""


def _accelerate(name: str, kill: Kill, *arguments: str, on_gpu: Changes | None = None) -> Case:
    script = SCRIPTS / "accelerate_loop.py"
    port = ACCELERATE_PORT
    return Case(f"accelerate_{name}", "accelerate", script, kill, arguments, port, OWN_AGAIN, on_gpu=on_gpu)


def _over_epochs() -> Case:
    name, kill = "accelerate_over_epochs", Kill("forward", 2, nth=14)
    return Case(name, "accelerate", SCRIPTS / f"{name}.py", kill, (), ACCELERATE_PORT, OWN_AGAIN)


def _fabric(name: str, kill: Kill, *arguments: str, on_gpu: Changes | None = None) -> Case:
    script = SCRIPTS / "fabric_loop.py"
    port = FABRIC_PORT
    return Case(f"fabric_{name}", "fabric", script, kill, arguments, port, OWN_AGAIN, on_gpu=on_gpu)


def _averages(framework: str, port: Changes, late: int) -> tuple[Case, ...]:
    """An average of the weights, and a stop by its loss: killed when the average has changed, and in a `late`
    step, when the loss has been best."""
    script = SCRIPTS / f"{framework}_average.py"
    kills = {"average": Kill("scheduler", 14), "early_stop": Kill("evaluation", late, rank=0)}
    return tuple(
        Case(f"{framework}_{name}", framework, script, kill, (), port, OWN_AGAIN)
        for name, kill in kills.items()
    )


def _unmodified(framework: str, script: str, kill: Kill, resumes: Changes) -> Case:
    """A script without a line of Holdfast's: all ranks are started again, and go on from its own checkpoint,
    so what happened since then happens again."""
    name, parts = f"{framework}_unmodified", ("weights", "optimizer", "scheduler")
    return Case(name, framework, SCRIPTS / script, kill, again=EVERYTHING, setting=resumes, only=parts)


def _refused(framework: str, name: str, script: str, said: str, *changes: tuple[str, str]) -> Case:
    """A script that asks for what is not kept. `said`: what it is told."""
    title = f"{framework}_refuses_{name}"
    return Case(title, framework, SCRIPTS / script, Kill("forward", 0), (), changes, refused=said)


def _variable(name: str) -> tuple[str, str]:
    """The change that sets a variable as `accelerate config` would."""
    return (
        "args = parser.parse_args()",
        f'args = parser.parse_args()\n__import__("os").environ["{name}"] = "true"',
    )


def _hf_refused(name: str, argument: str) -> Case:
    said = f"Trainer under Holdfast: {name} is not supported: "
    line = '            report_to="none",'
    return _refused("hf", name, "hf_trainer.py", said, *HF_PORT, (line, f"{line}\n            {argument},"))


def _lightning_refused(name: str, option: str) -> Case:
    port = LIGHTNING_PORT[0], (LIGHTNING_PORT[1][0], f"        strategy=HoldfastStrategy({option}),")
    said = f"HoldfastStrategy({option.partition('=')[0]}=...): "
    return _refused("lightning", name, "lightning_trainer.py", said, *port)


CASES: tuple[Case, ...] = (
    _hf("mid_epoch", Kill("forward", 7, nth=30)),
    _hf("evaluation", Kill("on_prediction_step", 12, nth=1)),
    _hf("logging_rank_0", Kill("on_log", 14, rank=0)),
    _hf("save", Kill("on_save", 12, rank=0)),
    _lightning("mid_epoch", Kill("forward", 3, nth=3)),
    _lightning("mid_accumulation", Kill("forward", 8, nth=12)),
    _lightning("backward", Kill("backward", 8, nth=12)),
    _lightning("workers", Kill("forward", 8, nth=7), "--num-workers", "1"),
    _lightning("validation", Kill("on_validation_batch_end", 6, nth=2)),
    _lightning("logging_rank_0", Kill("forward", 4, rank=0, nth=7)),
    _lightning("metrics", Kill("forward", 9, nth=9), script=METRICS),
    _lightning("metrics_rank_0", Kill("on_validation_batch_end", 8, rank=0, nth=1), script=METRICS),
    _lightning("after_optimizer", Kill("on_train_batch_end", 14), ends=BATCHES),
    _lightning("save", Kill("on_save_checkpoint", 6, rank=0, nth=1), ends=SAVED),
    _hf("optimizer", Kill("optimizer", 14)),
    _hf("first_step", Kill("forward", 0, rank=0, nth=30)),
    _hf("end_of_epoch", Kill("on_epoch_end", 10, rank=0)),
    _hf("end_of_training", Kill("on_train_end", 20, rank=0)),
    _plateau("evaluation", Kill("on_prediction_step", 9)),
    _plateau("mid_epoch", Kill("backward", 7, rank=0)),
    _accelerate("mid_accumulation", Kill("forward", 7, nth=7)),
    _accelerate("rank_0", Kill("backward", 12, rank=0, nth=4)),
    _accelerate("workers", Kill("forward", 7, nth=7), "--num-workers", "1"),
    _accelerate("evaluation", Kill("gather_for_metrics", 10, nth=2)),
    _accelerate("logging_rank_0", Kill("log", 14, rank=0)),
    _accelerate("save", Kill("save_state", 15, rank=0)),
    _accelerate("break", Kill("gather_for_metrics", 14), "--max-steps", "14"),
    _fabric("mid_accumulation", Kill("forward", 7, nth=9)),
    _fabric("across_epochs", Kill("forward", 4, nth=9)),
    _fabric("rank_0", Kill("backward", 10, rank=0, nth=4)),
    _fabric("workers", Kill("forward", 7, nth=9), "--num-workers", "1"),
    _fabric("logging_rank_0", Kill("log_dict", 11, rank=0)),
    _fabric("save", Kill("save", 9, rank=0)),
    _fabric("evaluation", Kill("evaluation", 9, nth=9)),
    _hf("scheduler", Kill("scheduler", 7)),
    _lightning("scheduler", Kill("scheduler", 7), ends=BATCHES),
    _accelerate("scheduler", Kill("scheduler", 7, nth=1)),
    _fabric("scheduler", Kill("scheduler", 7, rank=0)),
    _accelerate("gpu_forward", Kill("forward", 3, rank=0, nth=7), on_gpu=ACCELERATE_ON_GPU),
    _accelerate("gpu_backward", Kill("backward", 17, rank=0, nth=4), on_gpu=ACCELERATE_ON_GPU),
    _fabric("gpu_forward", Kill("forward", 12, rank=0, nth=9), on_gpu=FABRIC_ON_GPU),
    _fabric("gpu_backward", Kill("backward", 3, rank=0, nth=4), on_gpu=FABRIC_ON_GPU),
    replace(_lightning("skip", Kill("on_before_optimizer_step", 4)), setting=LIGHTNING_SCALED),
    replace(_lightning("after_skip", Kill("forward", 4, nth=18)), setting=LIGHTNING_SCALED),
    replace(_fabric("skip", Kill("forward", 6, nth=9)), setting=FABRIC_SCALED),
    replace(_fabric("after_skip", Kill("forward", 6, nth=25)), setting=FABRIC_SCALED),
    _unmodified("hf", "hf_trainer.py", Kill("forward", 9, nth=30), HF_RESUMES),
    _unmodified("lightning", "lightning_trainer.py", Kill("forward", 8, nth=7), LIGHTNING_RESUMES),
    *_averages("accelerate", ACCELERATE_PORT, 80),
    *_averages("fabric", FABRIC_AVERAGE_PORT, 80),
    _refused(
        *("accelerate", "average", "accelerate_average.py"),
        "Accelerator under Holdfast: the AveragedModel is not kept, and would begin anew when a rank dies: ",
        *ACCELERATE_PORT,
        (
            "    accelerator.register_for_checkpointing(stopper, average)",
            "    accelerator.register_for_checkpointing(stopper)",
        ),
    ),
    Case(
        "hf_average", "hf", SCRIPTS / "hf_average.py", Kill("scheduler", 6), (), AVERAGE_PORT, MAY_BEGIN_AGAIN
    ),
    _refused(
        *("hf", "average_in_a_tail", "hf_average.py"),
        "the callback Average, which changes the state_dict of Average in on_step_end, is not supported: ",
        *(*AVERAGE_PORT, (_AVERAGES, _AVERAGES.replace("on_optimizer_step", "on_step_end"))),
    ),
    _refused(
        *("hf", "average", "hf_average.py"),
        "the callback Average, which changes a copy of the weights, is not supported: ",
        *(*AVERAGE_PORT, (_KEEPS, _KEEPS.replace("state_dict", "state"))),
    ),
    _hf_logs("body", Kill("forward", 3)),
    _hf_logs("rank_0", Kill("on_prediction_step", 6, rank=0)),
    _lightning("stream", Kill("forward", 9, nth=3), script="lightning_stream.py"),
    _over_epochs(),
    replace(
        _refused(
            *("hf", "sampler", "hf_trainer.py"),
            "Trainer under Holdfast: a training loader with a WeightedRandomSampler is not supported: ",
            *HF_PORT,
        ),
        setting=(("    trainer = Trainer(", _WEIGHTED),),
    ),
    _refused(
        *("lightning", "average", "lightning_trainer.py"),
        "Lightning: the callback EMAWeightAveraging is not supported: ",
        *LIGHTNING_PORT,
        (
            '        callbacks=[ModelCheckpoint(monitor="val_loss", save_top_k=2, save_last=True)],',
            '        callbacks=[__import__("lightning").pytorch.callbacks.EMAWeightAveraging()],',
        ),
    ),
    replace(
        _refused(
            *("accelerate", "local_steps", "accelerate_loop.py"),
            "Accelerator under Holdfast: an optimizer's step within no_sync (LocalSGD) is not supported: ",
            *ACCELERATE_PORT,
        ),
        setting=(("    progress = Progress()", _LOCAL),),
    ),
    _hf_refused("deepspeed", 'deepspeed={"zero_optimization": {"stage": 2}}'),
    _hf_refused("torch_compile", "torch_compile=True"),
    _refused(
        *("accelerate", "compile", "accelerate_loop.py"),
        "Accelerator under Holdfast: dynamo_backend is not supported: ",
        *ACCELERATE_PORT,
        (
            '        mixed_precision="bf16", gradient_accumulation_steps=2, cpu=True, log_with=Lines()',
            '        gradient_accumulation_steps=2, cpu=True, log_with=Lines(), dynamo_backend="inductor"',
        ),
    ),
    _refused(
        *("fabric", "compile", "fabric_loop.py"),
        "Fabric under Holdfast: torch.compile is not supported: ",
        *FABRIC_PORT,
        (
            "    model, optimizer = fabric.setup(model, optimizer)",
            "    model, optimizer = fabric.setup(torch.compile(model), optimizer)",
        ),
    ),
    _hf_refused("fsdp", 'fsdp="full_shard"'),
    _lightning_refused("fsdp", 'sharding_strategy="FULL_SHARD"'),
    _lightning_refused("deepspeed", "stage=2"),
    _refused(
        *("accelerate", "deepspeed", "accelerate_loop.py"),
        "Accelerator under Holdfast: ACCELERATE_USE_DEEPSPEED=true is not supported: DeepSpeed owns",
        *(*ACCELERATE_PORT, _variable("ACCELERATE_USE_DEEPSPEED")),
    ),
    _refused(
        *("accelerate", "fsdp", "accelerate_loop.py"),
        "Accelerator under Holdfast: fsdp_plugin is not supported: ",
        *ACCELERATE_PORT,
        (
            '        mixed_precision="bf16", gradient_accumulation_steps=2, cpu=True, log_with=Lines()',
            '        cpu=True, fsdp_plugin=__import__("accelerate").FullyShardedDataParallelPlugin()',
        ),
    ),
    _refused(
        *("fabric", "fsdp", "fabric_loop.py"),
        "Fabric under Holdfast: strategy='fsdp' is not supported: ",
        *FABRIC_PORT,
        (
            '    fabric = Fabric(accelerator="cpu", devices=2, precision="bf16-mixed", loggers=Lines())',
            '    fabric = Fabric(accelerator="cpu", devices=2, strategy="fsdp", loggers=Lines())',
        ),
    ),
)
